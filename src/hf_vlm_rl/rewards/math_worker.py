"""The program that `math_process` starts: reads questions on mathematics, a line of JSON each, and replies.

A question is [seconds, name, texts ...]. If it takes longer than these seconds, or the program that asks
ends, this one ends. It is started by its path: nothing here may import from the package.
"""

import contextlib
import faulthandler
import functools
import json
import logging
import os
import re
import signal
import sys
from collections.abc import Callable

SECONDS_TO_START = 120
BYTES = 4 << 30
# A word of a sentence, rather than a product of letters.
_PROSE = re.compile(r"(?<![\\a-zA-Z])(?!(?:sin|cos|tan|log|ln|exp|sqrt|pi)(?![a-zA-Z]))[a-zA-Z]{2,}")
_MARKS = ("$", "\\boxed", "\\(", "\\[")


@functools.lru_cache(maxsize=256)
def candidates(text: str) -> list:
    """What math-verify reads in a text, as sympy expressions."""
    from math_verify import parse

    # `no_fallback`: no text, only mathematics. The deadline is kept outside.
    read = functools.partial(parse, fallback_mode="no_fallback", parsing_timeout=None)
    if any(mark in text for mark in _MARKS):
        return read(text)
    # Plain numbers and formulas are read best as LaTeX, sentences as they are.
    forms = [f"${text}$", text]
    if _PROSE.search(text):
        forms = forms[::-1] if "\\" in text else [text]
    return next(filter(None, map(read, forms)), [])


def reads(text: str) -> bool:
    """Whether there is mathematics in a text."""
    return bool(candidates(text))


def equal(right: str, answer: str) -> bool:
    """Whether an answer equals the right one."""
    from math_verify import verify

    return verify(candidates(right), candidates(answer), timeout_seconds=None)


def main() -> None:
    """Reply until there are no more questions."""
    nothing = open(os.devnull, "w")  # noqa: SIM115 (open until the end)
    # A thread of its own ends the process: arithmetic with huge integers hears no signals.
    watch = functools.partial(faulthandler.dump_traceback_later, exit=True, file=nothing)
    watch(SECONDS_TO_START)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program that asks
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(nothing.fileno(), 1)  # what libraries print is no reply
    sys.path[:] = json.loads(sys.stdin.readline())
    import math_verify  # noqa: F401

    logging.disable()
    with contextlib.suppress(ImportError, ValueError, OSError):  # not every system has such a limit
        import resource

        # A number that would fill the machine is an error in here.
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    print("ready", file=replies, flush=True)
    faulthandler.cancel_dump_traceback_later()
    questions: dict[str, Callable[..., bool]] = {"reads": reads, "equal": equal}
    for line in sys.stdin:
        seconds, name, *texts = json.loads(line)
        watch(seconds)
        try:
            reply = bool(questions[name](*texts))
        except Exception:  # sympy's own, of any kind
            reply = False
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
