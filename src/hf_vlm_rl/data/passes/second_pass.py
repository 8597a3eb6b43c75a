"""Datasets of the records of sources: in `datasets`' own cache, or streamed."""

import hashlib
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
from datasets import Dataset, IterableDataset
from datasets.builder import Key

from .first_pass import BATCH, Part, Plan, Shard, plan, rows
from .image_check import ImageCheck
from .options import BuildOptions
from .report import LoadReport, OnError

FORMAT = 3  # part of the cache's key: raise it when the same files give other rows


def build(parts: list[Part], options: BuildOptions) -> Dataset | IterableDataset:
    """The rows of all parts, in order.

    Raises:
        DataError: At the first bad row, naming file and line, if `on_error` says so.
    """
    name = re.sub("[^a-z0-9]+", "_", Path(parts[0].source.name).stem.lower())[:40]
    check = ImageCheck(options.check_images, options.verify_images)
    # Which rows are bad may have changed since the good ones came into the cache, with the image files.
    planned = None if options.on_error == "raise" else plan(parts, check, options.on_error)
    builder = RowsBuilder(
        cache_dir=None if options.cache_dir is None else str(options.cache_dir),
        config_id=f"{name}-{_key(parts, options, planned)}",
        parts=parts,
        check=check,
        on_error=options.on_error,
    )
    builder.config.planned = planned
    if options.streaming:
        dataset = builder.as_streaming_dataset(split="train")
    else:
        builder.download_and_prepare(num_proc=options.num_proc)
        dataset = builder.as_dataset(split="train")
    report = LoadReport(**json.loads(dataset.info.description)) if planned is None else planned.report
    report.fill(options.report)
    return dataset


def _key(parts: list[Part], options: BuildOptions, planned: Plan | None) -> str:
    """Everything that the rows depend on, but what the image files hold."""
    sources = [(part.source.key(), part.label, repr(part.sample)) for part in parts]
    how = (options.on_error == "raise", options.check_images, options.verify_images)
    digest = hashlib.blake2b(repr((FORMAT, sources, how)).encode(), digest_size=12)
    for shard in planned.shards if planned is not None else ():
        digest.update(repr((shard.part, shard.start)).encode() + shard.keep.tobytes())
    return digest.hexdigest()


@dataclass
class RowsConfig(datasets.BuilderConfig):
    """What `RowsBuilder` builds."""

    parts: list[Part] = field(default_factory=list)
    check: ImageCheck = field(default_factory=lambda: ImageCheck(exist=False, verify=False))
    on_error: OnError = "raise"
    planned: Plan | None = None

    def plan(self) -> Plan:
        """The plan; the first call reads all files."""
        return self.planned or plan(self.parts, self.check, self.on_error)


class RowsBuilder(datasets.ArrowBasedBuilder):
    """Writes what a plan says, in two passes: the types of all columns are known before the first row."""

    BUILDER_CONFIG_CLASS = RowsConfig

    def _info(self) -> datasets.DatasetInfo:
        return datasets.DatasetInfo()

    def _split_generators(self, dl_manager: Any) -> list[datasets.SplitGenerator]:
        plan = self.config.plan()
        self.info.features = plan.features
        self.info.description = json.dumps(asdict(plan.report), ensure_ascii=False)
        return [datasets.SplitGenerator(name=datasets.Split.TRAIN, gen_kwargs={"shards": plan.shards})]

    def _generate_tables(self, shards: list[Shard]) -> Iterator[tuple[Key, pa.Table]]:
        schema = self.info.features.arrow_schema
        for number, shard in enumerate(shards):
            values = rows(self.config.parts, shard)
            for batch in itertools.count():
                table = list(itertools.islice(values, BATCH))
                if not table:
                    break
                yield Key(number, batch), pa.Table.from_pylist(table, schema=schema)
