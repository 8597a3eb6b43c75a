"""What a completion says: its text, the content of its tags, words that compare well.

Everything here is linear in the length of the text, whatever the text is.
"""

import unicodedata
from functools import lru_cache
from typing import Any

import regex

# An answer stands at the end: of longer completions, readers see this many last characters.
MAX_CHARS = 65_536

# Scripts without spaces between words, as they stand in a set of characters of `regex`.
UNSPACED = r"\p{Han}\u3040-\u30ff\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_CJK = r"\p{Han}\u3040-\u30ff"
_LETTERS = rf"[[\p{{L}}\p{{N}}\p{{M}}]--[{_CJK}]]"
# A word is a number with its sign, point and commas between thousands, and letters that touch it; or a
# character of Chinese or Japanese; or a run of letters with their marks. A minus sign stands before a digit
# or a point, and not behind a letter, a digit or a closing bracket.
_WORD = regex.compile(
    r"(?V1)(?:(?<![\p{L}\p{N}\p{M})\]}%])[-\u2212\u2013](?=\.?\d))?+(?:"
    rf"(?<![\p{{L}}\p{{N}}.,])(?:\d{{1,3}}(?:,\d{{3}})++(?!,?\d)|\d++)?+(?:\.\d++)*+(?<=\d){_LETTERS}*+"
    rf"|[{_CJK}]\p{{M}}*+|{_LETTERS}++)"
)
_ACCENTS = regex.compile(r"([\p{Latin}\p{Greek}])\p{Mn}++")
_APOSTROPHES = dict.fromkeys(map(ord, "'\u2019\u02bc`\u00b4"))
# What turns an answer into its opposite: English first, then other languages that models are asked in.
_SPACED_NEGATIONS = """
not no nor never neither none nothing nobody without except cannot wrong incorrect false untrue
isnt arent wasnt werent dont doesnt didnt
nicht kein keine keinen keiner keines nie weder pas jamais aucun aucune non nunca ningún ninguno ninguna
não nem niet geen не нет ни değil không bukan tidak ليس لا नहीं
"""
_UNSPACED_NEGATIONS = "[不没沒否]|非(?!常)|ない|ません|아니|아닌|않|ไม่"
NEGATION = regex.compile(
    rf"(?i)(?<![\p{{L}}\p{{M}}\\])(?:{'|'.join(_SPACED_NEGATIONS.split())}|\p{{L}}+n['\u2019]t)(?![\p{{L}}\p{{M}}])"
    f"|{_UNSPACED_NEGATIONS}"
)
_SENTENCE_END = regex.compile(r"[.!?](?![\p{L}\p{N}])|[\u3002\uff01\uff1f\uff1b\uff0c;\n]|,(?=\p{Han})")


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


def asserted(answer: str) -> str:
    """What an answer says after its last denial: "not 3. It is 5" says "It is 5", "5, not 3" says "".

    A denial is a sentence with a word such as "not", "wrong", "nicht", "pas" or "不". Everything up to its
    end is left out, as no rule tells which of its words it denies.
    """
    denials = [denial.end() for denial in NEGATION.finditer(answer)]
    if not denials:
        return answer
    end = _SENTENCE_END.search(answer, denials[-1])
    return answer[end.end() :] if end else ""


def compatible(text: str) -> str:
    """A text in Unicode's compatible form (NFKC), but for characters that would become digits.

    Full-width letters, ligatures and half-width kana become the usual ones. "5\u00b2" stays what it is, where
    NFKC makes it "52".
    """
    return unicodedata.normalize("NFC", regex.sub(r"[^\x00-\x7f]", _compatible, text))


def _compatible(match: regex.Match[str]) -> str:
    return _compatible_character(match[0])


@lru_cache(maxsize=4_096)
def _compatible_character(char: str) -> str:
    normal = unicodedata.normalize("NFKC", char)
    made_digits = not char.isdecimal() and any(each.isdecimal() for each in normal)
    return char if made_digits else normal


def words(text: str) -> list[str]:
    """The words of a text in a form that compares: no case, punctuation or apostrophes.

    Accents of Latin and Greek letters are left out. Marks of other scripts (Japanese voicing, Indic vowels,
    tones of Thai) make other words and stay. Numbers keep their sign and point, and lose commas between
    thousands. Characters of Chinese and Japanese are words of their own.
    """
    folded = unicodedata.normalize("NFD", compatible(text.translate(_APOSTROPHES)).casefold())
    plain = unicodedata.normalize("NFC", _ACCENTS.sub(r"\1", folded))
    return [_as_word(word) for word in _WORD.findall(plain)]


def _as_word(word: str) -> str:
    word = word.replace(",", "").replace("\u2212", "-").replace("\u2013", "-")
    sign, point, decimals = word.partition(".")
    return f"{sign}0.{decimals}" if point and sign in ("", "-") else word


def strip_fence(text: str) -> str:
    """The content of the first Markdown code fence, or the text as it is."""
    _, fence, rest = text.partition("```")
    if not fence:
        return text.strip()
    first, newline, body = rest.partition("\n")
    if newline and (not first.strip() or first.strip().isalnum()):  # ```json
        rest = body
    return rest.partition("```")[0].strip()
