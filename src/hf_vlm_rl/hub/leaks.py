"""A last look at what is about to be published: no secret, no path of this machine."""

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from huggingface_hub import get_token

from .contents import read_checked

# Thousands of arbitrary strings: only secrets can be told from words there.
VOCABULARY = ("tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json", "merges.txt", "vocab.txt")
SECRET_NAME = re.compile(r"TOKEN(?!IZ)|API_?KEY|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
# Without a boundary at the left: `run_hf_...` holds a token, too.
SECRETS = {
    "a Hugging Face token": re.compile(r"(?:hf_(?:oauth_|jwt_)?|api_org_)[A-Za-z0-9]{30,}"),
    # Keys are random: a stretch without hyphens has a digit and a capital, which `task-2-of-...` has not.
    "an API key": re.compile(
        r"sk-(?=[\w-]{32})[\w-]*?(?=[A-Za-z0-9]*[0-9])(?=[A-Za-z0-9]*[A-Z])[A-Za-z0-9]{20}"
    ),
    "a GitHub token": re.compile(r"gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{60,}"),
    "a GitLab token": re.compile(r"gl(?:pat|oas|dt|rt|cbt|ptt|ft|imt|agent|soat)-[\w-]{20,}"),
    "an AWS key": re.compile(r"(?:AKIA|ASIA|ABIA|ACCA)(?=[A-Z2-7]*[2-7])[A-Z2-7]{16}(?![A-Za-z0-9])"),
    "a Google key": re.compile(r"AIza[\w-]{35}|GOCSPX-[\w-]{28}|ya29\.[\w-]{20,}"),
    "a Slack token": re.compile(
        r"xox[abeoprs]-[A-Za-z0-9-]{10,}|hooks\.slack\.com/services/T\w+/B\w+/\w{20,}"
    ),
    "a private key": re.compile(r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY"),
    "a password in an address": re.compile(
        r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@\"'<>{}]{1,100}:[^\s/:@\"'<>{}]{3,200}@"
    ),
}
# Where people and clusters keep data; elsewhere a path is one if this machine has it.
PLACES = "scratch|mnt|media|gpfs|lustre|nfs|work|workspace|Volumes"
HOMES = re.compile(
    rf"(?:/home|/Users)/[\w.-]+|(?<![\w./-])/(?:{PLACES})/[\w.-]+|file:///?[\w./-]+"
    r"|\b[A-Za-z]:\\\\?Users\\\\?[\w.-]+"
)
ADDRESS = re.compile(r"https?://[^\s\"'<>)]+")


def check_leaks(files: Iterable[Path], folder: Path, secrets: Iterable[str | None] = ()) -> None:
    """Raise if a file tells a secret or a path of this machine, or is not what its name says.

    Looked for in names, in text, and in the header of safetensors files (metadata, names of tensors): the
    given secrets, the stored token of the Hub, values of environment variables whose names say that they
    are secret, tokens by their form; home directories; in JSON and in metadata, any value that is an
    absolute path of this machine. `read_checked` says what else is refused.

    Raises:
        ValueError: Naming the file and the place in it, but not the secret.
    """
    known = {value for value in (*secrets, get_token(), *_environment()) if value and len(value) >= 8}
    for path in files:
        text, value = read_checked(path, folder)
        name = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name
        if leak := _secret(name, known):
            raise ValueError(
                f"The name of a file in {path.parent} holds {leak[0]}. Nothing was uploaded. Rename it."
            )
        strings = _strings(value)
        leak = _secret(text, known)
        if leak is None and (escaped := _secret("\n".join(strings), known)):
            leak = f"{escaped[0]} behind escapes", _line(text, text.find("\\"))
        if leak is None and path.name not in VOCABULARY:
            leak = _place(text, strings, folder)
        if leak is not None:
            what, line = leak
            where = "metadata" if path.suffix == ".safetensors" else f"line {line}"
            raise ValueError(
                f"{path}, {where}: holds {what}. Nothing was uploaded. Remove it from what the file is "
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


def _place(text: str, strings: Iterable[str], folder: Path) -> tuple[str, int] | None:
    here = [str(path) for path in (folder.resolve(), Path.cwd()) if len(path.parts) > 2]
    home = Path.home()  # of a container, it may be the root
    homes = [f"{home}{os.sep}"] if len(home.parts) > 1 else []
    for place in (*here, *homes):
        if place in text:
            return f"the path {place!r} of this machine", _line(text, text.index(place))
    match = HOMES.search(ADDRESS.sub(lambda address: " " * len(address[0]), text))
    if match:
        return f"the path {match[0]!r}", _line(text, match.start())
    for value in strings:
        if os.path.isabs(value) and len(Path(value).parts) > 1 and os.path.exists(value):
            return f"the path {value!r} of this machine", _line(text, text.find(json.dumps(value)))
    return None


def _strings(value: Any) -> list[str]:
    """All keys and values of JSON that are strings."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [*value, *_strings([*value.values()])]
    return [string for item in value for string in _strings(item)] if isinstance(value, list) else []


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, max(position, 0)) + 1
