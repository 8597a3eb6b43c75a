"""An origin: where a store finds what it lacks, such as a folder of the cluster or a bucket on the Hub."""

import contextlib
import io
from collections.abc import Iterator, Mapping
from typing import Any

import fsspec
import PIL.Image
from fsspec.implementations.local import LocalFileSystem
from huggingface_hub.errors import EntryNotFoundError

from ...errors import TicketError
from .disk import Directory, File, content_hash, file_path, name
from .hashes import image_ticket
from .kinds import IMAGE, TEXT_HASHES
from .read import PIXELS_VARIABLE, max_image_pixels

ORIGIN_VARIABLE = "HF_VLM_RL_ORIGIN"
TEXT_BYTES = 16 << 20  # of a note; prompts and columns are in it


class Origin:
    """A folder with the layout of a store, at any address that `fsspec` reads: `hf://buckets/user/images`.

    Nothing in it is trusted: what is fetched has a bounded size, has to be what its ticket stands for, and is
    a PNG or JSON.
    """

    def __init__(self, url: str):
        self.url = url.rstrip("/")

    def file_system(self) -> tuple[Any, str]:
        """The file system and the folder in it; `fsspec` keeps one for each process and thread."""
        with self._explained():
            return fsspec.core.url_to_fs(self.url)

    def fetch(self, ticket: int, *suffixes: str) -> tuple[str, bytes] | None:
        """The first file of a ticket that is there, of these kinds: its kind and content; None without one.

        Raises:
            TicketError: If the origin cannot be asked, or has something else under the ticket's name.
        """
        files, folder = self.file_system()
        with self._explained():
            for _ in range(2):
                for suffix in suffixes:
                    content = self._read(files, f"{folder}/{file_path(ticket, suffix)}", suffix)
                    if content is None:
                        continue
                    if why := fault(ticket, suffix, content):
                        raise TicketError(
                            f"The file {file_path(ticket, suffix)} of the origin {self.url} {why}; it was "
                            "not used. Expected what push_images wrote: delete it there and push again."
                        )
                    return suffix, content
                files.invalidate_cache()  # a listing from before somebody pushed
        return None

    def names(self) -> set[str]:
        """Paths of all files that are there.

        Raises:
            TicketError: If the origin cannot be asked.
        """
        files, folder = self.file_system()
        with self._explained(), contextlib.suppress(FileNotFoundError):
            files.invalidate_cache()
            return {path[len(folder) :].lstrip("/") for path in files.find(folder)}
        return set()

    def write(self, contents: Mapping[File, bytes]) -> None:
        """Write files, each whole or not at all.

        Raises:
            Exception: What the file system raises.
        """
        files, folder = self.file_system()
        local = Directory(folder) if isinstance(files, LocalFileSystem) else None
        for (ticket, suffix), content in contents.items():
            if local is not None:
                local.write(ticket, suffix, content, keep=True)
            else:
                files.pipe_file(f"{folder}/{file_path(ticket, suffix)}", content)

    def _read(self, files: Any, path: str, suffix: str) -> bytes | None:
        try:
            facts = files.info(path)
            if facts["type"] != "file":
                return None
            with files.open(path, "rb") as file:  # its size may have been told wrongly
                return file.read(size_limit(suffix) + 1)
        except FileNotFoundError as error:
            cause = error.__cause__
            # aiohttp, an extra, tells a status; file systems have no common word for what is not there.
            absent = isinstance(cause, FileNotFoundError | EntryNotFoundError | None)
            if absent or getattr(cause, "status", None) == 404:
                return None
            raise  # so says `fsspec` also of a server that does not answer, and of a repository

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except TicketError:
            raise
        except Exception as error:  # file systems have no base of their errors
            raise TicketError(
                f"Cannot ask the origin {self.url} for images: {error.__cause__ or error}. Expected a folder "
                f"or an address that this machine reads, in {ORIGIN_VARIABLE} or ImageStore(origin=...)."
            ) from error


def size_limit(suffix: str) -> int:
    """The most bytes that a file of an origin may have; an image may be as good as not compressed."""
    return 4 * max_image_pixels() + (1 << 20) if suffix == IMAGE else TEXT_BYTES


def fault(ticket: int, suffix: str, content: bytes) -> str | None:
    """Why a file is not what its ticket stands for, or is larger than others may send; None if it is fine."""
    if len(content) > size_limit(suffix):
        return f"has more than {size_limit(suffix)} bytes"
    if suffix != IMAGE:
        own = content_hash(TEXT_HASHES[suffix], content) == ticket
        return None if own else f"does not hold what {name(ticket)} stands for"
    try:
        with PIL.Image.open(io.BytesIO(content), formats=("PNG",)) as opened:
            if opened.width * opened.height > max_image_pixels():
                return f"has {opened.width} x {opened.height} pixels, more than {PIXELS_VARIABLE} allows"
            own = image_ticket(opened.convert("RGB")) == ticket
    except Exception:  # PIL's parsers raise whatever they meet
        return "is cut off or no PNG"
    return None if own else "holds another image than its name says"
