"""A bound on what a checkpoint's chat template does to write one short conversation."""

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ..errors import UnsupportedModelError

STEPS = 100_000  # of loops, and calls; templates of released models take some dozens
LONGEST = 1 << 24  # characters or items that a multiplication makes, or bits of a power
_CONTENT = [{"type": "image"}, {"type": "text", "text": "x"}]
_CONVERSATION = [{"role": "user", "content": _CONTENT}, {"role": "assistant", "content": _CONTENT[1:]}]


class _TooMuch(Exception):
    """Beyond a bound."""


def check_template(template: Any, source: str) -> None:
    """Refuse a chat template that is none, or that needs too many steps for two short messages.

    Jinja's sandbox bounds one `range`, and not loops in one another, macros that call themselves or products.
    What a template does to other conversations is not bounded.

    Raises:
        UnsupportedModelError: If it is too much, or no Jinja template.
    """
    texts = template.values() if isinstance(template, dict) else [template] if template else []
    for text in texts:
        try:
            _render(text)
        except jinja2.TemplateSyntaxError as error:
            raise UnsupportedModelError(
                f"The chat template of {source!r} is no Jinja template: {error}. Download it again."
            ) from error
        except _TooMuch as error:
            raise UnsupportedModelError(
                f"The chat template of {source!r} needs {error} for two short messages. It may have been "
                "written to take your machine's time; look at its chat_template.jinja."
            ) from error
        except Exception:  # it refuses this conversation, which is no model's fault
            continue


def _render(text: str) -> None:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    steps = itertools.count(1)

    def step() -> None:
        if next(steps) > STEPS:
            raise _TooMuch(f"more than {STEPS} steps")

    def counted(items: Iterable) -> Iterator:
        for item in items:
            step()
            yield item

    def call(context: Any, function: Callable, *args: Any, **kwargs: Any) -> Any:
        step()
        return ImmutableSandboxedEnvironment.call(environment, context, function, *args, **kwargs)

    environment.call = call  # type: ignore[method-assign]
    environment.filters["counted"] = counted
    environment.globals |= {"raise_exception": _refuse, "strftime_now": lambda form: form}
    environment.intercepted_binops = frozenset(("*", "**"))
    environment.binop_table |= {"*": _product, "**": _power}
    tree = environment.parse(text)
    for loop in tree.find_all(nodes.For):
        loop.iter = nodes.Filter(loop.iter, "counted", [], [], None, None)
    code = environment.compile(tree)
    rendered = environment.template_class.from_code(environment, code, environment.make_globals(None))
    for _ in rendered.generate(
        messages=_CONVERSATION, tools=None, documents=None, add_generation_prompt=True
    ):
        step()


def _product(left: Any, right: Any) -> Any:
    for many, times in ((left, right), (right, left)):
        if hasattr(many, "__len__") and isinstance(times, int) and len(many) * times > LONGEST:
            raise _TooMuch(f"a product of more than {LONGEST} items")
    return operator.mul(left, right)


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > LONGEST:
        raise _TooMuch(f"a power of more than {LONGEST} bits")
    return operator.pow(base, exponent)


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


class _Generation(Extension):
    """`{% generation %}`, which marks the answers of assistants for transformers."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """What stands between the two tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
