"""Calls of TRL-style reward functions: arguments in, checked numbers out, errors that name the row."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import ColumnError, RewardError

RESERVED = ("prompts", "completions", "completion_ids")


def unique_names(reward_funcs: Sequence[Callable]) -> list[str]:
    """The functions' names, for logging; repeated ones get `_2`, `_3`, ...

    Raises:
        TypeError: If one is not callable, or is a coroutine function.
    """
    names: list[str] = []
    for function in reward_funcs:
        if not callable(function) or inspect.iscoroutinefunction(function):
            raise TypeError(
                f"Got {function!r} as a reward function. Expected a plain function "
                "(prompts, completions, completion_ids, **columns) -> list of float or None; wrap "
                "asyncio.run around a coroutine, and pass a reward model as reward_model itself."
            )
        # Partial functions and objects of users' own classes have no name.
        name = base = getattr(function, "__name__", type(function).__name__)
        for number in range(2, len(reward_funcs) + 1):
            if name not in names:
                break
            name = f"{base}_{number}"
        names.append(name)
    return names


def columns_as_lists(rows: Sequence[Mapping[str, Any]]) -> dict[str, list]:
    """The rows' columns as keyword lists; None where a row lacks a column.

    Raises:
        RewardError: If a column has the name of an argument that is passed anyway.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    if taken := sorted(set(names) & set(RESERVED)):
        raise RewardError(
            f"The columns {taken} have names of the arguments {RESERVED} that every reward function gets. "
            "Rename them in encode_prompt."
        )
    return {name: [row.get(name) for row in rows] for name in names}


def call(function: Callable, name: str, arguments: Mapping[str, list]) -> list[float | None]:
    """Call one reward function on keyword lists of one length B.

    Returns:
        B numbers, None where the function abstained.

    Raises:
        RewardError: If it raises, or returns anything but B finite numbers or None. Names the row, unless the
            function raised a RewardError.
    """
    try:
        rewards = function(**arguments)
    except RewardError:  # a judge's, which is not asked about each row again
        raise
    except ColumnError as error:  # which names its row
        raise RewardError(f"The reward function {name!r} raised ColumnError: {error}") from error
    except Exception as error:
        raise RewardError(_which_row(function, name, arguments, error)) from error
    length = len(arguments["completions"])
    try:
        rewards = list(rewards)
    except TypeError:
        rewards = [rewards]
        length = -1
    if len(rewards) != length:
        raise RewardError(
            f"The reward function {name!r} returned {rewards!r:.200} for {len(arguments['completions'])} "
            "completions. Expected a list with one number, or None, per completion."
        )
    return [_number(reward, name, row, arguments) for row, reward in enumerate(rewards)]


def _number(reward: Any, name: str, row: int, arguments: Mapping[str, list]) -> float | None:
    if reward is None:
        return None
    try:
        number = math.nan if isinstance(reward, str | bytes) else float(reward)
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor of several numbers
        number = math.nan
    if not math.isfinite(number):
        raise RewardError(
            f"The reward function {name!r} returned {reward!r} for row {row} ({_shown(arguments, row)}). "
            "Expected a finite number, or None to abstain."
        )
    return number


def _which_row(function: Callable, name: str, arguments: Mapping[str, list], error: Exception) -> str:
    """Say on which rows a function fails that failed on their batch."""
    length = len(arguments["completions"])
    failing = []
    for row in range(length):
        try:
            function(**{key: values[row : row + 1] for key, values in arguments.items()})
        except Exception:
            failing.append(row)
    raised = f"The reward function {name!r} raised {type(error).__name__}: {error}"
    if not failing:
        return f"{raised}. It fails on the batch of {length} rows, but on none of them alone."
    first = failing[0]
    return f"{raised}. It fails on row {', '.join(map(str, failing))} ({_shown(arguments, first)})."


def _shown(arguments: Mapping[str, list], row: int) -> str:
    columns = {key: values[row] for key, values in arguments.items() if key not in RESERVED}
    completion = arguments["completions"][row]
    text = completion if isinstance(completion, str) else completion[0]["content"]
    return f"completion {text!r:.200}, columns {columns!r:.300}"
