"""A server of canned answers, with the WebSocket: what the dashboard is tried against.

`python -m tests.dashboard.server 8090` serves it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.dashboard.canned import CONFIG, DEFAULTS, SCHEMA, World

SITE = Path(__file__).resolve().parents[2] / "api" / "site"
TOKENS = {"admin-token": ("ada", "admin"), "view-token": ("linus", "viewer")}
POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self' ws: wss:"
)
KINDS = {".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css",
         ".json": "application/json"}  # fmt: skip


class Problem(Exception):
    def __init__(self, status: int, title: str, detail: str, errors: list | None = None) -> None:
        super().__init__(detail)
        self.body = {"type": "about:blank", "title": title, "status": status, "detail": detail}
        if errors:
            self.body["errors"] = errors


class Canned(ThreadingHTTPServer):
    """The world, the sockets that listen, and what was asked of it."""

    daemon_threads = True

    def __init__(self, port: int = 0, many: int = 40) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.world = World(many)
        self.sockets: list[Handler] = []
        self.posts: list[tuple[str, str, dict[str, Any]]] = []
        self.subscribed: list[int | None] = []
        self.position = 1000
        self.lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def advance(self, run: str, by: int = 1) -> None:
        """Lets a running run's next events happen."""
        for _ in range(by):
            story = self.world.stories[run]
            story.visible += 1
            self.position += 1
            event = story.events[story.visible - 1]
            self.broadcast({"type": "event", "position": self.position, "run": run,
                            "place": event["place"], "event": event})  # fmt: skip

    def broadcast(self, message: dict[str, Any]) -> None:
        for handler in list(self.sockets):
            handler.push(message)

    def drop(self) -> None:
        """Ends every live connection."""
        for handler in list(self.sockets):
            handler.connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away is no error."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Canned

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.dispatch("GET")

    def do_POST(self) -> None:
        self.dispatch("POST")

    def do_PATCH(self) -> None:
        self.dispatch("PATCH")

    def do_DELETE(self) -> None:
        self.dispatch("DELETE")

    def dispatch(self, method: str) -> None:
        parts = urlsplit(self.path)
        path = [unquote(p) for p in parts.path.split("/") if p]
        query = {k: v[0] for k, v in parse_qs(parts.query).items()}
        if path[:1] == ["ws"]:
            self.live()
            return
        if method == "GET" and (not path or path[0] in {"index.html", "assets"}):
            self.file(path)
            return
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"null") or {}
        try:
            name, role = self.who()
            if method != "GET":
                self.server.posts.append((method, parts.path, body))
            if method == "GET":
                status, answer = 200, self.read(path, query, name, role)
            else:
                status, answer = self.write(method, path, body)
        except Problem as problem:
            self.reply(problem.body["status"], problem.body, "application/problem+json")
        except KeyError:
            self.reply(404, {"title": "Not found", "status": 404, "detail": f"no {parts.path}"})
        else:
            self.reply(status, answer)

    def who(self) -> tuple[str, str]:
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token not in TOKENS:
            raise Problem(401, "Unauthorized", "the token is not known: `forge serve` prints one.")
        return TOKENS[token]

    def read(self, path: list[str], query: dict[str, str], name: str, role: str) -> Any:
        world = self.server.world
        at = int(query["at"]) if "at" in query else None
        match path:
            case ["me"]:
                return {"name": name, "role": role, "version": "0.1.0", "roots": ["/models"]}
            case ["runs"]:
                rows = world.rows(
                    query.get("status", ""), query.get("owner", ""), query.get("q", "")
                )
                start, limit = int(query.get("before", 0)), int(query.get("limit", 50))
                end = start + limit
                return {"runs": rows[start:end], "total": len(rows),
                        "next": str(end) if end < len(rows) else None}  # fmt: skip
            case ["runs", run, *rest]:
                if run not in world.stories:
                    raise Problem(404, "Not found", f"run {run!r} is not known.")
                why = world.cut(run, at) if at is not None else None
                if why:
                    raise Problem(422, "Not a place", why)
                return self.of_run(run, rest, query, at)
            case ["queue"]:
                waiting = [world.row(s) for s in world.stories.values()
                           if s.ending in {"running", "submitted", "paused"}]  # fmt: skip
                waits = {"running": None, "submitted": "a worker with the label big-gpu",
                         "paused": "somebody to resume it"}  # fmt: skip
                return {"runs": [{**r, "waits_for": waits[r["status"]]} for r in waiting]}
            case ["workers"]:
                return {"workers": [
                    {"name": f"worker-{i}", "device": f"cuda:{i}", "status": s, "labels": ["big-gpu"],
                     "run": "20261121-c4e107" if s == "busy" else None, "done": 120 + i,
                     "task": "evaluate generation 12/3" if s == "busy" else None,
                     "seconds": 4210.5, "living": s != "gone", "memory": 24 << 30,
                     "profile": "cuda bfloat16"}
                    for i, s in enumerate(["busy", "idle", "gone"])]}  # fmt: skip
            case ["models"]:
                kind, q = query.get("kind"), query.get("q", "")
                found = [m for m in world.models
                         if (not kind or m["kind"] == kind) and q in m["name"]]  # fmt: skip
                return {"models": found, "total": len(found)}
            case ["models", id_]:
                return next(m for m in world.models if m["id"] == id_)
            case ["settings"]:
                return {
                    "schema": SCHEMA,
                    "defaults": DEFAULTS,
                    "strategies": ["auto", "elite-loser", "tournament", "cma-es", "nsga2"],
                }
            case ["users"]:
                if role != "admin":
                    raise Problem(403, "Forbidden", "only an admin may see the users.")
                return {"users": world.users}
            case _:
                raise KeyError(path)

    def of_run(self, run: str, rest: list[str], query: dict[str, str], at: int | None) -> Any:
        world = self.server.world
        story = world.stories[run]
        match rest:
            case []:
                return world.run(run, at)
            case ["events"]:
                after, limit = int(query.get("after", 0)), int(query.get("limit", 200))
                rows = story.events[: story.visible][after : after + limit]
                if query.get("data") == "false":
                    rows = [{**row, "data": {}} for row in rows]
                more = after + limit < story.visible
                return {"events": rows, "total": story.visible,
                        "next": rows[-1]["place"] if more else None}  # fmt: skip
            case ["population"]:
                return world.population(run, at, query.get("generation"))
            case ["candidates", id_]:
                return world.candidate(run, id_)
            case ["lineage"]:
                return world.lineage(run, query.get("candidate", "champion"), at)
            case ["layers"]:
                return world.layers(run)
            case ["compare", other]:
                return world.compare(run, other)
            case ["export"]:
                return {"status": "done", "folder": f"/exports/{run}", "error": None}
            case _:
                raise KeyError(rest)

    def write(self, method: str, path: list[str], body: dict[str, Any]) -> tuple[int, Any]:
        world = self.server.world
        match path:
            case ["runs", "check"]:
                if len(body.get("models") or []) < 2:
                    message = "give two models or more"
                    raise Problem(
                        422, "Invalid", message, [{"field": "models", "message": message}]
                    )
                items = {d: {"train": 46, "search": 156, "selection": 119, "test": 224}
                         for d in ("code", "math", "data")}  # fmt: skip
                warned = (
                    [] if body.get("base") else ["no base is given: the first source stands in"]
                )
                return 200, {"ok": True, "warnings": warned, "parameters": 1_150_080, "items": items,
                             "config": {**CONFIG, **body.get("config", {})}}  # fmt: skip
            case ["runs"]:
                return 201, {"run": "20261121-0ab5e1"}
            case ["runs", run, "fork"]:
                why = world.cut(run, int(body.get("at") or 1))
                if why:
                    raise Problem(422, "Not a place", why)
                return 201, {"run": "20261121-f00d12"}
            case ["runs", run, "export"]:
                return 202, {"status": "running", "folder": None, "error": None}
            case ["runs", run, _]:
                return 200, world.run(run, None)
            case ["models"]:
                return 201, {**world.models[0], "name": body["name"], "id": "new"}
            case ["models", _]:
                return 204, None
            case ["users"]:
                world.users.append({"name": body["name"], "role": body["role"], "tokens": []})
                return 201, world.users[-1]
            case ["users", name]:
                next(u for u in world.users if u["name"] == name)["role"] = body["role"]
                return 200, {"name": name, "role": body["role"]}
            case ["users", name, "tokens"]:
                return 201, {"id": "t9", "token": "forge_new_token"}
            case ["users", name, "tokens", _]:
                return 204, None
            case _:
                raise KeyError(path)

    def reply(self, status: int, answer: Any, kind: str = "application/json") -> None:
        text = b"" if status == 204 else json.dumps(answer).encode()
        etag = f'"{hashlib.sha256(text).hexdigest()[:16]}"'
        same = status == 200 and self.headers.get("If-None-Match") == etag
        self.send_response(304 if same else status)
        self.send_header("ETag", etag)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", "0" if same else str(len(text)))
        self.end_headers()
        if not same:
            self.wfile.write(text)

    def file(self, path: list[str]) -> None:
        found = SITE.joinpath(*(path or ["index.html"]))
        if not found.is_file():
            self.reply(404, {"title": "Not found", "status": 404})
            return
        data = found.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", KINDS.get(found.suffix, "application/octet-stream"))
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Security-Policy", POLICY)
        self.end_headers()
        self.wfile.write(data)

    def live(self) -> None:
        """RFC 6455, as much of it as short text messages need."""
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_header("Sec-WebSocket-Accept", accept)
        self.end_headers()
        self.close_connection = True
        try:
            while (message := self.pull()) is not None:
                if message["type"] == "authenticate":
                    self.push({"type": "welcome", "user": "ada", "role": "admin",
                               "position": self.server.position})  # fmt: skip
                elif message["type"] == "subscribe":
                    self.server.subscribed.append(message.get("after"))
                    self.push({"type": "subscribed", "run": None, "after": message.get("after")})
                    self.server.sockets.append(self)
        except OSError:
            pass
        finally:
            if self in self.server.sockets:
                self.server.sockets.remove(self)

    def pull(self) -> dict[str, Any] | None:
        """One message, or None when the browser closed."""
        head = self.rfile.read(2)
        if len(head) < 2 or head[0] & 15 == 8:
            return None
        size = head[1] & 127
        if size == 126:
            size = int.from_bytes(self.rfile.read(2), "big")
        mask = self.rfile.read(4)
        data = self.rfile.read(size)
        return json.loads(bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def push(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode()
        size = len(data)
        head = bytes([0x81, size]) if size < 126 else bytes([0x81, 126]) + size.to_bytes(2, "big")
        with self.server.lock:
            self.wfile.write(head + data)
            self.wfile.flush()


if __name__ == "__main__":
    Canned(int(sys.argv[1]) if len(sys.argv) > 1 else 8090, 10_000).serve_forever()
