"""Names of a package that are loaded on first use."""

import ast
import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import resolve_name
from typing import Any


def loaded_on_use(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package.

    Its names stand once, as imports below `if TYPE_CHECKING:`, where editors and type checkers see them
    too, and this is called in the branch below. The names are read from the source of the package; each
    import runs when somebody asks for its name.

    Args:
        package: Its `__name__`.
    """
    source = ast.parse(inspect.getsource(sys.modules[package]))
    (for_type_checkers,) = (statement for statement in source.body if isinstance(statement, ast.If))
    homes = {
        name.name: resolve_name("." * statement.level + (statement.module or ""), package)
        for statement in for_type_checkers.body
        if isinstance(statement, ast.ImportFrom)
        for name in statement.names
    }
    names = sorted(homes)

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return __getattr__, names.copy, names
