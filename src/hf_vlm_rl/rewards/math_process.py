"""Questions on mathematics for a process of their own, which ends where an answer would take for ever.

One process serves all threads of this one, and starts with the first question. It is a plain program rather
than a child of `multiprocessing`: daemonic dataloader workers may have it, and no script is run again for it.
"""

import atexit
import contextlib
import functools
import json
import os
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .base import missing

# For one question. An answer that needs longer is wrong.
SECONDS = 5
_PROGRAM = Path(__file__).with_name("math_worker.py")

_lock = threading.Lock()
_process: subprocess.Popen[str] | None = None


@functools.lru_cache(maxsize=4_096)
def ask(question: str, *texts: str) -> bool:
    """Ask math-verify.

    "reads": is there mathematics in a text; "equal": does the second text equal the first. The reply is False
    if there was none within `SECONDS`, or math-verify failed.

    Raises:
        ImportError: If math-verify is not installed.
        RuntimeError: If the process does not start.
    """
    if find_spec("math_verify") is None:
        raise missing("math-verify")
    with _lock:
        running = _process if _process is not None and _process.poll() is None else _start()
        reply = _exchange(running, [SECONDS, question, *texts])
        if not reply:
            _stop()
    return reply == "true\n"


def _start() -> subprocess.Popen[str]:
    global _process
    _stop()
    command = [sys.executable, "-P", str(_PROGRAM)]
    _process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="ascii"
    )
    if not _exchange(_process, sys.path):
        _stop()
        raise RuntimeError(
            f"The process that compares mathematics did not start: {' '.join(command)}. Its error stands "
            f"above; try {sys.executable} -c 'import math_verify'."
        )
    return _process


def _exchange(process: subprocess.Popen[str], message: list[Any]) -> str:
    """Send one line and wait for one; "" if the process ended."""
    try:
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(message), file=process.stdin, flush=True)
        return process.stdout.readline() if process.stdout else ""
    except BaseException:  # an interrupt: the next question must not get this one's reply
        _stop()
        raise


def _stop() -> None:
    global _process
    if _process is not None:
        _process.kill()
        _process.wait()
        _close(_process)


def _close(process: subprocess.Popen[str]) -> None:
    global _process
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            if pipe is not None:
                pipe.close()
    _process = None


def _leave_to_parent() -> None:
    """In a forked process: its parent's process is not its own."""
    if _process is not None:
        _process.returncode = 0  # there is nothing to wait for
        _close(_process)
    _lock.release()


atexit.register(_stop)
if hasattr(os, "register_at_fork"):  # Windows does not fork
    # No question is under way while a process forks, so nothing is left in the pipes that both hold.
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_leave_to_parent)
