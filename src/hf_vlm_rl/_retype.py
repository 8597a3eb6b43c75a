"""Give an existing object a subclass of its own class, in place.

The subclass keeps the name and module of the stock class. Whatever asks for them sees the stock
class: `architectures` in config.json, `processor_class` in processor_config.json, and transformers'
checkpoint key conversions, which it skips for classes that live outside its own package.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from .compat import RENAMED_ARGUMENTS

M = TypeVar("M", bound="Retyped")


class Retyped:
    """Base of the mixins. Subclasses may add per-class members in `_members`."""

    _stock_class: type
    _mixin: "type[Retyped]"

    @classmethod
    def _members(cls, stock: Any) -> dict[str, Any]:
        return {}

    # The stock name leads pickle to the stock class, so say how to find this one.
    def __reduce_ex__(self, protocol: Any) -> tuple:
        stock: type = type(self)
        mixins: list[type[Retyped]] = []
        while issubclass(stock, Retyped):
            mixins.insert(0, stock._mixin)  # noqa: SLF001 - this class's own
            stock = stock._stock_class  # noqa: SLF001 - this class's own
        return (_new, (stock, *mixins), *super().__reduce_ex__(protocol)[2:])


def retype(obj: Any, mixin: type[M]) -> M:
    """Make `obj` an instance of `mixin`, a `Retyped` subclass, as well. A no-op if it is one already.

    The methods of `mixin` take precedence over those of the stock class.
    """
    if not isinstance(obj, mixin):
        obj.__class__ = retyped_class(type(obj), mixin)  # type: ignore[arg-type]  # classes have hashes
    return obj


def overriding(stock: Callable) -> Callable[[Callable], Callable]:
    """Decorator for a method that overrides `stock` and gets all arguments by name.

    Arguments that the installed transformers has renamed go on under their new names. The result keeps the
    signature of `stock`, which trainers and `generate` inspect. The decorated function takes (self, kwargs).
    """
    signature = inspect.signature(stock)
    names = list(signature.parameters)[1:]

    def decorate(body: Callable) -> Callable:
        @functools.wraps(stock)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            if args:
                kwargs.update(zip(names, args, strict=False))
            for old in RENAMED_ARGUMENTS.keys() & kwargs.keys() - set(names):
                kwargs.setdefault(RENAMED_ARGUMENTS[old], kwargs.pop(old))
            return body(self, kwargs)

        # Said once, because `generate` inspects it at every step.
        method.__signature__ = signature  # type: ignore[attr-defined]
        return method

    return decorate


@functools.cache
def retyped_class(stock: Any, mixin: Any) -> Any:
    """The subclass of the `Retyped` class `mixin` and of `stock` that `retype` uses."""
    members = {
        "__module__": stock.__module__,
        "__qualname__": stock.__qualname__,
        "__doc__": stock.__doc__,
        "_stock_class": stock,
        "_mixin": mixin,
    }
    members |= mixin._members(stock)  # noqa: SLF001 - the hook of `Retyped` above
    return type(stock.__name__, (mixin, stock), members)


def _new(stock: Any, *mixins: type[Retyped]) -> Any:
    for mixin in mixins:
        stock = retyped_class(stock, mixin)  # type: ignore[arg-type]  # classes have hashes
    return stock.__new__(stock)
