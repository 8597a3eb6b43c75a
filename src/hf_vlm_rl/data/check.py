"""What is wrong with a dataset, all at once, before a run is started."""

import base64
import itertools
import json
import os
from collections import Counter as Tally
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Unpack

import numpy as np
from datasets.utils import tqdm

from ..errors import DataError, ImageError
from ..processing.images.reference import Reference, is_url
from .any_file import parts_of
from .check_page import MOST, ShownRow, save_page
from .image_facts import ImageFacts, digest_of, image_facts
from .lengths.row_tokens import RowTokens
from .lengths.stand_in import Counter
from .passes.column_types import Columns
from .passes.first_pass import SOURCE, Part
from .passes.json_file import BrokenList, Record
from .passes.options import LoadOptions, Options

BATCH = 256  # rows
THREADS = 8
TEXTS = {"prompt", "completion", "chosen", "rejected", "answer", "solution"}
NOTES = ("rotated", "copy")  # which leave a row as it is


@dataclass(frozen=True)
class Finding:
    """Something about a row.

    Attributes:
        kind: "row" (it cannot be read), "missing", "unreadable", "huge" or "truncated" (an image),
            "duplicate" (images, prompt and answers of an earlier row), "rotated" (by EXIF) or "copy" (an
            image with the bytes of another file). The last two are notes: the row can be used.
        place: File with line, index, row or sample.
        image: Path of the image; "" for the row as a whole and for stored bytes without a name.
        reason: What is wrong.
    """

    kind: str
    place: str
    image: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.place}: {self.image}{': ' if self.image else ''}{self.reason}"


@dataclass
class DataReport:
    """What `check_data` found; `str()` of it is a list.

    Attributes:
        findings: In the order of the rows.
        rows: Number of rows.
        clean: Number of rows that can be used.
        images: Number of images with different bytes that were decoded.
        unseen: Number of images at http(s) addresses, which are not fetched.
        tokens: Of the prompt of each clean row, by its place, if a processing class was given.
    """

    findings: list[Finding] = field(default_factory=list)
    rows: int = 0
    clean: int = 0
    images: int = 0
    unseen: int = 0
    tokens: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [str(finding) for finding in self.findings]
        kinds = Tally(finding.kind for finding in self.findings)
        counted = ", ".join(f"{number} {kind}" for kind, number in kinds.items()) or "nothing"
        lines.append(
            f"{self.clean} of {self.rows} rows can be used; {self.images} images decoded; found: {counted}"
        )
        if self.unseen:
            lines.append(f"{self.unseen} images at http(s) addresses were not fetched")
        if self.tokens:
            longest = max(self.tokens, key=self.tokens.__getitem__)
            median, most = np.percentile(list(self.tokens.values()), (50, 95))
            lines.append(
                f"tokens of a prompt: {median:.0f} at the median, {most:.0f} at 95 %, "
                f"{self.tokens[longest]} at most ({longest})"
            )
        return "\n".join(lines)


