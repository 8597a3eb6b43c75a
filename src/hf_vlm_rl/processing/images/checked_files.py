"""The files of a store: none is used that does not hold what its ticket stands for."""

import io
import warnings

import PIL.Image

from ...errors import TicketError
from .disk import CACHE_VARIABLE, Directory, content_hash, name, node
from .formats import open_image
from .hashes import collision, image_digest, image_ticket
from .kinds import IMAGE, TEXT_HASHES
from .lru import ByteBoundedCache
from .origin import ORIGIN_VARIABLE, Origin, fault

# SHA-256 hashes of the images in eighty thousand files, which this process has read or written.
VERIFIED_BYTES, VERIFIED_EACH = 16 << 20, 200
FETCHED_BYTES = 64 << 20


class CheckedFiles:
    """Images and texts in a directory, by their tickets; what it lacks is fetched from `origin`."""

    def __init__(self, disk: Directory, origin: Origin | None = None):
        self.disk, self.origin = disk, origin
        # For a disk that refuses to write, or sweeps at once; what is dropped can be fetched again.
        self._fetched: ByteBoundedCache[tuple[int, str], bytes] = ByteBoundedCache(FETCHED_BYTES, len)
        self._verified: ByteBoundedCache[int, bytes] = ByteBoundedCache(
            VERIFIED_BYTES, lambda _: VERIFIED_EACH
        )

    def bring(self, ticket: int, *suffixes: str) -> bool:
        """Whether there is a file of a ticket, of one of these kinds; the origin's is fetched first.

        Raises:
            TicketError: As `Origin.fetch`.
        """
        if self._is_here(ticket, suffixes):
            return True
        if self.origin is None:
            return False
        with self.disk.locked(ticket):
            if self._is_here(ticket, suffixes):  # another process of this machine was faster
                return True
            file = self.origin.fetch(ticket, *suffixes)
            if file is None:
                return False
            self._fetched.put((ticket, file[0]), file[1])
            try:
                self.disk.write(ticket, *file)
            except OSError as error:
                warnings.warn(
                    f"{error}. What is fetched from {self.origin.url} stays in memory.", stacklevel=2
                )
        return True

    def read_image(self, ticket: int) -> PIL.Image.Image:
        """The RGB image of a ticket.

        Raises:
            TicketError: If there is no such file, or it is damaged.
        """
        content = self._read(ticket, IMAGE)
        if content is None:
            raise self.missing(ticket)
        self._verified.discard(ticket)
        try:
            with open_image(io.BytesIO(content)) as opened:
                image = opened.convert("RGB")
        except PIL.Image.DecompressionBombError as error:  # another process allows more than this one
            path = self.disk.find(ticket, IMAGE)
            raise TicketError(
                f"{path}: {error} Raise PIL.Image.MAX_IMAGE_PIXELS in this process, too."
            ) from error
        except (OSError, SyntaxError, ValueError) as error:
            raise self._damaged(ticket, IMAGE, "is cut off or no image") from error
        if image_ticket(image) != ticket:
            raise self._damaged(ticket, IMAGE, "holds another image than its name says")
        image.info = {}
        self._verified.put(ticket, image_digest(image))
        return image

    def write_image(self, ticket: int, image: PIL.Image.Image, keep: bool = False) -> None:
        """Write an image, unless its file holds it.

        Raises:
            OSError: If it cannot be written.
            TicketError: If the file holds another image of this ticket.
        """
        path = self.disk.find(ticket, IMAGE, keep)
        if path is not None and self.is_whole(ticket, image):
            self.disk.mark_as_used(path)
            return
        content = io.BytesIO()
        # Level 1: lossless, and several times faster to write than PIL's default.
        image.save(content, format="PNG", compress_level=1)
        self.disk.write(ticket, IMAGE, content.getvalue(), keep)
        self._verified.put(ticket, image_digest(image))

    def is_whole(self, ticket: int, image: PIL.Image.Image) -> bool:
        """Whether the file of a ticket holds `image`; a process reads each file once.

        Raises:
            TicketError: If it holds another image of this ticket.
        """
        held = self._verified.get(ticket)
        if held is None:
            if not self._is_here(ticket, (IMAGE,)):
                return False
            try:
                held = image_digest(self.read_image(ticket))
            except TicketError:  # damaged
                return False
        if held != image_digest(image):
            raise collision(ticket)
        return True

    def read_text(self, ticket: int, suffix: str) -> bytes | None:
        """The text of a ticket; None if there is none.

        Raises:
            TicketError: If its file is damaged.
        """
        text = self._read(ticket, suffix)
        if text is not None and content_hash(TEXT_HASHES[suffix], text) != ticket:
            raise self._damaged(ticket, suffix, f"does not hold what {name(ticket)} stands for")
        return text

    def write_text(self, ticket: int, suffix: str, text: bytes, keep: bool = False) -> None:
        """Write a text.

        Raises:
            OSError: If it cannot be written.
            TicketError: If its file holds another text of this ticket.
        """
        there = self.disk.read(ticket, suffix)
        if there is not None and there != text and content_hash(TEXT_HASHES[suffix], there) == ticket:
            raise collision(ticket)  # otherwise it is damaged
        self.disk.write(ticket, suffix, text, keep)

    def content(self, ticket: int, suffix: str) -> bytes:
        """The content of a file as other machines may get it.

        Raises:
            TicketError: If there is none, it is damaged, or larger than others take.
        """
        content = self._read(ticket, suffix)
        if content is None:
            raise self.missing(ticket)
        if why := fault(ticket, suffix, content):
            raise self._damaged(ticket, suffix, why)
        return content

    def missing(self, ticket: int, what: str = "No image for ticket") -> TicketError:
        """The error that says which machine lacks what a ticket stands for; `what` begins it."""
        empty = ", which holds nothing at all" if self.disk.is_empty() else ""
        place = f"{self.disk.root.absolute()}{empty}"
        push = "call push_images(policy.processing_class, rows) on the machine that encoded the rows"
        if self.origin is not None:
            return TicketError(
                f"{what} {name(ticket)} on {node()}: it is neither in memory nor in {place}, nor at the "
                f"origin {self.origin.url}. Expected it there: {push}."
            )
        return TicketError(
            f"{what} {name(ticket)} on {node()}: it is neither in memory nor in {place}. Whoever encodes "
            "rows keeps their images on its own machine, while a shared cache of `datasets` hands the rows "
            f"to all machines. Expected the store that made the ticket: point ${CACHE_VARIABLE} (or "
            f"image_store=) at a directory that all machines share, or set ${ORIGIN_VARIABLE} and {push}, or "
            "give each machine its own $HF_DATASETS_CACHE and encode the dataset there."
        )

    def _is_here(self, ticket: int, suffixes: tuple[str, ...]) -> bool:
        return any(
            (ticket, suffix) in self._fetched or self.disk.find(ticket, suffix) is not None
            for suffix in suffixes
        )

    def _read(self, ticket: int, suffix: str) -> bytes | None:
        content = self.disk.read(ticket, suffix)
        return self._fetched.get((ticket, suffix)) if content is None else content

    def _damaged(self, ticket: int, suffix: str, how: str) -> TicketError:
        return TicketError(
            f"{self.disk.find(ticket, suffix)} {how}. Encode the row again, which writes the file anew."
        )
