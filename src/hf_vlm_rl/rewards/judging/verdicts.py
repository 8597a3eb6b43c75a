"""Verdicts: the schema that a server is asked for, and the reader that takes nothing else."""

import json
import re
from collections.abc import Sequence
from typing import Any

from .usage import NoVerdictError

# How models without a schema like to answer.
_BLOCK = re.compile(r"```(?:json)?\s*\n([^`]*)\n\s*```")


def schema(name: str, values: Sequence[int | str]) -> dict[str, Any]:
    """The JSON schema of a verdict: a reason, and one of some values under `name`."""
    kind = "integer" if isinstance(values[0], int) else "string"
    return {
        "type": "object",
        "properties": {"reason": {"type": "string"}, name: {"type": kind, "enum": list(values)}},
        "required": ["reason", name],
        "additionalProperties": False,
    }


def read_verdict(text: str, name: str, values: Sequence[int | str]) -> Any:
    """The value of a verdict.

    Args:
        text: What the server answered: the JSON object, alone or as the only code block.
        name: The key of the value.
        values: What it may be.

    Raises:
        NoVerdictError: If it is no such object: other or repeated keys, text around it, another type, a value
            that is none of `values`.
    """
    block = _BLOCK.fullmatch(text.strip())
    try:
        verdict = json.loads(block[1] if block else text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise NoVerdictError("not JSON", f"{text[:200]!r}") from error
    if not isinstance(verdict, dict) or set(verdict) != {"reason", name}:
        raise NoVerdictError("other keys", f"{text[:200]!r}")
    value = verdict[name]
    # `True` equals 1 and 7.0 equals 7, and neither was asked for.
    if not isinstance(verdict["reason"], str) or type(value) is not type(values[0]):
        raise NoVerdictError("another type", f"{text[:200]!r}")
    if value not in values:
        raise NoVerdictError("out of range", f"{value!r:.100}")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)
