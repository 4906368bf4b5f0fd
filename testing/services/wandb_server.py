"""As much of a W&B server as its own client needs to send, resume and finish runs. In memory."""

from __future__ import annotations

import gzip
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: A key of the form that the client takes.
KEY = "k" * 40


@dataclass
class Kept:
    """Data that the server has of a run."""

    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    group: str | None = None
    exit_code: int | None = None


class Wandb:
    """A server on a free port."""

    def __init__(self) -> None:
        #: Run id → what was sent, as W&B keeps it: lines by their offset.
        self.runs: dict[str, Kept] = {}
        #: Name → (digest, metadata) of every version; files by their digest.
        self.artifacts: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        self.asked: list[str] = []
        owner = self

        class Handler(_Handler):
            wandb = owner

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def env(self) -> dict[str, str]:
        """The environment variables by which the client finds the server."""
        port = self._server.server_address[1]
        return {
            "WANDB_BASE_URL": f"http://127.0.0.1:{port}",
            "WANDB_API_KEY": KEY,
            "WANDB_MODE": "online",
            "WANDB_ERROR_REPORTING": "false",
            "WANDB__FILE_STREAM_TRANSMIT_INTERVAL": "0.2",
        }

    def stop(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, operation: str, given: dict[str, Any]) -> dict[str, Any]:
        """Return the data of a GraphQL operation."""
        self.asked.append(operation)
        reply = getattr(self, f"_{operation}", None)
        return reply(given) if reply else {}

    def _Viewer(self, _: Any) -> dict[str, Any]:  # noqa: N802 - operations are named so
        return {
            "viewer": {
                "id": "u",
                "entity": "ada",
                "username": "ada",
                "email": "a@b",
                "flags": "{}",
                "teams": {"edges": []},
            }
        }

    def _RunResumeStatus(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        kept = self.runs.get(given["name"])
        entity = {"id": "e", "name": "ada"}
        model = {"id": "p", "name": given["project"], "entity": entity, "bucket": None}
        if kept is not None:
            config = {k: {"value": v} for k, v in kept.config.items()}
            model["bucket"] = {
                "id": given["name"],
                "name": given["name"],
                "displayName": given["name"],
                "summaryMetrics": json.dumps(kept.summary),
                "config": json.dumps(config),
                "logLineCount": 0,
                "eventsLineCount": 0,
                "historyLineCount": len(kept.history),
                "historyTail": json.dumps([json.dumps(line) for line in kept.history[-1:]]),
                "eventsTail": "[]",
                "tags": [],
                "notes": None,
                "wandbConfig": json.dumps({"t": {"value": {}}}),
            }
        return {"model": model}

    def _UpsertBucket(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        kept = self.runs.setdefault(given["name"], Kept())
        config = json.loads(given.get("config") or "{}")
        kept.config |= {k: v["value"] for k, v in config.items()}
        kept.group = given.get("groupName") or kept.group
        project = {"id": "p", "name": given["project"], "entity": {"id": "e", "name": "ada"}}
        bucket = {
            "id": given["name"],
            "name": given["name"],
            "displayName": given["name"],
            "description": None,
            "config": "{}",
            "sweepName": None,
            "project": project,
            "historyLineCount": len(kept.history),
        }
        return {"upsertBucket": {"bucket": bucket, "inserted": True}}

    def _CreateRunFiles(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        url = f"{self.env['WANDB_BASE_URL']}/put/"
        files = [{"name": name, "uploadUrl": url + name} for name in given["files"]]
        return {"createRunFiles": {"runID": given["run"], "uploadHeaders": [], "files": files}}

    def _ArtifactType(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        return {"project": {"artifact": None}}

    def _CreateArtifact(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        given = given["input"]
        names = given.get("artifactCollectionNames") or [given.get("artifactCollectionName")]
        known = self.artifacts.setdefault(names[0], [])
        told = (given["digest"], json.loads(given["metadata"]))
        if given["digest"] not in [digest for digest, _ in known]:
            known.append(told)
        artifact = {
            "id": f"a{len(known)}",
            "state": "COMMITTED",
            "artifactSequence": {"id": "s", "latestArtifact": None},
        }
        return {"createArtifact": {"artifact": artifact}}

    def stream(self, run: str, sent: dict[str, Any]) -> None:
        """Store lines of a run's files at their offsets."""
        kept = self.runs[run]
        for name, part in (sent.get("files") or {}).items():
            if name == "wandb-history.jsonl":
                kept.history[part["offset"] :] = [json.loads(line) for line in part["content"]]
            elif name == "wandb-summary.json":
                kept.summary = json.loads(part["content"][-1])
        if sent.get("complete"):
            kept.exit_code = sent.get("exitcode")


class _Handler(BaseHTTPRequestHandler):
    wandb: Wandb

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing to stderr."""

    def _body(self) -> bytes:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body

    def _reply(self, data: Any) -> None:
        body = json.dumps(data).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        body = self._body()
        if self.path == "/graphql":
            asked = json.loads(body)
            found = re.search(r"(?:query|mutation)\s+(\w+)", asked["query"])
            operation = asked.get("operationName") or (found[1] if found else "")
            self._reply({"data": self.wandb.answer(operation, asked.get("variables") or {})})
        elif self.path.endswith("/file_stream"):
            self.wandb.stream(self.path.split("/")[-2], json.loads(body))
            self._reply({"limits": {}})
        else:
            self._reply({})

    def do_PUT(self) -> None:
        self._body()
        self._reply({})

    def do_GET(self) -> None:
        self._reply({})
