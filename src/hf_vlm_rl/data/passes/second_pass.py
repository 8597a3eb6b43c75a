"""The second pass: datasets of the records of sources, in `datasets`' own cache."""

import hashlib
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
from datasets import Dataset, Features
from datasets.builder import Key

from ..checked_image import checked
from .first_pass import BATCH, Part, Plan, plan
from .options import Options

FORMAT = 4  # part of the cache's key: raise it when the same files give other rows


def build(parts: list[Part], options: Options) -> Dataset:
    """The rows of all parts, in order.

    Raises:
        DataError: At the first bad row, naming file and line, if `on_error` says so.
    """
    name = re.sub("[^a-z0-9]+", "_", Path(parts[0].source.name).stem.lower())[:40]
    # Which rows are bad may have changed since the good ones came into the cache, with the image files.
    planned = None if options.on_error == "raise" else plan(parts, options)
    builder = RowsBuilder(config_id=f"{name}-{_key(parts, planned)}", parts=parts, options=options)
    builder.config.planned = planned
    builder.download_and_prepare()
    builder.info.features = Features(checked(builder.info.features))  # the cache has `Image`
    return builder.as_dataset(split="train")


def _key(parts: list[Part], planned: Plan | None) -> str:
    """Everything that the rows depend on, but what the image files hold."""
    sources = [(part.source.key(), part.label, repr(part.sample)) for part in parts]
    kept = None if planned is None else planned.kept
    return hashlib.blake2b(repr((FORMAT, sources, kept)).encode(), digest_size=12).hexdigest()


@dataclass
class RowsConfig(datasets.BuilderConfig):
    """What `RowsBuilder` builds; without a plan, it makes one."""

    parts: list[Part] = field(default_factory=list)
    options: Options = field(default_factory=Options)
    planned: Plan | None = None


class RowsBuilder(datasets.ArrowBasedBuilder):
    """Writes what a plan says, in two passes: the types of all columns are known before the first row."""

    BUILDER_CONFIG_CLASS = RowsConfig

    def _info(self) -> datasets.DatasetInfo:
        return datasets.DatasetInfo()

    def _split_generators(self, dl_manager: Any) -> list[datasets.SplitGenerator]:
        planned = self.config.planned or plan(self.config.parts, self.config.options)
        self.info.features = planned.features
        return [datasets.SplitGenerator(name=datasets.Split.TRAIN, gen_kwargs={"kept": planned.kept})]

    def _generate_tables(self, kept: list[bytes]) -> Iterator[tuple[Key, pa.Table]]:
        schema = self.info.features.arrow_schema
        for number, (part, of_part) in enumerate(zip(self.config.parts, kept, strict=True)):
            rows = part.rows(of_part)
            for batch in itertools.count():
                table = list(itertools.islice(rows, BATCH))
                if not table:
                    break
                yield Key(number, batch), pa.Table.from_pylist(table, schema=schema)
