"""Repositories in a Hub cache on disk, as huggingface_hub leaves them; read offline by the real client."""

import shutil
from pathlib import Path


def add_commit(cache: Path, repo: str, commit: str, files: Path, branch: str | None = "main") -> Path:
    """Put a directory into the cache as a commit of a repository.

    Args:
        cache: The cache directory.
        repo: Id of the repository.
        commit: 40 hexadecimal digits.
        files: What the commit holds.
        branch: The branch that points to it.

    Returns:
        The snapshot's directory.
    """
    folder = cache / ("models--" + repo.replace("/", "--"))
    snapshot = folder / "snapshots" / commit
    shutil.copytree(files, snapshot)
    (folder / "refs").mkdir(exist_ok=True)
    (folder / "blobs").mkdir(exist_ok=True)
    if branch is not None:
        (folder / "refs" / branch).write_text(commit)
    return snapshot


def commit(number: int) -> str:
    """A commit's name."""
    return f"{number:040x}"
