"""`ImageStore`: tickets (64-bit content hashes) to images, in memory and on disk.

Trainers carry tickets; whoever needs pixels asks the store. A ticket made in this process lives in
memory. One that must outlive the process or reach another one (a `datasets.map` worker, a
dataloader worker, another rank, a cached dataset) is also written to a directory that all
processes of the machine share, under its content hash and atomically.
"""

import contextlib
import hashlib
import json
import os
import struct
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import PIL.Image

from ...errors import TicketError
from .disk import (
    CACHE_VARIABLE,
    default_directory,
)
from .stored import RowNote, StoredImage

GIB = 1 << 30


class ImageStore:
    """Maps tickets to images: a byte-bounded memory tier over a content-addressed directory.

    Args:
        directory: Where images go that other processes need. Default: `$HF_VLM_RL_CACHE`, else
            `hf_vlm_rl` below the Hugging Face cache. Must be on a file system that all ranks see.
        memory_bytes: Bound of the memory tier, in bytes of decoded RGB. Least recently used images
            beyond it move to disk.
        spill_bytes: Bound of the spilled images on disk, in bytes. The oldest go first. Images
            kept by `encode_prompt` do not count and are never removed.
    """

    def __init__(
        self,
        directory: str | os.PathLike | None = None,
        memory_bytes: int = 1 * GIB,
        spill_bytes: int = 16 * GIB,
    ):
        self.directory = Path(directory) if directory is not None else default_directory()
        self.memory_bytes = memory_bytes
        self.spill_bytes = spill_bytes
        self._owner = os.getpid()
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.RLock()
        self._images: OrderedDict[int, PIL.Image.Image] = OrderedDict()
        self._used = 0
        self._notes: dict[int, dict] = {}
        self._texts: dict[bytes, dict] = {}  # see text_prompts
        self._spilled_since_sweep = 0

    # A store is one shared service: copies of a policy keep using it, workers get an empty memory
    # tier over the same directory.
    def __deepcopy__(self, memo: dict) -> Self:
        return self

    def __copy__(self) -> Self:
        return self

    def __getstate__(self) -> dict:
        names = ("directory", "memory_bytes", "spill_bytes")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict) -> None:
        # A worker owns nothing: what it puts goes to disk. Nor does the state name a process, so
        # that `datasets` finds its cache again for a map function that holds a store.
        self.__dict__.update(state, _owner=None)
        self._reset()

    def __len__(self) -> int:
        """Number of images in memory."""
        return len(self._images)

    def put(
        self,
        image: PIL.Image.Image,
        options: Mapping[str, Any] | None = None,
        columns: Mapping[str, Any] | None = None,
        tail: int | None = None,
        keep: bool = False,
        prompt: list[dict] | None = None,
    ) -> int:
        """Store an upright RGB image (see `images.read.load_rgb`) and return its ticket.

        Args:
            image: The image. Equal pixels give equal tickets.
            options: Processor options this image is to be processed with; part of the ticket.
            columns: JSON-like values that travel with the ticket; part of the ticket.
            tail: Prompt tokens after the row's last image token; part of the ticket.
            keep: Also write to disk now, for other processes and later runs.
            prompt: The row's messages without images; part of the ticket.

        Returns:
            A signed 64-bit integer.

        Raises:
            TicketError: If `options`, `columns` or `prompt` cannot be written as JSON.
        """
        shared = keep or self._others_read()
        ticket = image_ticket(image)
        self._remember(ticket, image)
        if shared:
            self._write_image(ticket, image, keep)
        if not options and not columns and tail is None and prompt is None:
            return ticket
        note = {
            "image": ticket,
            "options": dict(options or {}),
            "columns": dict(columns or {}),
            "tail": tail,
            "prompt": prompt,
        }
        alias, text = self._add_note(note)
        if shared:
            self._write(self._path(alias, ".json", keep), text)
        return alias

    def get(self, ticket: int) -> StoredImage:
        """The image of a ticket.

        Raises:
            TicketError: If neither memory nor the directory has it, or the file is damaged.
        """
        note = self._note(ticket)
        if note is None:
            return StoredImage(self._image(ticket))
        image = self._image(note["image"])
        return StoredImage(image, note["options"], note["columns"], note["tail"], note["prompt"])

    def source(self, ticket: int) -> int:
        """The ticket of the same image and options without columns, tail and prompt.

        What is computed from an image is kept under it: rows that ask different things about one
        image have different tickets, and one source.
        """
        note = self._note(ticket)
        if note is None:
            return ticket
        if not note["options"]:
            return note["image"]
        return self._add_note(note | {"columns": {}, "tail": None, "prompt": None})[0]

    def row(self, ticket: int) -> RowNote:
        """What `encode_prompt` noted with a ticket."""
        note = self._note(ticket) or {}
        return RowNote(note.get("columns", {}), note.get("prompt"), note.get("tail"))

    def _add_note(self, note: dict) -> tuple[int, bytes]:
        text = _canonical_json(note)
        alias = _digest(b"note", text)
        with self._lock:
            self._notes[alias] = json.loads(text)  # what other processes will read
        return alias, text

    def _note(self, ticket: int) -> dict | None:
        with self._lock:
            note = self._notes.get(ticket)
        if note is None and (path := self._find(ticket, ".json")) is not None:
            text = path.read_bytes()
            if _digest(b"note", text) != ticket:
                raise TicketError(f"{path} does not hold what ticket {name(ticket)} stands for.")
            note = json.loads(text)
            with self._lock:
                self._notes[ticket] = note
        return note

    def _image(self, ticket: int) -> PIL.Image.Image:
        with self._lock:
            if ticket in self._images:
                self._images.move_to_end(ticket)
                return self._images[ticket]
        path = self._find(ticket, ".png")
        if path is None:
            raise TicketError(
                f"No image for ticket {name(ticket)}: it is neither in memory nor in "
                f"{self.directory}. Expected the store that made the ticket; point ${CACHE_VARIABLE} "
                "(or image_store=) at the same directory, or encode the dataset again."
            )
        try:
            with PIL.Image.open(path) as opened:
                image = opened.convert("RGB")
        except (OSError, SyntaxError, ValueError) as error:
            raise TicketError(f"Cannot read {path} ({error}). Delete it and encode the row again.") from error
        if image_ticket(image) != ticket:
            raise TicketError(
                f"{path} holds another image than its name says. Delete it and encode the row again."
            )
        self._remember(ticket, image)
        return image

    def _remember(self, ticket: int, image: PIL.Image.Image) -> None:
        evicted = []
        with self._lock:
            if ticket in self._images:
                self._images.move_to_end(ticket)
                return
            self._images[ticket] = image
            self._used += image.width * image.height * 3
            while self._used > self.memory_bytes and len(self._images) > 1:
                old_ticket, old = self._images.popitem(last=False)
                self._used -= old.width * old.height * 3
                evicted.append((old_ticket, old))
        for old_ticket, old in evicted:
            self._write_image(old_ticket, old, keep=False)

    def _others_read(self) -> bool:
        # A worker's tickets are resolved by its parent; a rank's, possibly by another rank.
        return os.getpid() != self._owner or int(os.environ.get("WORLD_SIZE", "1")) > 1

    def _path(self, ticket: int, suffix: str, keep: bool) -> Path:
        hexadecimal = name(ticket)
        tier = "kept" if keep else "spilled"
        return self.directory / tier / hexadecimal[:2] / (hexadecimal + suffix)

    def _find(self, ticket: int, suffix: str) -> Path | None:
        for keep in (True, False):
            path = self._path(ticket, suffix, keep)
            if path.is_file():
                return path
        return None

    def _write_image(self, ticket: int, image: PIL.Image.Image, keep: bool) -> None:
        path = self._path(ticket, ".png", keep)
        with contextlib.suppress(OSError):
            os.utime(path)  # not touch(): it would leave an empty file where a sweep was faster
        if path.exists() or self._path(ticket, ".png", keep=True).exists():
            return
        # Level 1: lossless, and several times faster to write than PIL's default.
        self._write(path, lambda file: image.save(file, format="PNG", compress_level=1))
        if not keep:
            self._bound_spill(path.stat().st_size)

    def _write(self, path: Path, content: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                content(file) if callable(content) else file.write(content)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    def _bound_spill(self, written: int) -> None:
        self._spilled_since_sweep += written
        if self._spilled_since_sweep < self.spill_bytes // 8:
            return
        self._spilled_since_sweep = 0
        files = []
        for path in (self.directory / "spilled").rglob("*.png"):
            try:
                files.append((path.stat().st_mtime, path.stat().st_size, path))
            except FileNotFoundError:  # another process swept it
                continue
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self.spill_bytes * 3 // 4:
                break
            path.unlink(missing_ok=True)
            total -= size


def image_ticket(image: PIL.Image.Image) -> int:
    """The ticket of an RGB image: a signed 64-bit BLAKE2b hash of its size and pixels."""
    return _digest(struct.pack("<II", image.width, image.height), image.tobytes())


def name(ticket: int) -> str:
    """A ticket as 16 hexadecimal digits, as it is written in file names and messages."""
    return f"{ticket & (1 << 64) - 1:016x}"


def _digest(*parts: bytes) -> int:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part)
    return int.from_bytes(digest.digest(), "little", signed=True)


def _canonical_json(note: dict) -> bytes:
    try:
        return json.dumps(note, sort_keys=True, ensure_ascii=False).encode()
    except TypeError as error:
        raise TicketError(
            f"The columns {sorted(note['columns'])}, options {sorted(note.get('options', {}))} and the "
            f"messages must be JSON values (str, int, float, bool, None, lists, dicts): {error}."
        ) from error


_store: ImageStore | None = None


def default_store() -> ImageStore:
    """The store of this process."""
    global _store
    if _store is None:
        _store = ImageStore()
    return _store
