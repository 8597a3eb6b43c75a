"""The page of all messages, from the code: so that the site's search finds each of them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "hf_vlm_rl"
GAP = "..."  # in place of a value
SENTENCE = re.compile(r"(?:[A-Za-z][\w',]*[.:;]? (?:\.\.\. )*){3}")  # words with spaces between them
FIELD = re.compile(r"\{\w+(?:[:!][^{}]*)?\}")  # of a template
NO_MESSAGES = ("help", "description", "epilog")  # keywords whose texts are for `--help`
HEAD = """# Error messages

What this package says when something is wrong, as the code has it: errors, warnings, and parts of both;
`...` stands for a value. What to do is in the message; [Troubleshooting](troubleshooting.md) explains those
that need more than that.
"""


def page() -> str:
    """The page in Markdown: a section for each module, an item for each message."""
    sections = [HEAD]
    for path in sorted(SOURCE.rglob("*.py")):
        found = dict.fromkeys(messages(ast.parse(path.read_text(encoding="utf-8"))))
        if found:
            name = path.relative_to(SOURCE).as_posix()
            items = "\n".join(f"- {_plain(text)}" for text in found)
            sections.append(f"## {_plain(name)}\n\n{items}\n")
    return "\n".join(sections)


def messages(node: ast.AST) -> Iterator[str]:
    """The texts in a module's code that are sentences, in its order.

    Args:
        node: The module, or a part of it.
    """
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant):
            continue  # a docstring
        if isinstance(part, ast.keyword) and part.arg in NO_MESSAGES:
            continue
        if isinstance(part, ast.Constant | ast.JoinedStr | ast.BinOp):
            text = " ".join(_text(part).split())
            if "{%" in text:
                continue  # a chat template
            if SENTENCE.search(text):
                yield text
                continue
        yield from messages(part)


def _text(node: ast.expr) -> str:
    """The text of an expression, with a gap for each part that is no literal."""
    if isinstance(node, ast.Constant):
        return FIELD.sub(GAP, str(node.value))
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return GAP


def _plain(text: str) -> str:
    """Text without anything that Markdown or HTML reads as markup."""
    return re.sub(r"[^\w\s.,;:!?'\"/%()=+-]|_", lambda sign: f"&#{ord(sign[0])};", text)
