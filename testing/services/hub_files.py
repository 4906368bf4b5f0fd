"""A small local server that plays a Hugging Face Hub's side of downloads of files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from testing.services.servers import answering

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Files:
    """The state of the server; tests read and change it."""

    #: owner/name → name of a file → content.
    repositories: dict[str, dict[str, bytes]]
    commit: str = COMMIT
    url: str = ""
    #: Name of a file → what is sent in its place; its size and digest are still the content's.
    sent: dict[str, bytes] = field(default_factory=dict)
    #: "METHOD path" of each request.
    seen: list[str] = field(default_factory=list)


@contextmanager
def serving(repositories: dict[str, dict[str, bytes]]) -> Iterator[Files]:
    """Serve on a free port of the loopback address."""
    files = Files(repositories)

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            path = self.path.split("?")[0]
            files.seen.append(f"{self.command} {path}")
            if api := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/revision/[^/]+)?", path):
                return self._repository(api[1])
            file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
            if file is None or file[1] not in files.repositories:
                return self._missing("RepoNotFound")
            if file[2] not in ("main", files.commit):
                return self._missing("RevisionNotFound")
            if file[3] not in files.repositories[file[1]]:
                return self._missing("EntryNotFound")
            return self._file(files.repositories[file[1]][file[3]], file[3])

        def _repository(self, name: str) -> None:
            if name not in files.repositories:
                return self._missing("RepoNotFound")
            siblings = [{"rfilename": file} for file in sorted(files.repositories[name])]
            body = json.dumps({"id": name, "sha": files.commit, "siblings": siblings}).encode()
            return self._say(200, {"Content-Length": str(len(body))}, body)

        def _file(self, content: bytes, name: str) -> None:
            digest = hashlib.sha256(content).hexdigest()
            heads = {
                "X-Repo-Commit": files.commit,
                "ETag": f'"{digest}"',
                "Content-Length": str(len(content)),
            }
            body = files.sent.get(name, content)
            if (start := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))) is not None:
                body = body[int(start[1]) :]
                heads["Content-Length"] = str(len(content) - int(start[1]))
                self._say(206, heads, body)
            else:
                self._say(200, heads, body)

        def _missing(self, code: str) -> None:
            self._say(404, {"X-Error-Code": code, "Content-Length": "0"}, b"")

        def _say(self, status: int, heads: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for key, value in heads.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)
                self.close_connection = True

        do_GET = do_HEAD = _answer  # noqa: N815 - names that http.server calls

        def log_message(self, format: str, *args: object) -> None:
            """Write nothing to stderr."""

    with answering(Handler) as files.url:
        yield files
