"""The directory in which processes of a machine, and users if they like, share images and notes."""

import contextlib
import errno
import hashlib
import os
import re
import socket
import stat
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CACHE_VARIABLE = "HF_VLM_RL_CACHE"
SPILL_VARIABLE = "HF_VLM_RL_SPILL_BYTES"
DAY = 24 * 3600  # seconds
SPILL_BYTES = 16 << 30
# A file in the root of every store. `clean` removes nothing from a folder that lacks it.
MARKER = "hf_vlm_rl_store"
TIERS = ("kept", "spilled")
File = tuple[int, str]  # a key and the kind of its file
# A folder is named by a file's first two digits; a file that is being written has mkstemp's name.
_FOLDER = re.compile("[0-9a-f]{2}")
_BY_HANDLE = os.unlink in os.supports_dir_fd  # not on Windows, where links need an administrator
_FILE = re.compile(r"[0-9a-f]{16}(\.[a-z]+)+|\.\w{8}\.tmp")


class Cleaned(NamedTuple):
    """What `Directory.clean` removed; `refused` files belong to other users and could not be removed."""

    files: int = 0
    nbytes: int = 0
    refused: int = 0


class Directory:
    """Files named by the 64-bit hash of what they hold, written whole or not at all.

    `kept/` holds what other processes and later runs need, until `clean`. `spilled/` holds what had no room
    in memory, up to a bound.

    Directories get the mode of the root, and files the same without execution: below a root that a group or
    everybody may write to, users share what they store. Whoever may write there may also leave links: the
    store follows none below its root, and removes only files whose names have the form that it gives them.

    Args:
        root: Created where it is missing.
        spill_bytes: Bound of `spilled/`, in bytes. What was not used for longest goes first. Default:
            `$HF_VLM_RL_SPILL_BYTES`, else 16 GiB.

    Raises:
        ValueError: If `$HF_VLM_RL_SPILL_BYTES` is asked for and no number above 0.
    """

    def __init__(self, root: str | os.PathLike, spill_bytes: int | None = None):
        self.root = Path(root)
        self.spill_bytes = _spill_bound() if spill_bytes is None else spill_bytes
        self._spilled_since_sweep = 0

    def probe(self) -> None:
        """Warn, without an error, if nothing can be written here: a run may never need to."""
        try:
            with self._explained():
                self._make(self.root)
                self._mark()
                with tempfile.NamedTemporaryFile(dir=self.root, prefix=".", suffix=".tmp") as file:
                    file.write(b"probe")
        except OSError as error:
            warnings.warn(f"{error}. Without it, images are only kept in memory.", stacklevel=3)

    def find(self, key: int, suffix: str, keep: bool = False) -> Path | None:
        """The file of a key; None if there is none."""
        with self._explained():
            for tier in TIERS[:1] if keep else TIERS:
                path = self._path(key, suffix, tier)
                if path.is_file() and not any(map(os.path.islink, (path, *path.parents[:2]))):
                    return path
        return None

    def read(self, key: int, suffix: str) -> bytes | None:
        """The content of a key's file, which then counts as used just now; None if there is none."""
        with self._explained(), contextlib.suppress(FileNotFoundError):  # another process may sweep it
            if (path := self.find(key, suffix)) is not None:
                content = path.read_bytes()
                self.mark_as_used(path)
                return content
        return None

    def write(self, key: int, suffix: str, content: bytes, keep: bool = False) -> None:
        """Write the file of a key, in place of one with other content; `keep` it for later runs.

        Raises:
            OSError: If it cannot be written; an older file stays.
        """
        with self._explained():
            path = self.find(key, suffix, keep)  # no link, and nothing whose reading would wait
            with contextlib.suppress(FileNotFoundError):
                if path is not None and path.read_bytes() == content:
                    self.mark_as_used(path)
                    return
            path = path or self._path(key, suffix, "kept" if keep else "spilled")
            self._replace(path, content)
            if not self._is_kept(path):
                self._bound_spilled(len(content))

    def is_empty(self) -> bool:
        """Whether it has no file of an image or a note."""
        return not any(True for tier in TIERS for _ in self._files(tier))

    def mark_as_used(self, path: Path) -> None:
        """Let a file be among the last to be removed."""
        with contextlib.suppress(OSError):  # another user's, or swept just now
            os.utime(path)

    @contextlib.contextmanager
    def locked(self, key: int) -> Iterator[None]:
        """Inside the block, no other process or thread of this machine is inside one with such a key.

        On Windows and where the file system has no locks, they may be.
        """
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(ImportError, OSError):
                import fcntl

                folder = self._path(key, "", "spilled").parent
                self._make(folder)
                handle = stack.enter_context(_opened(folder))  # no file that somebody could replace by a link
                fcntl.flock(handle, fcntl.LOCK_EX)
                stack.callback(fcntl.flock, handle, fcntl.LOCK_UN)  # a forked child has the handle, too
            yield

    def clean(self, older_than_days: float) -> Cleaned:
        """Remove what no process read or wrote for so many days, kept or spilled.

        Raises:
            FileNotFoundError: If the directory is no store: it lacks the marker that every store has.
            OSError: If the directory cannot be read.
        """
        if not (self.root / MARKER).is_file():
            raise FileNotFoundError(
                f"{self.root} has no file {MARKER}. Expected the directory of an ImageStore. Nothing was "
                f"removed. If it is a store of an earlier version, ImageStore({str(self.root)!r}) marks it."
            )
        removed = Cleaned()
        for tier in TIERS:
            for used, size, path in self._files(tier):
                if used < time.time() - older_than_days * DAY:
                    gone = self._remove(path)
                    removed = Cleaned(
                        removed.files + gone, removed.nbytes + gone * size, removed.refused + (not gone)
                    )
        return removed

    def _path(self, key: int, suffix: str, tier: str) -> Path:
        return self.root / file_path(key, suffix, tier)

    def _is_kept(self, path: Path) -> bool:
        return path.is_relative_to(self.root / "kept")

    def _replace(self, path: Path, content: bytes) -> None:
        if link := next(filter(os.path.islink, path.parents[:2]), None):
            raise OSError(errno.ELOOP, f"{link} is a link, and a store follows none")
        self._make(path.parent)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                if _BY_HANDLE:
                    self._inherit_mode(file.fileno(), 0o666)
                if self._is_kept(path):
                    # If the machine stops, no name may lead to half a file or an empty one. A spilled file
                    # has no use beyond this run and need not wait for the disk.
                    file.flush()
                    os.fsync(file.fileno())
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
            if _BY_HANDLE:
                with _opened(folder) as handle:
                    self._inherit_mode(handle, 0o7777)

    def _mark(self) -> None:
        with contextlib.suppress(FileExistsError):
            handle = os.open(self.root / MARKER, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as file:
                file.write("An image store: `hf-vlm-rl clean` removes old files of kept and spilled.\n")
                if _BY_HANDLE:
                    self._inherit_mode(file.fileno(), 0o666)

    def _inherit_mode(self, handle: int, bits: int) -> None:
        """Give an open file or folder the root's mode; by handle, as its name may be a user's link by now."""
        with contextlib.suppress(OSError):  # file systems without modes
            os.fchmod(handle, stat.S_IMODE(self.root.stat().st_mode) & bits)

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
            total -= size * self._remove(path)

    def _files(self, tier: str) -> Iterator[tuple[float, int, Path]]:
        """Time of last use, size and path of each file of a tier, folder by folder; there may be millions."""
        root = self.root / tier
        with self._explained():
            for folder in () if root.is_symlink() else _entries(root):
                if not _FOLDER.fullmatch(folder.name) or not folder.is_dir(follow_symlinks=False):
                    continue
                for entry in _entries(folder):
                    if _FILE.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                        with contextlib.suppress(FileNotFoundError):  # another process swept it
                            status = entry.stat(follow_symlinks=False)
                            yield status.st_mtime, status.st_size, root / folder.name / entry.name

    def _remove(self, path: Path) -> bool:
        """Remove a file, and return whether it is gone; one of another user may have to stay."""
        try:
            with contextlib.suppress(FileNotFoundError):
                if not _BY_HANDLE:
                    path.unlink()
                    return True
                # The folder's name may be a link by now: remove the file from the folder that was opened.
                with _opened(path.parents[1]) as tier, _opened(path.parent.name, tier) as folder:
                    os.unlink(path.name, dir_fd=folder)
        except OSError:
            return False
        return True

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.__cause__ is not None:  # explained already
                raise
            # With `errno`, OSError makes an error of the same class, such as PermissionError.
            raise OSError(
                error.errno,
                f"Cannot use the image store: {error.strerror or error}, on {node()}. Expected a "
                f"directory with free space that this user may read and write; point ${CACHE_VARIABLE} (or "
                "image_store=) at one, or make room with hf-vlm-rl clean",
                str(self.root),
            ) from error


def default_directory() -> Path:
    """`$HF_VLM_RL_CACHE`, else `hf_vlm_rl` below the Hugging Face cache."""
    if CACHE_VARIABLE in os.environ:
        return Path(os.environ[CACHE_VARIABLE])
    from huggingface_hub.constants import HF_HOME

    return Path(HF_HOME) / "hf_vlm_rl"


def file_path(key: int, suffix: str, tier: str = "kept") -> str:
    """Where the file of a key is, below the root of a store."""
    return f"{tier}/{name(key)[:2]}/{name(key)}{suffix}"


def node() -> str:
    """Which process of which machine this is, for messages, such as "rank 1 of host gpu-7"."""
    rank = os.environ.get("RANK")
    return f"host {socket.gethostname()}" if rank is None else f"rank {rank} of host {socket.gethostname()}"


def content_hash(*parts: bytes) -> int:
    """A signed 64-bit BLAKE2b hash."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part)
    return int.from_bytes(digest.digest(), "little", signed=True)


def name(key: int) -> str:
    """A hash as 16 hexadecimal digits, as it is written in file names and messages."""
    return f"{key & (1 << 64) - 1:016x}"


def _spill_bound() -> int:
    bound = os.environ.get(SPILL_VARIABLE, str(SPILL_BYTES))
    if not bound.isdecimal() or int(bound) == 0:
        raise ValueError(f"Got {SPILL_VARIABLE}={bound!r}. Expected a whole number of bytes above 0.")
    return int(bound)


def _entries(folder: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
    """What a folder holds; nothing if there is no such folder, or another user may not look into it."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


@contextlib.contextmanager
def _opened(folder: str | os.PathLike[str], inside: int | None = None) -> Iterator[int]:
    """The handle of a folder; a link is refused."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=inside)
    try:
        yield handle
    finally:
        os.close(handle)
