"""Context variables that have a value for the length of a block."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def scoped(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Inside the block, in this thread, the variable has this value; then it has its former one again."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
