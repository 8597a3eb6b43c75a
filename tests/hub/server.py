"""A small Hub over HTTP: what the true `huggingface_hub` client needs to push and load a model.

Written after the client's requests and the Hub's documented answers. Xet is not offered, so clients
must have it disabled. Faults make single requests fail.
"""

import base64
import hashlib
import json
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import yaml
from huggingface_hub.repocard import REGEX_YAML_BLOCK

from .card_rules import problems
from .repositories import LARGE, Blob, Commit, Repository

USERS = {"hf_alice_token_of_a_test": "alice", "hf_bob_token_of_a_test": "bob"}
ALICE, BOB = USERS


class Refused(Exception):
    """An answer other than success."""

    def __init__(self, status: int, message: str, code: str | None = None):
        super().__init__(message)
        self.status, self.message, self.code = status, message, code


@dataclass
class Fault:
    """What happens to the next `times` requests that match.

    Attributes:
        request: Regular expression for "METHOD /path".
        status: Answered with; None: the connection is closed in the middle of the request's body.
        times: How often.
        before: Called first, with the hub.
    """

    request: str
    status: int | None = None
    times: int = 1
    before: Callable[["Hub"], None] | None = None


class Hub:
    """The server; a context manager. `url` is its address.

    Attributes:
        repositories: By id.
        objects: Large files by SHA-256.
        requests: "METHOD /path" of every request, in order of arrival.
        received: SHA-256 of every large file that arrived completely, in order.
        faults: To come.
    """

    def __init__(self):
        self.repositories: dict[str, Repository] = {}
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.received: list[str] = []
        self.faults: list[Fault] = []
        self.lock = threading.RLock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": self}))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "Hub":
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *exception) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(self, name: str, files: dict[str, bytes] | None = None, private: bool = False) -> Repository:
        """A repository that is there already."""
        repository = self.repositories[name] = Repository(name, private)
        blobs = {path: Blob(content, path.endswith(LARGE)) for path, content in (files or {}).items()}
        if blobs:
            repository.commit("main", "add files", repository.owner, blobs)
        return repository

    def files(self, name: str, branch: str = "main") -> dict[str, bytes]:
        """Path to content."""
        return {path: blob.content for path, blob in self.repositories[name].head(branch).files.items()}

    def fault(self, line: str) -> Fault | None:
        """The fault that is due for a request; it is used up."""
        with self.lock:
            for fault in self.faults:
                if fault.times and re.search(fault.request, line):
                    fault.times -= 1
                    return fault
        return None


class Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"
    timeout = 20

    def log_message(self, *arguments) -> None:
        pass

    def _handle(self) -> None:
        split = urlsplit(self.path)
        self.query = {key: values[0] for key, values in parse_qs(split.query).items()}
        line = f"{self.command} {split.path}"
        self.hub.requests.append(line)
        fault = self.hub.fault(line)
        if fault is not None and fault.before is not None:
            fault.before(self.hub)
        if fault is not None and fault.status is None and fault.before is None:
            self.rfile.read(min(16, int(self.headers.get("Content-Length", 0))))
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.body = self._read()
        try:
            if fault is not None and fault.status is not None:
                raise Refused(fault.status, f"made to fail with {fault.status}")
            self.user = self._user()
            for method, pattern, answer in ROUTES:
                match = re.fullmatch(pattern, split.path)
                if method == self.command and match:
                    with self.hub.lock:
                        answer(self, *map(unquote, match.groups()))
                    return
            raise Refused(404, f"no route for {line}", "EntryNotFound")
        except Refused as error:
            headers = {"X-Error-Message": error.message} | (
                {"X-Error-Code": error.code} if error.code else {}
            )
            self._send(error.status, {"error": error.message}, headers)

    do_GET = do_HEAD = do_POST = do_PUT = _handle

    def _read(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        content = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            content += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return content

    def _user(self) -> str | None:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and token not in USERS:
            raise Refused(401, "Invalid credentials in Authorization header")
        return USERS.get(token)

    def _send(self, status: int, answer=None, headers: dict[str, str] | None = None) -> None:
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _repository(self, name: str) -> Repository:
        repository = self.hub.repositories.get(name)
        if repository is None or (repository.private and repository.owner != self.user):
            raise Refused(404 if self.user else 401, "Repository not found", "RepoNotFound")
        return repository

    def _writable(self, name: str) -> Repository:
        repository = self._repository(name)
        if self.user is None:
            raise Refused(401, "Invalid username or password.")
        if repository.owner != self.user and "create_pr" not in self.query:
            raise Refused(403, "You don't have the rights to write to this repository")
        return repository

    def _at(self, repository: Repository, revision: str) -> Commit:
        commit = repository.resolve(revision)
        if commit is None:
            raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return commit

    # --- accounts and repositories

    def whoami(self) -> None:
        if self.user is None:
            raise Refused(401, "Invalid username or password.")
        self._send(200, {"type": "user", "name": self.user, "orgs": [], "auth": {"type": "access_token"}})

    def create(self) -> None:
        asked = json.loads(self.body)
        if self.user is None:
            raise Refused(401, "Invalid username or password.")
        owner = asked.get("organization") or self.user
        name = f"{owner}/{asked['name']}"
        if owner != self.user:
            raise Refused(403, f"You don't have the rights to create a model under the namespace {owner!r}")
        if name in self.hub.repositories:
            self._send(409, {"error": "You already created this model repo", "url": f"{self.hub.url}/{name}"})
            return
        self.hub.add(name, private=asked.get("visibility") == "private")
        self._send(200, {"url": f"{self.hub.url}/{name}", "name": name, "id": name})

    def info(self, name: str, revision: str = "main") -> None:
        repository = self._repository(name)
        commit = self._at(repository, revision)
        answer = {
            "_id": name,
            "id": name,
            "modelId": name,
            "private": repository.private,
            "sha": commit.oid,
            "tags": [],
            "siblings": [{"rfilename": path} for path in sorted(commit.files)],
        }
        card = commit.files.get("README.md")
        block = REGEX_YAML_BLOCK.search(card.content.decode()) if card else None
        if block:
            answer["cardData"] = yaml.safe_load(block.group(2))
        self._send(200, answer)

    def tree(self, name: str, revision: str, folder: str = "") -> None:
        files = self._at(self._repository(name), revision).files
        inside = {path: blob for path, blob in files.items() if path.startswith(folder.strip("/"))}
        if folder and not inside:
            raise Refused(404, f"{folder} does not exist", "EntryNotFound")
        self._send(200, [_entry(path, blob) for path, blob in sorted(inside.items())])

    def branch(self, name: str, branch: str) -> None:
        repository = self._writable(name)
        if branch in repository.branches:
            raise Refused(409, f"Reference {branch} already exists")
        repository.branches[branch] = repository.branches["main"]
        self._send(200, {})

    # --- pushing

    def validate(self) -> None:
        found = problems(json.loads(self.body)["content"])
        errors = [{"message": problem} for problem in found]
        self._send(400 if found else 200, {"errors": errors, "warnings": []})

    def preupload(self, name: str, revision: str) -> None:
        files = self._at(self._writable(name), revision).files
        answer = []
        for file in json.loads(self.body)["files"]:
            mode = "lfs" if file["path"].endswith(LARGE) else "regular"
            there = {"oid": files[file["path"]].oid} if file["path"] in files else {}
            answer.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False} | there)
        self._send(200, {"files": answer})

    def batch(self, name: str) -> None:
        objects = []
        for item in json.loads(self.body)["objects"]:
            upload = {"upload": {"href": f"{self.hub.url}/lfs/{item['oid']}", "header": {}}}
            objects.append(item | ({} if item["oid"] in self.hub.objects else {"actions": upload}))
        self._send(200, {"transfer": "basic", "objects": objects})

    def store(self, oid: str) -> None:
        if hashlib.sha256(self.body).hexdigest() != oid:
            raise Refused(400, "the content does not have this hash")
        self.hub.objects[oid] = self.body
        self.hub.received.append(oid)
        self._send(200, {})

    def commit(self, name: str, revision: str) -> None:
        repository = self._writable(name)
        header, *lines = [json.loads(line) for line in self.body.splitlines()]
        self._at(repository, revision)
        if revision not in repository.branches:
            raise Refused(404, f"{revision} is no branch", "RevisionNotFound")
        parent = header["value"].get("parentCommit")
        if parent not in (None, repository.branches[revision]):
            raise Refused(412, "A commit has happened since. Please refresh and try again.")
        changed = dict(self._blob(line) for line in lines)
        reference = repository.open_pull_request() if "create_pr" in self.query else None
        commit = repository.commit(revision, header["value"]["summary"], self.user, changed, reference)
        answer = {"commitOid": commit.oid, "commitUrl": f"{self.hub.url}/{name}/commit/{commit.oid}"}
        if reference:
            answer["pullRequestUrl"] = f"{self.hub.url}/{name}/discussions/{reference.split('/')[-1]}"
        self._send(200, answer)

    def _blob(self, line: dict) -> tuple[str, Blob]:
        value = line["value"]
        if line["key"] == "file":
            return value["path"], Blob(base64.b64decode(value["content"]), False)
        if value["oid"] not in self.hub.objects:
            raise Refused(422, f"the object of {value['path']} was not uploaded")
        return value["path"], Blob(self.hub.objects[value["oid"]], True)

    # --- loading

    def download(self, name: str, revision: str, path: str) -> None:
        commit = self._at(self._repository(name), revision)
        blob = commit.files.get(path)
        headers = {"X-Repo-Commit": commit.oid}
        if blob is None:
            self._send(
                404, {}, headers | {"X-Error-Code": "EntryNotFound", "X-Error-Message": "no such file"}
            )
            return
        self._send(200, blob.content, headers | {"ETag": f'"{blob.oid}"'})


