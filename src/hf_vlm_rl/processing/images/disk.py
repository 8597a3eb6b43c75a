"""The directory that processes of a machine share for images and notes, and users, if they like."""

import contextlib
import hashlib
import itertools
import os
import stat
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CACHE_VARIABLE = "HF_VLM_RL_CACHE"
DAY = 24 * 3600  # seconds
SPILL_BYTES = 16 << 30


class Cleaned(NamedTuple):
    """What `Directory.clean` did.

    Attributes:
        files: Number of files removed.
        nbytes: Their size.
        refused: Number of files that belong to other users and could not be removed.
    """

    files: int = 0
    nbytes: int = 0
    refused: int = 0


class Directory:
    """Files named by the 64-bit hash of what they hold, written whole or not at all.

    `kept/` holds what other processes and later runs need, until `clean`. `spilled/` holds what had no room
    in memory, up to a bound.

    Directories get the mode of the root, and files what of it is not for executing: below a root that a group
    or everybody may write to, users share what they store.

    Args:
        root: Created where it is missing.
        spill_bytes: Bound of `spilled/`, in bytes. What was not used for longest goes first.
    """

    def __init__(self, root: str | os.PathLike, spill_bytes: int = SPILL_BYTES):
        self.root = Path(root)
        self.spill_bytes = spill_bytes
        self._spilled_since_sweep = 0

    def probe(self) -> None:
        """Warn if nothing can be written here: it may never be needed."""
        try:
            with self._explained():
                self._make(self.root)
                with tempfile.NamedTemporaryFile(dir=self.root, prefix=".", suffix=".tmp") as file:
                    file.write(b"probe")
        except OSError as error:
            warnings.warn(f"{error}. Without it, images are only kept in memory.", stacklevel=3)

    def find(self, key: int, suffix: str, keep: bool = False) -> Path | None:
        """The file of a key; None if there is none.

        Args:
            key: The hash.
            suffix: What kind of file it is.
            keep: Only look for one that is kept.
        """
        with self._explained():
            for tier in ("kept",) if keep else ("kept", "spilled"):
                path = self._path(key, suffix, tier)
                if path.is_file():
                    return path
        return None

    def read(self, key: int, suffix: str) -> bytes | None:
        """What the file of a key holds; None if there is none. It then counts as used just now."""
        with self._explained(), contextlib.suppress(FileNotFoundError):  # another process may sweep it
            if (path := self.find(key, suffix)) is not None:
                content = path.read_bytes()
                self.mark_as_used(path)
                return content
        return None

    def write(self, key: int, suffix: str, content: bytes, keep: bool = False) -> None:
        """Write the file of a key, in place of one that is there and holds something else.

        Args:
            key: The hash.
            suffix: What kind of file it is.
            content: What it shall hold.
            keep: Write it for other processes and later runs.

        Raises:
            OSError: If it cannot be written; what was there stays.
        """
        with self._explained():
            path = self.find(key, suffix, keep) or self._path(key, suffix, "kept" if keep else "spilled")
            with contextlib.suppress(FileNotFoundError):
                if path.read_bytes() == content:
                    self.mark_as_used(path)
                    return
            self._replace(path, content)
            if not self._is_kept(path):
                self._bound_spilled(len(content))

    def mark_as_used(self, path: Path) -> None:
        """Let a file be among the last to be removed."""
        with contextlib.suppress(OSError):  # another user's, or swept just now
            os.utime(path)

    def clean(self, older_than_days: float) -> Cleaned:
        """Remove what no process read or wrote for some time, kept or spilled.

        Args:
            older_than_days: For how many days.

        Raises:
            OSError: If the directory cannot be read.
        """
        removed = Cleaned()
        for used, size, path in itertools.chain(self._files("kept"), self._files("spilled")):
            if used < time.time() - older_than_days * DAY:
                gone = _remove(path)
                removed = Cleaned(
                    removed.files + gone, removed.nbytes + gone * size, removed.refused + (not gone)
                )
        return removed

    def _path(self, key: int, suffix: str, tier: str) -> Path:
        hexadecimal = name(key)
        return self.root / tier / hexadecimal[:2] / (hexadecimal + suffix)

    def _is_kept(self, path: Path) -> bool:
        return path.is_relative_to(self.root / "kept")

    def _replace(self, path: Path, content: bytes) -> None:
        self._make(path.parent)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                if self._is_kept(path):
                    # The machine may stop at any time: no name may come to stand for half a file, or an empty
                    # one. What is spilled has no use beyond this run, and need not wait for the disk.
                    file.flush()
                    os.fsync(file.fileno())
            self._inherit_mode(temporary, 0o666)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    def _make(self, folder: Path) -> None:
        if folder.is_dir():
            return
        if folder == self.root:
            folder.mkdir(parents=True, exist_ok=True)
            return
        self._make(folder.parent)
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            self._inherit_mode(folder, 0o7777)

    def _inherit_mode(self, path: str | Path, bits: int) -> None:
        with contextlib.suppress(OSError):  # file systems without modes
            os.chmod(path, stat.S_IMODE(self.root.stat().st_mode) & bits)

    def _bound_spilled(self, written: int) -> None:
        self._spilled_since_sweep += written
        if self._spilled_since_sweep < self.spill_bytes // 8:
            return
        self._spilled_since_sweep = 0
        files = sorted(self._files("spilled"))
        total = sum(size for _, size, _ in files)
        for _, size, path in files:
            if total <= self.spill_bytes * 3 // 4:
                break
            total -= size * _remove(path)

    def _files(self, tier: str) -> Iterator[tuple[float, int, str]]:
        """Time of last use, size and path of each file, folder by folder; there may be millions."""
        with self._explained():
            for folder in _entries(self.root / tier):
                for entry in _entries(folder):
                    with contextlib.suppress(FileNotFoundError):  # another process swept it
                        status = entry.stat()
                        yield status.st_mtime, status.st_size, entry.path

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.__cause__ is not None:  # explained already
                raise
            # With the number, which makes it a PermissionError or whatever it was.
            raise OSError(
                error.errno,
                f"Cannot use the image store: {error.strerror or error}. Expected a directory with free "
                f"space that this user may read and write; point ${CACHE_VARIABLE} (or image_store=) at one, "
                "or make room with hf-vlm-rl clean",
                str(self.root),
            ) from error


def default_directory() -> Path:
    """`$HF_VLM_RL_CACHE`, else `hf_vlm_rl` below the Hugging Face cache."""
    if CACHE_VARIABLE in os.environ:
        return Path(os.environ[CACHE_VARIABLE])
    from huggingface_hub.constants import HF_HOME

    return Path(HF_HOME) / "hf_vlm_rl"


def content_hash(*parts: bytes) -> int:
    """A signed 64-bit BLAKE2b hash."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part)
    return int.from_bytes(digest.digest(), "little", signed=True)


def name(key: int) -> str:
    """A hash as 16 hexadecimal digits, as it is written in file names and messages."""
    return f"{key & (1 << 64) - 1:016x}"


def _entries(folder: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
    """What a folder holds; nothing if there is no such folder, or another user may not look into it."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def _remove(path: str) -> bool:
    """Whether a file is gone; one of another user may have to stay."""
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    except OSError:
        return False
    return True
