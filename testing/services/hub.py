"""A small local server that plays a Hugging Face Hub's side of an upload.

It answers what `huggingface_hub` asks for: a repository's state, its making, which files are large,
where large files go (Git LFS), and the commit. Large files that it has are not asked for again.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from testing.services.servers import answering

#: Bytes of the largest file that is part of a commit itself.
LARGE = 1_000


@dataclass
class Repository:
    private: bool
    #: Name → content.
    files: dict[str, bytes] = field(default_factory=lambda: {".gitattributes": b""})
    commits: int = 0


@dataclass
class Hub:
    """The state of the server; tests read and change it."""

    #: Token → owners that it may write for.
    tokens: dict[str, set[str]]
    url: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    #: SHA-256 → large file that has arrived.
    objects: dict[str, bytes] = field(default_factory=dict)
    #: "METHOD path" and token of each request.
    seen: list[tuple[str, str]] = field(default_factory=list)
    #: Number of large files that are taken before the connection is cut; None: all.
    room: int | None = None
    #: Path → status, said instead of an answer.
    trouble: dict[str, int] = field(default_factory=dict)

    def answer(self, method: str, path: str, token: str, body: bytes) -> tuple[int, Any]:
        """Return status and answer to a request."""
        self.seen.append((f"{method} {path}", token))
        for part, status in self.trouble.items():
            if part in path:
                return status, {"error": f"trouble, Bearer {token}"}
        if method == "PUT":
            return self._take(path.rsplit("/", 1)[1], body)
        if token not in self.tokens:
            return 401, {"error": "Invalid credentials in Authorization header"}
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if path == "/api/repos/create":
            return self._make(json.loads(body), self.tokens[token])
        found = re.fullmatch(r"/(?:api/models/)?([^/]+/[^/]+?)(?:\.git)?(/.*)?", path)
        if not found or found[1] not in self.repositories:
            return 404, {"error": "Repository not found"}
        if method == "POST" and found[1].split("/")[0] not in self.tokens[token]:
            return 403, {"error": "You don't have the rights to write"}
        return self._about(found[1], found[2] or "", body)

    def _make(self, told: dict[str, Any], owners: set[str]) -> tuple[int, Any]:
        name = f"{told['organization']}/{told['name']}"
        if told["organization"] not in owners:
            return 403, {"error": "You don't have the rights to create a model under this namespace"}
        if name in self.repositories:
            return 409, {"error": "You already created this model repo"}
        private = told.get("private", told.get("visibility") == "private")
        self.repositories[name] = Repository(private)
        return 200, {"url": f"{self.url}/{name}"}

    def _about(self, name: str, what: str, body: bytes) -> tuple[int, Any]:
        repository = self.repositories[name]
        sha = f"{repository.commits:040x}"
        if not what or what.startswith("/revision/"):
            files = [{"rfilename": one} for one in sorted(repository.files)]
            told = {"id": name, "private": repository.private, "siblings": files, "sha": sha}
            return 200, told | {"tags": [], "downloads": 0, "likes": 0}
        if what == "/preupload/main":
            asked = json.loads(body)["files"]
            return 200, {"files": [self._mode(repository, one) for one in asked]}
        if what == "/info/lfs/objects/batch":
            return 200, {"transfer": "basic", "objects": self._wanted(json.loads(body)["objects"])}
        if what == "/commit/main":
            lines = [json.loads(line) for line in body.splitlines()]
            return self._commit(name, [one for one in lines if one["key"] != "header"])
        return 404, {"error": "Not found"}

    def _mode(self, repository: Repository, one: dict[str, Any]) -> dict[str, Any]:
        mode, there = "lfs" if one["size"] > LARGE else "regular", repository.files.get(one["path"])
        oid = None
        if there is not None:
            blob = b"blob %d\0" % len(there) + there
            large = len(there) > LARGE
            oid = hashlib.sha256(there).hexdigest() if large else hashlib.sha1(blob).hexdigest()
        return {"path": one["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid}

    def _wanted(self, asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
        told = []
        for one in asked:
            to = {"upload": {"href": f"{self.url}/objects/{one['oid']}"}}
            told.append(one if one["oid"] in self.objects else one | {"actions": to})
        return told

    def _take(self, oid: str, body: bytes) -> tuple[int, Any]:
        if self.room is not None and len(self.objects) >= self.room:
            return 507, {"error": "no room"}
        assert hashlib.sha256(body).hexdigest() == oid
        self.objects[oid] = body
        return 200, {}

    def _commit(self, name: str, lines: list[dict[str, Any]]) -> tuple[int, Any]:
        repository = self.repositories[name]
        for line in lines:
            told = line["value"]
            large = line["key"] == "lfsFile"
            content = self.objects[told["oid"]] if large else base64.b64decode(told["content"])
            repository.files[told["path"]] = content
        repository.commits += 1
        oid = f"{repository.commits:040x}"
        return 200, {"commitOid": oid, "commitUrl": f"{self.url}/{name}/commit/{oid}"}


@contextmanager
def serving(tokens: dict[str, set[str]]) -> Iterator[Hub]:
    """Serve on a free port of the loopback address."""
    hub = Hub(tokens)

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
            status, said = hub.answer(self.command, self.path.split("?")[0], token, body)
            sent = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            if status == 404 and self.path.startswith("/api/models/"):
                self.send_header("X-Error-Code", "RepoNotFound")
            self.end_headers()
            self.wfile.write(sent)

        do_GET = do_POST = do_PUT = _answer  # noqa: N815 - names that http.server calls

        def log_message(self, format: str, *args: Any) -> None:
            """Write nothing to stderr."""

    with answering(Handler) as hub.url:
        yield hub
