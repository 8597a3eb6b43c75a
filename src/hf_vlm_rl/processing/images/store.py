"""`ImageStore`: tickets (64-bit content hashes) to images, in memory and on disk.

Trainers carry tickets; whoever needs pixels asks the store. A ticket made in this process lives in
memory. One that must outlive the process or reach another one (a `datasets.map` worker, a
dataloader worker, another rank, a cached dataset) is also written to a directory that all
processes of the machine share, under its content hash and atomically.
"""

import contextlib
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import PIL.Image

from ...errors import TicketError
from .checked_files import CheckedFiles
from .disk import Cleaned, Directory, content_hash, default_directory, name
from .hashes import collision, image_ticket
from .kinds import IMAGE, NOTE, VIDEO
from .lru import ByteBoundedCache
from .notes import TextPrompts
from .origin import ORIGIN_VARIABLE, Origin
from .stored import RowNote, StoredImage, StoredVideo, as_json

GIB = 1 << 30
# Notes are small beside images; a thousand rows with long prompts are some megabytes.
NOTES_BYTES = GIB // 4


class ImageStore:
    """Maps tickets to images: a byte-bounded memory tier over a content-addressed directory.

    Args:
        directory: Where images go that other processes need. Default: `$HF_VLM_RL_CACHE`, else
            `hf_vlm_rl` below the Hugging Face cache. Must be on a file system that all ranks see.
            A warning says if it cannot be written to.
        memory_bytes: Bound of the memory tier, in bytes of decoded RGB. Least recently used images
            beyond it move to disk.
        spill_bytes: Bound of what was moved to disk, in bytes. The oldest go first. Images
            kept by `encode_prompt` do not count; `clean` removes them. Default: `$HF_VLM_RL_SPILL_BYTES`,
            else 16 GiB.
        origin: Where to fetch, once for each machine, what `directory` lacks: a folder that all machines see,
            or an address that `fsspec` reads, such as `hf://buckets/user/images`. `push_images` fills it, and
            the directory of another store is one. Default: `$HF_VLM_RL_ORIGIN`, else there is none.

    Attributes:
        disk: The directory.
        files: What is in it, each compared with its ticket.
        text_prompts: Notes about prompts without an image.
    """

    def __init__(
        self,
        directory: str | os.PathLike | None = None,
        memory_bytes: int = 1 * GIB,
        spill_bytes: int | None = None,
        origin: str | os.PathLike | None = None,
    ):
        directory = default_directory() if directory is None else directory
        self._open(directory, memory_bytes, spill_bytes, None if origin is None else os.fspath(origin))
        self._owner: int | None = os.getpid()
        self.disk.probe()

    def _open(
        self, directory: str | os.PathLike, memory_bytes: int, spill_bytes: int | None, origin: str | None
    ) -> None:
        self._spill_bytes, self._origin = spill_bytes, origin
        url = os.environ.get(ORIGIN_VARIABLE) if origin is None else origin
        self.disk = Directory(directory, spill_bytes)
        self.files = CheckedFiles(self.disk, Origin(url) if url else None)
        self.text_prompts = TextPrompts(self.files)
        self._images: ByteBoundedCache[int, PIL.Image.Image] = ByteBoundedCache(
            memory_bytes, _rgb_bytes, self.files.write_image
        )
        self._notes: ByteBoundedCache[int, bytes] = ByteBoundedCache(NOTES_BYTES, len, self._write_note)
        self._videos: ByteBoundedCache[int, bytes] = ByteBoundedCache(NOTES_BYTES, len, self._write_video)

    # A store is one shared service: copies of a policy keep using it, workers get an empty memory
    # tier over the same directory.
    def __deepcopy__(self, memo: dict) -> Self:
        return self

    def __copy__(self) -> Self:
        return self

    def __getstate__(self) -> dict:
        return {
            "directory": self.directory,
            "memory_bytes": self.memory_bytes,
            # What the environment says is not part of a dataset's hash.
            "spill_bytes": self._spill_bytes,
            "origin": self._origin,
        }

    def __setstate__(self, state: dict) -> None:
        # A worker owns nothing: what it puts goes to disk. The state names no process either: `datasets`
        # hashes it with a map function that holds a store, and must find its own cache again.
        self._open(**state)
        self._owner = None

    def __len__(self) -> int:
        """Number of images in memory."""
        return len(self._images)

    @property
    def directory(self) -> Path:
        """Where images go that other processes need."""
        return self.disk.root

    @property
    def memory_bytes(self) -> int:
        """Bound of the memory tier, in bytes."""
        return self._images.limit_bytes

    @property
    def spill_bytes(self) -> int:
        """Bound of what was moved to disk, in bytes."""
        return self.disk.spill_bytes

    def put_frames(self, frames: Iterable[PIL.Image.Image], metadata: Mapping[str, Any]) -> StoredVideo:
        """Store the sampled frames of a video, one after the other.

        Args:
            frames: Upright RGB images of one size. Only one of them needs to be in memory at a time.
            metadata: As in `StoredVideo`, JSON-like.

        Returns:
            The video, whose ticket is a hash of frames and metadata.

        Raises:
            OSError: As `put`.
        """
        tickets = [self.put(frame) for frame in frames]
        text = json.dumps({"frames": tickets, "metadata": dict(metadata)}, sort_keys=True).encode()
        ticket = content_hash(b"video", text)
        self._videos.put(ticket, text)
        if self._others_read():
            with self._else_in_memory():
                self._write_video(ticket, text)
        return _video(ticket, text)

    def knows(self, ticket: int) -> bool:
        """Whether this store has made or seen a ticket; its image may have gone from memory and disk."""
        held = ticket in self._images or ticket in self._videos or ticket in self._notes
        return held or self.files.bring(ticket, NOTE, VIDEO, IMAGE)

    def holds(self, video: StoredVideo) -> bool:
        """Whether all frames of a video are still in memory or on disk."""
        return all(frame in self._images or self.files.bring(frame, IMAGE) for frame in video.frames)

    def is_whole(self, ticket: int) -> bool:
        """Whether `get` will find a ticket's note and image, of which nothing is read but the note."""
        note = self._note(ticket)
        image = ticket if note is None else note["image"]
        held = image in self._images or image in self._videos
        return held or self.files.bring(image, IMAGE, VIDEO)

    def frame(self, ticket: int) -> PIL.Image.Image:
        """A frame of a `StoredVideo`.

        Raises:
            TicketError: As `get`.
        """
        return self._image(ticket)

    def put(
        self,
        image: PIL.Image.Image | StoredVideo,
        options: Mapping[str, Any] | None = None,
        columns: Mapping[str, Any] | None = None,
        tail: int | None = None,
        keep: bool = False,
        prompt: list[dict] | None = None,
    ) -> int:
        """Store an upright RGB image (see `images.read.load_rgb`) and return its ticket.

        Args:
            image: The image, or a video of `put_frames`. Equal pixels give equal tickets.
            options: Processor options this image is to be processed with; part of the ticket.
            columns: JSON-like values that travel with the ticket; part of the ticket.
            tail: Prompt tokens after the row's last image token; part of the ticket.
            keep: Also write to disk now, for other processes and later runs.
            prompt: The row's messages without images; part of the ticket.

        Returns:
            A signed 64-bit integer.

        Raises:
            TicketError: If `options`, `columns` or `prompt` cannot be written as JSON; or if the store has
                another image of the same ticket, which happens only if somebody searched for one.
            OSError: If this or an older image has to be written and cannot be; no image is lost then. A rank
                that has room in memory goes on with a warning instead, unless `keep`.
        """
        shared = keep or self._others_read()
        if isinstance(image, StoredVideo):
            ticket = image.ticket
            if keep:
                self._keep_video(image)
        else:
            ticket = image_ticket(image)
            if ticket not in self._images:
                with contextlib.suppress(OSError):  # the store's files cannot be read
                    self.files.is_whole(ticket, image)
                image = image.copy()  # the caller may change its own later
                image.info = {}  # profiles and transparency of the file that it came from
            held = self._images.put(ticket, image)
            if held is not image and (held.size, held.tobytes()) != (image.size, image.tobytes()):
                raise collision(ticket)
            image = held
            if shared:
                with self._else_in_memory(keep):
                    self.files.write_image(ticket, image, keep)
        if not options and not columns and tail is None and prompt is None:
            return ticket
        note = {
            "image": ticket,
            "options": dict(options or {}),
            "columns": dict(columns or {}),
            "tail": tail,
            "prompt": prompt,
        }
        return self._add_note(note, shared, keep)

    def get(self, ticket: int) -> StoredImage:
        """The image or video of a ticket.

        Raises:
            TicketError: If neither memory nor the directory nor the origin has it, or the file is damaged.
        """
        note = self._note(ticket)
        if note is None:
            return StoredImage(image=self._content(ticket))
        return StoredImage(**note | {"image": self._content(note["image"])})

    def source(self, ticket: int) -> int:
        """The ticket of the same image and options without columns, tail and prompt.

        What is computed from an image is cached under it: rows that ask different things about one
        image have different tickets, and one source.
        """
        note = self._note(ticket)
        if note is None:
            return ticket
        if not note["options"]:
            return note["image"]
        return self._add_note(note | {"columns": {}, "tail": None, "prompt": None})

    def files_of(self, ticket: int) -> list[tuple[int, str]]:
        """Ticket and kind of each file that a ticket needs on another machine.

        Raises:
            TicketError: As `get`.
        """
        note = self._note(ticket)
        content = self._content(ticket if note is None else note["image"])
        own = [] if note is None else [(ticket, NOTE)]
        if isinstance(content, StoredVideo):
            return [*own, (content.ticket, VIDEO), *((frame, IMAGE) for frame in content.frames)]
        return [*own, (image_ticket(content), IMAGE)]

    def row(self, ticket: int) -> RowNote:
        """What `encode_prompt` noted with a ticket."""
        note = self._note(ticket)
        return RowNote() if note is None else RowNote(note["columns"], note["prompt"], note["tail"])

    def clean(self, older_than_days: float) -> Cleaned:
        """Remove images and notes from the directory that no process used for some time.

        A dataset that was encoded with them and is used again must be encoded again.

        Args:
            older_than_days: For how many days.
        """
        return self.disk.clean(older_than_days)

    def _add_note(self, note: dict, shared: bool = False, keep: bool = False) -> int:
        text = as_json(note)
        alias = content_hash(b"note", text)
        if self._notes.get(alias) not in (None, text):
            raise collision(alias)
        if shared:
            with self._else_in_memory(keep):
                self._write_note(alias, text, keep)
        self._notes.put(alias, text)
        return alias

    def _note(self, ticket: int) -> dict | None:
        if ticket in self._images or ticket in self._videos:
            return None
        text = self._notes.get(ticket)
        if text is None:
            self.files.bring(ticket, NOTE, IMAGE, VIDEO)
            if (text := self.files.read_text(ticket, NOTE)) is not None:
                self._notes.put(ticket, text)
        return None if text is None else json.loads(text)

    def _content(self, ticket: int) -> PIL.Image.Image | StoredVideo:
        text = self._videos.get(ticket)
        if text is None and ticket not in self._images:
            self.files.bring(ticket, IMAGE, VIDEO)
            text = self.files.read_text(ticket, VIDEO)
            if text is not None:
                self._videos.put(ticket, text)
        return self._image(ticket) if text is None else _video(ticket, text)

    def _keep_video(self, video: StoredVideo) -> None:
        for frame in dict.fromkeys(video.frames):
            self.files.write_image(frame, self._image(frame), keep=True)
        text = self._videos.get(video.ticket) or self.files.read_text(video.ticket, VIDEO)
        if text is None:
            raise TicketError(f"The video of ticket {name(video.ticket)} was deleted. Encode the row again.")
        self._write_video(video.ticket, text, keep=True)

    def _write_video(self, ticket: int, text: bytes, keep: bool = False) -> None:
        self.files.write_text(ticket, VIDEO, text, keep)

    def _image(self, ticket: int) -> PIL.Image.Image:
        image = self._images.get(ticket)
        if image is None:
            self.files.bring(ticket, IMAGE)
            image = self._images.put(ticket, self.files.read_image(ticket))
        return image

    def _others_read(self) -> bool:
        # A worker's tickets are resolved by its parent; a rank's, possibly by another rank.
        return os.getpid() != self._owner or int(os.environ.get("WORLD_SIZE", "1")) > 1

    @contextlib.contextmanager
    def _else_in_memory(self, keep: bool = False) -> Iterator[None]:
        """Let a rank go on whose disk refuses what its memory has; a worker's memory ends with it."""
        try:
            yield
        except OSError as error:
            if keep or os.getpid() != self._owner:
                raise
            warnings.warn(
                f"{error}. The images of this process stay in its memory, where no other process finds "
                f"them, and the run ends with an error beyond {self.memory_bytes / GIB:g} GiB of them "
                "(ImageStore(memory_bytes=...)).",
                stacklevel=4,
            )

    def _write_note(self, alias: int, text: bytes, keep: bool = False) -> None:
        self.files.write_text(alias, NOTE, text, keep)


def _video(ticket: int, text: bytes) -> StoredVideo:
    content = json.loads(text)
    return StoredVideo(ticket, tuple(content["frames"]), content["metadata"])


def _rgb_bytes(image: PIL.Image.Image) -> int:
    return image.width * image.height * 3


_stores: dict[Path, ImageStore] = {}


def default_store() -> ImageStore:
    """The store of this process in the default directory."""
    directory = default_directory()
    if directory not in _stores:
        _stores.setdefault(directory, ImageStore(directory))  # two threads at once get the same store
    return _stores[directory]
