"""Patterns of an adapter's config, matched against the model's names within a time.

PEFT hands them to `re`, which can take for ever on some.
"""

import time
from collections.abc import Iterable
from typing import Any

import regex

from .config import NAME

SECONDS = 5.0  # for all patterns of a config together
WHOLE = ("target_modules", "exclude_modules", "feedforward_modules")
ENDS = ("rank_pattern", "alpha_pattern")


def has_patterns(config: Any) -> bool:
    """Whether a config says by patterns which modules it means."""
    whole = (getattr(config, field, None) for field in WHOLE)  # kinds of adapters have different fields
    ends = (key for field in ENDS for key in getattr(config, field, None) or ())
    return any(isinstance(value, str) for value in whole) or not all(map(NAME.fullmatch, ends))


def name_modules(config: Any, model: Any) -> None:
    """Replace a config's patterns, in place, by the names that they match.

    Raises:
        ValueError: If a pattern is invalid, takes too long or, as a target, matches nothing.
    """
    end = time.monotonic() + SECONDS
    modules = [name for name, _ in model.named_modules() if name]
    for field in WHOLE:
        pattern = getattr(config, field, None)
        if isinstance(pattern, str) and pattern != "all-linear":
            matches = _matching(pattern, modules, field, end)
            if not matches and field == "target_modules":
                raise ValueError(f"Target modules {pattern!r} are not in the base model.")
            setattr(config, field, set(matches))
    for field in ENDS:
        patterns = getattr(config, field, None) or {}
        if all(map(NAME.fullmatch, patterns)):
            continue
        names = [*modules, *(name for name, _ in model.named_parameters())]
        if isinstance(config.target_modules, set):  # PEFT would warn of ranks for other modules
            ends = [*config.target_modules, *(config.target_parameters or ())]
            names = [name for name in names if any(f".{name}".endswith(f".{target}") for target in ends)]
        exact: dict[str, Any] = {}
        for pattern, value in patterns.items():
            for name in _matching(rf"(.*\.)?({pattern})", names, field, end):
                exact.setdefault(name, value)  # the first pattern that matches counts
        setattr(config, field, exact)


def _matching(pattern: str, names: Iterable[str], field: str, end: float) -> list[str]:
    try:
        compiled = regex.compile(pattern)
        return [name for name in names if compiled.fullmatch(name, timeout=max(end - time.monotonic(), 1e-3))]
    except regex.error as error:
        raise ValueError(f"{field} has {pattern!r}, which is no pattern ({error}).") from error
    except TimeoutError as error:
        raise ValueError(
            f"{field} has {pattern[:200]!r}, which takes more than {SECONDS:g} s to match the model's names. "
            "Expected names of modules, or a pattern without repetitions inside of repetitions."
        ) from error
