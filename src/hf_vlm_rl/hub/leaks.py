"""A last look at what is about to be published: no secret, no path of this machine."""

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from huggingface_hub import get_token

TEXT = (".json", ".md", ".yaml", ".yml", ".txt", ".jinja")
# Thousands of arbitrary strings: only secrets can be told from words there.
VOCABULARY = ("tokenizer.json", "vocab.json", "merges.txt", "vocab.txt")
SECRET_NAME = re.compile(r"TOKEN|API_?KEY|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
SECRETS = {
    "a Hugging Face token": re.compile(r"\bhf_[A-Za-z0-9]{30,}\b"),
    "an OpenAI key": re.compile(r"\bsk-[A-Za-z0-9_-]{32,}\b"),
    "a GitHub token": re.compile(r"\bgh[pousr]_[A-Za-z0-9]{36,}\b"),
}
HOMES = re.compile(r"(?:/home|/Users)/[\w.-]+|\b[A-Za-z]:\\\\?Users\\\\?[\w.-]+")


def check_leaks(files: Iterable[Path], folder: Path, secrets: Iterable[str | None] = ()) -> None:
    """Raise if a file tells a secret or a path of this machine.

    Looked for: the given secrets, the stored token of the Hub, values of environment variables whose
    names say that they are secret, tokens by their form; home directories; in JSON, any value that is
    an absolute path of this machine.

    Args:
        files: The files to publish; others than text are not read.
        folder: Where they are.
        secrets: Values that must not appear.

    Raises:
        ValueError: Naming the file and the place in it, but not the secret.
    """
    known = {value for value in (*secrets, get_token(), *_environment()) if value and len(value) >= 8}
    for path in files:
        if path.suffix.lower() not in TEXT:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        found = _secret(text, known)
        if found is None and path.name not in VOCABULARY:
            found = _place(text, path.suffix, folder)
        if found is not None:
            what, line = found
            raise ValueError(
                f"{path}, line {line}: holds {what}. Nothing was uploaded. Remove it from what the file is "
                "made from (the card's texts, the training arguments, the tokenizer's settings), save "
                "again and push again."
            )


def _environment() -> Iterator[str]:
    for name, value in os.environ.items():
        # Not the switches and the places that go with them: HF_HUB_DISABLE_IMPLICIT_TOKEN, HF_TOKEN_PATH.
        if SECRET_NAME.search(name) and not value.isdigit() and not os.path.isabs(value):
            yield value


def _secret(text: str, known: Iterable[str]) -> tuple[str, int] | None:
    for value in known:
        if value in text:
            return "the value of a token or key of this session", _line(text, text.index(value))
    for what, pattern in SECRETS.items():
        match = pattern.search(text)
        if match:
            return what, _line(text, match.start())
    return None


def _place(text: str, suffix: str, folder: Path) -> tuple[str, int] | None:
    here = [str(path) for path in (folder.resolve(), Path.cwd()) if len(path.parts) > 2]
    home = str(Path.home())
    for place in (*here, home + os.sep):
        if place in text:
            return f"the path {place!r} of this machine", _line(text, text.index(place))
    match = HOMES.search(text)
    if match:
        return f"the path {match[0]!r}", _line(text, match.start())
    if suffix == ".json":
        for value in _strings(json.loads(text)):
            if os.path.isabs(value) and len(Path(value).parts) > 1 and Path(value).exists():
                return f"the path {value!r} of this machine", _line(text, text.find(json.dumps(value)))
    return None


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, max(position, 0)) + 1
