"""The page of all error messages, from the code: so the site's search finds each of them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "hf_vlm_rl"
GAP = "..."  # in place of a value
HEAD = """# Error messages

Every message of this package's errors, as the code has them; `...` stands for a value. What to do is in the
message; [Troubleshooting](troubleshooting.md) explains those that need more than that.
"""


def page() -> str:
    """The page in Markdown: a section for each room, an item for each message."""
    sections = []
    for room in sorted({path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in _files()}):
        found = dict.fromkeys(
            (kind, text)
            for path in _files()
            if path.relative_to(SOURCE).parts[0].removesuffix(".py") == room
            for kind, text in messages(path.read_text(encoding="utf-8"))
        )
        if found:
            items = "\n".join(f"- `{kind}`: {_plain(text)}" for kind, text in found)
            sections.append(f"## {room}\n\n{items}\n")
    return "\n".join([HEAD, *sections])


def messages(source: str) -> Iterator[tuple[str, str]]:
    """Name of the error and text of each message that a module raises, in its order.

    Args:
        source: The module's code.
    """
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        if not (node.func.id.endswith("Error") and node.args):
            continue
        text = " ".join(_text(node.args[0]).split())
        if " " in text.replace(GAP, ""):
            yield node.func.id, text


def _files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def _text(node: ast.expr) -> str:
    """The text of an expression, with a gap for each part that is no literal."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return GAP


def _plain(text: str) -> str:
    """Text without anything that Markdown or HTML reads as markup."""
    return re.sub(r"[^\w\s.,;:!?'\"/%()=+-]|_", lambda sign: f"&#{ord(sign[0])};", text)