def check_data(
    source: str | os.PathLike,
    *,
    split: str | None = "train",
    question: str | None = None,
    image_folder: str | os.PathLike | None = None,
    num_proc: int | None = None,
    processing_class: Any = None,
    write: str | os.PathLike | None = None,
    page: str | os.PathLike | None = None,
    **options: Unpack[LoadOptions],
) -> DataReport:
    """Read every row and decode every image, and list what is wrong, with file and line.

    Args:
        source: What `load_any` reads; `split`, `question` and `image_folder` are its own.
        split: Of a saved dataset, a folder or a dataset on the Hub.
        question: For a folder that has a folder of images for each class.
        image_folder: Paths of images are relative to it.
        num_proc: Processes that decode. Default: none but this one, with 8 threads.
        processing_class: A policy's; counts the tokens of each prompt, images included.
        write: A .jsonl for the rows that can be used: messages, images as absolute paths (those without a
            file as `data:` URLs), and every other field. `load_any` reads it.
        page: An .html for a page with pictures of up to 200 rows, those with findings first.
        **options: As for `load_any`. `on_error`, `check_images` and `verify_images` make no difference here.

    Raises:
        DataError: If the source cannot be read at all, or a row to write holds what JSON has no form for.
        ValueError: If an argument is out of range, or `write` or `page` cannot be written or is a file that
            is read.
    """
    if num_proc is not None and num_proc < 1:
        raise ValueError(f"Got {num_proc=}. Expected 1 process or more.")
    options["on_error"] = "skip"
    parts = parts_of(source, split, question, image_folder, Options(**options))
    read = [source, *(part.source.name for part in parts)]
    count = None if processing_class is None else RowTokens(Counter(processing_class, False), False, {})
    pool: Executor = ThreadPoolExecutor(THREADS) if num_proc is None else ProcessPoolExecutor(num_proc)
    shown: dict[bool, list[ShownRow]] = {True: [], False: []}  # by whether something was found
    with (
        pool,
        _replaced(write, "write", ".jsonl", read) as clean,
        _replaced(page, "page", ".html", read) as pictures,
        tqdm(desc="Checking rows", unit=" rows") as bar,
    ):
        check = _Check(parts, pool)
        for record, row, others in check.rows():
            bar.update()
            findings = check.findings(record, row, others)
            if count is not None and not _faults(findings):
                try:
                    check.report.tokens[record.place] = count(check.report.rows, row)
                except (DataError, ImageError) as error:
                    findings.append(Finding("row", record.place, "", str(error)))
            check.report.rows += 1
            check.report.findings += findings
            if not _faults(findings):
                check.report.clean += 1
                if clean is not None:
                    clean.write(_line(record, row))
            if pictures is not None and len(alike := shown[bool(findings)]) < MOST:
                columns = row if isinstance(row, dict) else {}
                tokens = check.report.tokens.get(record.place)
                alike.append(ShownRow(record.place, columns, tuple(map(str, findings)), tokens))
        if pictures is not None:
            save_page(pictures, (shown[True] + shown[False])[:MOST], str(check.report).splitlines())
    return check.report


@contextmanager
def _replaced(path: Any, argument: str, suffix: str, read: Sequence[Any]) -> Iterator[IO[str] | None]:
    """A file beside `path` that takes its place once all is written; None for no path.

    Raises:
        ValueError: If the path has another suffix, no folder, or is one of the files that are `read`.
    """
    if path is None:
        yield None
        return
    target, beside = Path(path), Path(f"{path}.part")
    there = [each for each in (target, beside) if each.exists()]
    sources = [*map(Path, read), *(file for each in read if there for file in Path(each).rglob(f"*{suffix}"))]
    bad = target.suffix != suffix or target.is_dir() or not target.parent.is_dir()
    if bad or any(each.exists() and each.samefile(ours) for each in sources for ours in there):
        raise ValueError(
            f"Got {argument}={str(path)!r}. Expected another file than the source that ends with {suffix}, "
            "in a folder that is there."
        )
    try:
        with open(beside, "w", encoding="utf-8") as file:
            yield file
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


