"""Answers in JSON that must fit a schema."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .base import RowReward, need
from .completions import extract_answer, strip_fence


@dataclass(frozen=True)
class JSONSchemaReward(RowReward):
    """1 if the answer is JSON that fits a schema, bare or in a code fence.

    Needs jsonschema. NaN and Infinity are no JSON. A `pattern` or `uniqueItems` of the schema runs on what
    the model wrote, at its own cost.

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
        jsonschema = need("jsonschema", "jsonschema")
        try:
            jsonschema.validators.validator_for(self.schema).check_schema(self.schema)
        except jsonschema.SchemaError as error:
            raise ValueError(
                f"Got a schema that is none: {error.message} at {error.json_path}. Expected a JSON schema."
            ) from error
        _check_references(self.schema)

    def targets(self, columns: dict[str, Any], rows: int) -> list:
        """Every row counts."""
        return [True] * rows

    def parse(self, text: str) -> tuple[Any] | None:
        """The decoded JSON, in a tuple, as it may be null."""
        try:
            return (json.loads(strip_fence(extract_answer(text, self.tag)), parse_constant=_refuse),)
        except (ValueError, RecursionError):  # thousands of digits, thousands of brackets
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


def _check_references(schema: Mapping[str, Any]) -> None:
    referencing, drafts = need("referencing", "jsonschema"), need("referencing.jsonschema", "jsonschema")
    resource = referencing.Resource.from_contents(schema, default_specification=drafts.DRAFT202012)
    resolver = referencing.Registry().with_resource("", resource).resolver()
    parts: list[Any] = [schema]
    while parts:
        part = parts.pop()
        reference = part.get("$ref") if isinstance(part, Mapping) else None
        if isinstance(reference, str):
            try:
                resolver.lookup(reference)
            except referencing.exceptions.Unresolvable as error:
                raise ValueError(
                    f"Got a schema with the reference {reference!r}, which is not in it. Expected '#/...' "
                    "and what it names inside the schema."
                ) from error
        parts += part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else ()


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
