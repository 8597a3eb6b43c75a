"""What a small Hub keeps: repositories with branches, commits and pull requests, and large files."""

import hashlib
from dataclasses import dataclass, field

LARGE = (".safetensors", ".png", ".bin")  # what .gitattributes of the Hub's repositories lists


@dataclass(frozen=True)
class Blob:
    """A file: its content and whether it is stored as a large file."""

    content: bytes
    large: bool

    @property
    def oid(self) -> str:
        """The id under which the Hub compares files: SHA-256 of large ones, git's for the others."""
        if self.large:
            return hashlib.sha256(self.content).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(self.content) + self.content).hexdigest()


@dataclass(frozen=True)
class Commit:
    oid: str
    parent: str | None
    message: str
    author: str
    files: dict[str, Blob]


@dataclass
class Repository:
    """One model repository."""

    name: str
    private: bool = False
    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    pull_requests: int = 0

    def __post_init__(self):
        self.branches["main"] = self._add(None, "initial commit", self.owner, {})

    @property
    def owner(self) -> str:
        return self.name.split("/")[0]

    def resolve(self, revision: str) -> Commit | None:
        return self.commits.get(self.branches.get(revision, revision))

    def head(self, branch: str = "main") -> Commit:
        return self.commits[self.branches[branch]]

    def history(self, branch: str = "main") -> list[Commit]:
        """The commits of a branch, the latest first."""
        commits, oid = [], self.branches[branch]
        while oid is not None:
            commits.append(self.commits[oid])
            oid = commits[-1].parent
        return commits

    def commit(
        self, branch: str, message: str, author: str, changed: dict[str, Blob], new: str | None = None
    ):
        """Put files on a branch, or on a new one that starts there; returns the commit."""
        parent = self.branches[branch]
        files = self.commits[parent].files | changed
        self.branches[new or branch] = self._add(parent, message, author, files)
        return self.head(new or branch)

    def open_pull_request(self) -> str:
        self.pull_requests += 1
        return f"refs/pr/{self.pull_requests}"

    def _add(self, parent: str | None, message: str, author: str, files: dict[str, Blob]) -> str:
        content = repr((self.name, parent, message, author, sorted((p, b.oid) for p, b in files.items())))
        oid = hashlib.sha1(content.encode()).hexdigest()
        self.commits[oid] = Commit(oid, parent, message, author, files)
        return oid