def _entry(path: str, blob: Blob) -> dict:
    entry = {"type": "file", "path": path, "size": len(blob.content), "oid": blob.oid}
    return entry | (
        {"lfs": {"oid": blob.oid, "size": len(blob.content), "pointerSize": 1}} if blob.large else {}
    )


NAME = r"([\w.-]+/[\w.-]+)"
KIND = "(?:models|datasets)"
ROUTES = [
    ("GET", "/api/whoami-v2", Handler.whoami),
    ("POST", "/api/repos/create", Handler.create),
    ("POST", "/api/validate-yaml", Handler.validate),
    ("GET", f"/api/{KIND}/{NAME}", Handler.info),
    ("GET", "/api/models/([^/]+)", Handler.info),  # without a user: there is none
    ("GET", f"/api/datasets/{NAME}", Handler.info),  # there are no datasets
    ("GET", f"/api/{KIND}/{NAME}/revision/([^/]+)", Handler.info),
    ("GET", f"/api/{KIND}/{NAME}/tree/([^/]+)", Handler.tree),
    ("GET", f"/api/{KIND}/{NAME}/tree/([^/]+)/(.+)", Handler.tree),
    ("POST", f"/api/{KIND}/{NAME}/branch/([^/]+)", Handler.branch),
    ("POST", f"/api/{KIND}/{NAME}/preupload/([^/]+)", Handler.preupload),
    ("POST", f"/api/{KIND}/{NAME}/commit/([^/]+)", Handler.commit),
    ("POST", rf"/(?:datasets/)?{NAME}\.git/info/lfs/objects/batch", Handler.batch),
    ("PUT", "/lfs/([0-9a-f]{64})", Handler.store),
    ("GET", f"/(?:datasets/)?{NAME}/resolve/([^/]+)/(.+)", Handler.download),
    ("HEAD", f"/(?:datasets/)?{NAME}/resolve/([^/]+)/(.+)", Handler.download),
]
