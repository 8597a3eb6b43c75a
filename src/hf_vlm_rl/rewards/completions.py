"""What a completion says: its text, the content of its tags, words that compare well.

Everything here is linear in the length of the text, whatever the text is.
"""

import re
import unicodedata
from typing import Any

# An answer stands at the end: of longer completions, readers see this many last characters.
MAX_CHARS = 65_536

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
# A number keeps its sign and point; in scripts without spaces a character is a word. The look-behind
# lets each number be tried once: linear time.
_NUMBER = r"(?<![\w.,])(?:(?<!\S)[-\u2212])?\d++(?:[.,]\d++)*+(?!\w)"
_WORD = re.compile(rf"{_NUMBER}|[{_CJK}]|[^\W_{_CJK}]+")
_APOSTROPHES = dict.fromkeys(map(ord, "'\u2019\u02bc`\u00b4"))


def text_of(completion: Any) -> str:
    """The text of a completion; "" where there is none.

    Args:
        completion: A string, or messages, of which the assistant's last counts. A message's content
            is a string or a list of blocks, of which the text ones count.
    """
    if isinstance(completion, str):
        return completion
    if not isinstance(completion, list | tuple):
        return ""
    messages = [message for message in completion if isinstance(message, dict)]
    spoken = [message for message in messages if message.get("role", "assistant") == "assistant"]
    content = spoken[-1].get("content") if spoken else None
    if isinstance(content, list | tuple):
        texts = [block.get("text") if isinstance(block, dict) else block for block in content]
        return "".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def extract_tag(text: str, tag: str) -> str | None:
    """The content of the last closed `<tag>...</tag>`, or None.

    Args:
        text: Any text.
        tag: The name, without brackets; upper and lower case differ.
    """
    end = text.rfind(f"</{tag}>")
    if end < 0:
        return None
    start = text.rfind(f"<{tag}>", 0, end)
    return None if start < 0 else text[start + len(tag) + 2 : end]


def extract_answer(text: str, tag: str | None = "answer") -> str:
    """Where the answer stands: in the last `<answer>` tag, else after `</think>`, else anywhere.

    Args:
        text: The text of a completion. Only its last `MAX_CHARS` characters are read.
        tag: The tag of the answer; None reads the whole text.

    Returns:
        The answer, without white space around it.
    """
    text = text[-MAX_CHARS:]
    if tag is None:
        return text.strip()
    content = extract_tag(text, tag)
    if content is None:
        content = text.rpartition("</think>")[2]
    return content.strip()


def words(text: str) -> list[str]:
    """The words of a text in a form that compares: no case, accents, punctuation or apostrophes.

    Numbers keep sign and point and lose commas. Characters of Chinese and Japanese are words of their
    own.
    """
    folded = unicodedata.normalize("NFKD", text).casefold().translate(_APOSTROPHES)
    plain = "".join(char for char in folded if not unicodedata.combining(char))
    return [word.replace(",", "") for word in _WORD.findall(plain)]


def strip_fence(text: str) -> str:
    """The content of the first Markdown code fence, or the text as it is."""
    _, fence, rest = text.partition("```")
    if not fence:
        return text.strip()
    first, newline, body = rest.partition("\n")
    if newline and (not first.strip() or first.strip().isalnum()):  # ```json
        rest = body
    return rest.partition("```")[0].strip()