class _Check:
    """The rows of parts, and what is found of each; images are decoded once, by a pool."""

    def __init__(self, parts: list[Part], pool: Executor):
        self.parts, self.pool, self.report = parts, pool, DataReport()
        self.columns = Columns()
        for part in parts:
            kinds = part.source.reader.kinds | ({} if part.label is None else {SOURCE: "string"})
            self.columns.declare(kinds, part.source.name)
        self.answers = {name for name, kind in self.columns.kinds.items() if kind == "unanswered"}
        self.facts: dict[str | bytes, ImageFacts] = {}
        self.files: dict[bytes, str] = {}  # digest of an image to the first path that has it
        self.noted: set[str] = set()
        self.earlier: dict[tuple, str] = {}

    def rows(self) -> Iterator[tuple[Record, Any, dict[str, Any]]]:
        """Records with their rows, or with the DataError of one, and the fields that readers only pass on.

        Their images are decoded before.
        """
        for part in self.parts:
            records = self._records(part)
            while batch := list(itertools.islice(records, BATCH)):
                rows = [(record, *self._read(part, record)) for record, taken in batch if taken]
                unseen = {
                    _key(image): image
                    for _, row, _ in rows
                    if isinstance(row, dict)
                    for image in row["images"]
                    if _key(image) not in self.facts and not _is_address(image)
                }
                self.facts.update(
                    zip(unseen, self.pool.map(image_facts, unseen.values(), chunksize=8), strict=True)
                )
                yield from rows

    def _records(self, part: Part) -> Iterator[tuple[Record, bool]]:
        """Records, and whether they are taken; the last is a DataError if what follows cannot be read."""
        try:
            yield from zip(part.source.records(), part.taken(), strict=False)
        except BrokenList as error:
            place, reason = error.args
            yield Record(place, DataError(reason)), True
        except DataError as error:
            reason = str(error).removeprefix(part.source.name).lstrip(", ")
            yield Record(part.source.name, DataError(reason)), True

    def _read(self, part: Part, record: Record) -> tuple[Any, dict[str, Any]]:
        try:
            columns, others = part.row(record.value)
        except DataError as error:
            return error, {}
        return columns | others, others

    def findings(self, record: Record, row: Any, others: dict[str, Any]) -> list[Finding]:
        """What is to be said of a row. One that can be used so far widens the types of columns."""
        if isinstance(row, DataError):
            return [Finding("row", record.place, "", str(row))]
        findings, identity = [], []
        for image in row["images"]:
            path = image["path"] or ""
            if _is_address(image):
                self.report.unseen += 1
                identity.append(path)
                continue
            facts = self.facts[_key(image)]
            identity.append(facts.digest or path)
            if facts.fault is not None:
                findings.append(Finding(facts.fault, record.place, path, facts.reason))
                continue
            first = self.files.setdefault(facts.digest, path)
            if path not in self.noted:
                self.noted.add(path)
                if facts.rotated:
                    findings.append(Finding("rotated", record.place, path, facts.reason))
                known = image["bytes"] is not None or os.path.realpath(first) == os.path.realpath(path)
                if path and not known:
                    findings.append(Finding("copy", record.place, path, f"the same bytes as {first}"))
        self.report.images = len(self.files)
        if not _faults(findings):
            try:
                self.columns.add(others, record.place)
            except DataError as error:
                findings.append(Finding("row", record.place, "", str(error)))
        texts = {name: value for name, value in row.items() if name in TEXTS | self.answers}
        key = (*identity, json.dumps(texts, sort_keys=True, default=str))
        if not _faults(findings) and (earlier := self.earlier.setdefault(key, record.place)) != record.place:
            findings.append(
                Finding("duplicate", record.place, "", f"images and texts are those of {earlier}")
            )
        return findings


def _faults(findings: list[Finding]) -> bool:
    return any(finding.kind not in NOTES for finding in findings)


def _key(image: Reference) -> str | bytes:
    return image["path"] or "" if image["bytes"] is None else digest_of(image["bytes"])


def _is_address(image: Reference) -> bool:
    return image["bytes"] is None and is_url(image["path"] or "")


def _line(record: Record, row: Mapping[str, Any]) -> str:
    images = [
        "data:image;base64," + base64.b64encode(image["bytes"]).decode()
        if image["bytes"] is not None
        else image["path"]
        for image in row["images"]
    ]
    try:
        return json.dumps({**row, "images": images}, ensure_ascii=False) + "\n"
    except TypeError as error:
        raise DataError(
            f"{record.place}: {error}. Leave the field out of the clean list by drop=..."
        ) from error
