"""The page of all messages, from the code: so that the site's search finds each of them.

Messages stand under what their reader did when they came, which is told by the folder of the code. Where
docs/troubleshooting.md explains one, its cause and its cure stand beside it.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "hf_vlm_rl"
EXPLAINED = Path(__file__).parent / "troubleshooting.md"
GAP = "..."  # in place of a value
SENTENCE = re.compile(r"(?:[A-Za-z][\w',]*[.:;]? (?:\.\.\. )*){3}")  # words with spaces between them
WHOLE = re.compile(r"^[A-Z]|(?<!\.\.)[.!)]$|[.:] [A-Z]")  # begins or ends as a sentence, or has a further one
FIELD = re.compile(r"\{\w+(?:[:!][^{}]*)?\}")  # of a template
NO_MESSAGES = ("help", "description", "epilog")  # keywords whose texts are for `--help`
# Texts of cards, pages and tables, and lists of words.
NO_MESSAGES_IN = (
    "hub/cards",
    "plan/report",
    "families/table",
    "families/tiny",
    "policy/generate/processors",
    "rewards/numeric",
)
SLOW = "Nothing stops, but something is computed row by row"
# What the reader did, and where the code for it is; the longest of these that begins a module's path decides.
SYMPTOMS = {
    "You start a command or import the package": ("_", "cli", "compat", "errors"),
    "You load a model": ("loading", "families"),
    "You load, fit or merge an adapter": ("loading/adapters", "policy/trained"),
    "You load a dataset": ("data",),
    "You pass an image or a video": ("processing/images", "processing/videos"),
    "You pass a prompt, or encode a row": ("processing",),
    "A trainer trains or samples": ("policy",),
    SLOW: ("policy/sharing", "policy/generate", "policy/probe", "policy/report", "policy/caches"),
    "A reward, value or reward model answers": ("rewards", "scoring"),
    "You evaluate": ("evaluation",),
    "vLLM samples": ("vllm", "front", "policy/serving"),
    "You plan a run": ("plan",),
    "You save or push": ("hub",),
}
HEAD = """# Error messages

For people who met a message of this package and want to find it. The messages stand under what you did when
it came. `...` stands for a value. Most messages say themselves what to do; for some, the cause and the cure
stand in a table. [Troubleshooting](troubleshooting.md) also has messages of TRL, transformers and Python, and
what happens without any message.
"""
REASONS = """These are no errors. The policy could not share the work of some rows and computed each row by
itself. `policy.sharing_report()` counts each reason; [Performance](performance.md) says what it costs.
"""


def page() -> str:
    """The page in Markdown: a section for each symptom, a line for each message."""
    sections = [HEAD]
    explained = _explained()
    for symptom, texts in by_symptom().items():
        rows, items = [], []
        for text in texts:
            cells = next((cells for quote, cells in explained if quote.search(text)), None)
            if cells is None:
                items.append(f"- {_plain(text)}\n")
            else:
                rows.append(f"| {_plain(text)} | {cells} |\n")
        table = "| message | why | what to do |\n|---|---|---|\n" + "".join(rows) if rows else ""
        reasons = REASONS if symptom == SLOW else ""
        sections.append("\n".join(filter(None, [f"## {symptom}\n", reasons, table, "".join(items)])))
    return "\n".join(sections)


def by_symptom() -> dict[str, list[str]]:
    """All messages of the code, in the order of the alphabet, by what their reader did."""
    folders = {folder: symptom for symptom, places in SYMPTOMS.items() for folder in places}
    texts = {symptom: set() for symptom in SYMPTOMS}
    for path in sorted(SOURCE.rglob("*.py")):
        module = path.relative_to(SOURCE).as_posix()
        if module.startswith(NO_MESSAGES_IN):
            continue
        read = set(messages(ast.parse(path.read_text(encoding="utf-8"))))
        places = [folder for folder in folders if module.startswith(folder)]
        if read and not places:
            raise ValueError(
                f"{module} has messages, and SYMPTOMS does not say when they come. Add its folder."
            )
        if read:
            symptom = folders[max(places, key=len)]
            whole = {text for text in read if WHOLE.search(text) and not text.endswith("?")}
            texts[symptom] |= read if symptom == SLOW else whole
    return {symptom: sorted(found, key=_letters) for symptom, found in texts.items()}


def messages(node: ast.AST) -> Iterator[str]:
    """The texts in a module's code that have a sentence, in its order.

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
            if "{%" in text or " import " in text:
                continue  # a chat template, or code
            if SENTENCE.search(text):
                yield text
                continue
        yield from messages(part)


def _explained() -> list[tuple[re.Pattern, str]]:
    """Pairs (message, why and what to do as cells) of docs/troubleshooting.md."""
    rows = re.findall(r"^\| `(.*?)`[^|]* \| (.*) \|$", EXPLAINED.read_text(encoding="utf-8"), re.MULTILINE)
    return [
        (re.compile(".*?".join(re.escape(part) for part in re.split(r"\s?\.\.\.\s?", quote))), cells)
        for quote, cells in rows
    ]


def _text(node: ast.expr) -> str:
    """The text of an expression, with a gap for each part that is no literal."""
    if isinstance(node, ast.Constant):
        return FIELD.sub(GAP, str(node.value))
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return GAP


def _letters(text: str) -> str:
    """What a message is sorted by: its words, without the values."""
    return re.sub(r"[^a-z ]", "", text.lower().replace(GAP, "")).strip()


def _plain(text: str) -> str:
    """Text without anything that Markdown or HTML reads as markup."""
    return re.sub(r"[^\w\s.,;:!?'\"/%()=+-]|_", lambda sign: f"&#{ord(sign[0])};", text)
