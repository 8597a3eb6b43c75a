"""Answers in JSON that must fit a schema."""

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from .base import RowReward, need
from .completions import extract_answer, strip_fence


@dataclass(frozen=True)
class JSONSchemaReward(RowReward):
    """1 if the answer is JSON that fits a schema, bare or in a code fence.

    Needs jsonschema. NaN and Infinity are no JSON, and numbers of 1e309 and more, which no float holds, are
    not read. A `pattern` or `uniqueItems` of the schema runs on what the model wrote, at its own cost.

    Columns: none.
    Range: 0, `parsed` or 1.
    Malformed: 0, for no JSON; `parsed` for JSON that does not fit.

    Args:
        schema: A JSON schema.
        parsed: Credit for JSON that does not fit, in [0, 1].
        tag: Where the answer stands, see `extract_answer`; None for the whole completion.

    Raises:
        ImportError: If jsonschema is not installed.
        ValueError: If the schema is none, or refers to what is not in it: nothing is fetched.
    """

    schema: Mapping[str, Any]
    parsed: float = 0.0
    tag: str | None = "answer"

    def __post_init__(self) -> None:
        _check(self.schema)

    def targets(self, columns: dict[str, Any], rows: int) -> list:
        """Every row counts."""
        return [True] * rows

    def parse(self, text: str) -> tuple[Any] | None:
        """The decoded JSON, in a tuple, as it may be null."""
        answer = extract_answer(text, self.tag)
        for bare in (answer, strip_fence(answer)):  # a string in JSON may hold a fence
            with suppress(ValueError, RecursionError):  # thousands of digits, thousands of brackets
                return (json.loads(bare, parse_constant=_refuse, parse_float=_finite, parse_int=_finite),)
        return None

    def score(self, parsed: tuple[Any], target: Any) -> float:
        """1, or the credit for JSON."""
        registry = need("referencing", "jsonschema").Registry()
        validator = need("jsonschema", "jsonschema").validators.validator_for(self.schema)
        try:
            # An empty registry: nothing is fetched.
            fits = validator(self.schema, registry=registry).is_valid(parsed[0])
        except RecursionError:
            fits = False
        return 1.0 if fits else self.parsed


def _check(schema: Mapping[str, Any]) -> None:
    """Refuse what is no schema, in the whole and in each part that it refers to."""
    referencing, drafts = need("referencing", "jsonschema"), need("referencing.jsonschema", "jsonschema")
    dialect = drafts.specification_with(schema.get("$schema", ""), default=drafts.DRAFT202012)
    _check_form(schema, schema)
    whole = dialect.create_resource(schema)
    parts, seen = [(whole, referencing.Registry().resolver_with_root(whole))], {id(schema)}
    while parts:
        part, resolver = parts.pop()
        # A part with an `$id` of its own is where the references inside it begin.
        parts += [(inner, resolver.in_subresource(inner)) for inner in part.subresources()]
        for key in ("$ref", "$dynamicRef"):
            reference = part.contents.get(key) if isinstance(part.contents, Mapping) else None
            if reference is None:
                continue
            try:
                resolved = resolver.lookup(reference)
            except referencing.exceptions.Unresolvable as error:
                raise ValueError(
                    f"Got a schema with the reference {reference!r}, which is not in it. Expected '#/...' "
                    "and what it names inside the schema."
                ) from error
            if id(resolved.contents) not in seen:
                seen.add(id(resolved.contents))
                _check_form(resolved.contents, schema)
                parts.append((dialect.create_resource(resolved.contents), resolved.resolver))


def _check_form(part: Any, schema: Mapping[str, Any]) -> None:
    jsonschema = need("jsonschema", "jsonschema")
    validator = jsonschema.validators.validator_for(schema)
    try:
        validator.check_schema(part, format_checker=validator.FORMAT_CHECKER)
    except jsonschema.SchemaError as error:
        raise ValueError(
            f"Got a schema that is none: {error.message} at {error.json_path}. Expected a JSON schema."
        ) from error


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _finite(number: str) -> int | float:
    """A number that a float can hold, as comparisons of the schema need it."""
    if not math.isfinite(value := float(number)):
        raise ValueError(f"{number:.40} is too large")
    return value if "." in number or "e" in number.lower() else int(number)
