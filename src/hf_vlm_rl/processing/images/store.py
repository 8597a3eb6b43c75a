"""`ImageStore`: tickets (64-bit content hashes) to images, in memory and on disk.

Trainers carry tickets; whoever needs pixels asks the store. A ticket made in this process lives in
memory. One that must outlive the process or reach another one (a `datasets.map` worker, a
dataloader worker, another rank, a cached dataset) is also written to a directory that all
processes of the machine share, under its content hash and atomically.
"""

import contextlib
import io
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import PIL.Image

from ...errors import TicketError
from .disk import CACHE_VARIABLE, SPILL_BYTES, Cleaned, Directory, content_hash, default_directory, name
from .formats import open_image
from .hashes import collision, image_digest, image_ticket
from .lru import ByteBoundedCache
from .notes import TextPrompts
from .stored import RowNote, StoredImage, StoredVideo, as_json

GIB = 1 << 30
# Notes are small beside images; a thousand rows with long prompts are some megabytes.
NOTES_BYTES = GIB // 4
VIDEO = ".video.json"
# SHA-256 hashes of the images in eighty thousand files, which this process has read or written.
VERIFIED_BYTES, VERIFIED_EACH = 16 << 20, 200


class ImageStore:
    """Maps tickets to images: a byte-bounded memory tier over a content-addressed directory.

    Args:
        directory: Where images go that other processes need. Default: `$HF_VLM_RL_CACHE`, else
            `hf_vlm_rl` below the Hugging Face cache. Must be on a file system that all ranks see.
            A warning says if it cannot be written to.
        memory_bytes: Bound of the memory tier, in bytes of decoded RGB. Least recently used images
            beyond it move to disk.
        spill_bytes: Bound of what was moved to disk, in bytes. The oldest go first. Images
            kept by `encode_prompt` do not count; `clean` removes them.

    Attributes:
        disk: The directory.
        text_prompts: Notes about prompts without an image.
    """

    def __init__(
        self,
        directory: str | os.PathLike | None = None,
        memory_bytes: int = 1 * GIB,
        spill_bytes: int = SPILL_BYTES,
    ):
        self._open(default_directory() if directory is None else directory, memory_bytes, spill_bytes)
        self._owner: int | None = os.getpid()
        self.disk.probe()

    def _open(self, directory: str | os.PathLike, memory_bytes: int, spill_bytes: int) -> None:
        self.disk = Directory(directory, spill_bytes)
        self.text_prompts = TextPrompts(self.disk)
        self._images: ByteBoundedCache[int, PIL.Image.Image] = ByteBoundedCache(
            memory_bytes, _rgb_bytes, self._write_image
        )
        self._notes: ByteBoundedCache[int, bytes] = ByteBoundedCache(NOTES_BYTES, len, self._write_note)
        self._videos: ByteBoundedCache[int, bytes] = ByteBoundedCache(NOTES_BYTES, len, self._write_video)
        self._verified: ByteBoundedCache[int, bytes] = ByteBoundedCache(
            VERIFIED_BYTES, lambda _: VERIFIED_EACH
        )

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
            "spill_bytes": self.spill_bytes,
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
            self._write_video(ticket, text)
        return _video(ticket, text)

    def knows(self, ticket: int) -> bool:
        """Whether this store has made or seen a ticket; its image may have gone from memory and disk."""
        held = ticket in self._images or ticket in self._videos or ticket in self._notes
        return held or any(self.disk.find(ticket, suffix) is not None for suffix in (".json", VIDEO, ".png"))

    def holds(self, video: StoredVideo) -> bool:
        """Whether all frames of a video are still in memory or on disk."""
        return all(
            frame in self._images or self.disk.find(frame, ".png") is not None for frame in video.frames
        )

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
            OSError: If this or an older image has to be written and cannot be; no image is lost then.
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
                    self._is_whole(ticket, image)
                image = image.copy()  # the caller may change its own later
                image.info = {}  # profiles and transparency of the file that it came from
            held = self._images.put(ticket, image)
            if held is not image and (held.size, held.tobytes()) != (image.size, image.tobytes()):
                raise collision(ticket)
            image = held
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
        return self._add_note(note, shared, keep)

    def get(self, ticket: int) -> StoredImage:
        """The image or video of a ticket.

        Raises:
            TicketError: If neither memory nor the directory has it, or the file is damaged.
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
            self._write_note(alias, text, keep)
        self._notes.put(alias, text)
        return alias

    def _note(self, ticket: int) -> dict | None:
        if ticket in self._images or ticket in self._videos:
            return None
        text = self._notes.get(ticket)
        if text is None and (text := self._read_text(ticket, b"note", ".json")) is not None:
            self._notes.put(ticket, text)
        return None if text is None else json.loads(text)

    def _content(self, ticket: int) -> PIL.Image.Image | StoredVideo:
        text = self._videos.get(ticket)
        if text is None and ticket not in self._images:
            text = self._read_text(ticket, b"video", VIDEO)
            if text is not None:
                self._videos.put(ticket, text)
        return self._image(ticket) if text is None else _video(ticket, text)

    def _read_text(self, ticket: int, kind: bytes, suffix: str) -> bytes | None:
        text = self.disk.read(ticket, suffix)
        if text is not None and content_hash(kind, text) != ticket:
            raise TicketError(
                f"{self.disk.find(ticket, suffix)} does not hold what ticket {name(ticket)} stands for. "
                "Encode the row again, which writes the file anew."
            )
        return text

    def _keep_video(self, video: StoredVideo) -> None:
        for frame in dict.fromkeys(video.frames):
            self._write_image(frame, self._image(frame), keep=True)
        text = self._videos.get(video.ticket) or self.disk.read(video.ticket, VIDEO)
        if text is None:
            raise TicketError(f"The video of ticket {name(video.ticket)} was deleted. Encode the row again.")
        self._write_video(video.ticket, text, keep=True)

    def _write_video(self, ticket: int, text: bytes, keep: bool = False) -> None:
        self._write_text(ticket, b"video", VIDEO, text, keep)

    def _image(self, ticket: int) -> PIL.Image.Image:
        image = self._images.get(ticket)
        if image is None:
            image = self._images.put(ticket, self._read_image(ticket))
        return image

    def _read_image(self, ticket: int) -> PIL.Image.Image:
        content = self.disk.read(ticket, ".png")
        if content is None:
            raise TicketError(
                f"No image for ticket {name(ticket)}: it is neither in memory nor in "
                f"{self.directory}. Expected the store that made the ticket; point ${CACHE_VARIABLE} "
                "(or image_store=) at the same directory, or encode the dataset again."
            )
        self._verified.discard(ticket)
        try:
            with open_image(io.BytesIO(content)) as opened:
                image = opened.convert("RGB")
        except (OSError, SyntaxError, ValueError) as error:
            raise self._damaged(ticket, "is cut off or no image") from error
        if image_ticket(image) != ticket:
            raise self._damaged(ticket, "holds another image than its name says")
        image.info = {}
        self._verified.put(ticket, image_digest(image))
        return image

    def _damaged(self, ticket: int, how: str) -> TicketError:
        return TicketError(
            f"{self.disk.find(ticket, '.png')} {how}. Encode the row again, which writes the file anew."
        )

    def _others_read(self) -> bool:
        # A worker's tickets are resolved by its parent; a rank's, possibly by another rank.
        return os.getpid() != self._owner or int(os.environ.get("WORLD_SIZE", "1")) > 1

    def _write_note(self, alias: int, text: bytes, keep: bool = False) -> None:
        self._write_text(alias, b"note", ".json", text, keep)

    def _write_text(self, ticket: int, kind: bytes, suffix: str, text: bytes, keep: bool) -> None:
        there = self.disk.read(ticket, suffix)
        if there is not None and there != text and content_hash(kind, there) == ticket:  # else it is damaged
            raise collision(ticket)
        self.disk.write(ticket, suffix, text, keep)

    def _write_image(self, ticket: int, image: PIL.Image.Image, keep: bool = False) -> None:
        path = self.disk.find(ticket, ".png", keep)
        if path is not None and self._is_whole(ticket, image):
            self.disk.mark_as_used(path)
            return
        content = io.BytesIO()
        # Level 1: lossless, and several times faster to write than PIL's default.
        image.save(content, format="PNG", compress_level=1)
        self.disk.write(ticket, ".png", content.getvalue(), keep)
        self._verified.put(ticket, image_digest(image))

    def _is_whole(self, ticket: int, image: PIL.Image.Image) -> bool:
        """Whether the file of a ticket holds `image`; a process reads each file once.

        Raises:
            TicketError: If it holds another image of this ticket.
        """
        held = self._verified.get(ticket)
        if held is None:
            if self.disk.find(ticket, ".png") is None:
                return False
            try:
                held = image_digest(self._read_image(ticket))
            except TicketError:  # damaged
                return False
        if held != image_digest(image):
            raise collision(ticket)
        return True


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
