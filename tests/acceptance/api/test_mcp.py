"""`forge mcp` as clients use it: a process on standard input and output, and a server over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult

from agent_forge.api.mcp.server import create
from agent_forge.api.options import Options
from agent_forge.api.serving import server as server_of
from agent_forge.cli.operations.serve import listen
from agent_forge.runs.home import Home
from agent_forge.runs.kinds import FURTHER
from agent_forge.worker.commands import accounts
from testing.toy import toy_runs
from testing.toy.toy_kind import KNOWN
from testing.toy.toy_pipelines import TWO
from testing.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[3]
COMMAND = (sys.executable, "-c", "from agent_forge.cli.main import main; main()", "mcp")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home with a finished toy run `r`, for this process and those that it starts."""
    monkeypatch.setenv(FURTHER, KNOWN)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("FORGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FORGE_USER", "ada")
    monkeypatch.delenv("FORGE_DATABASE_URL", raising=False)
    home = Home.default()
    toy_runs.submit(home)
    toy_runs.finish(home)
    return home


def text(told: CallToolResult) -> str:
    """Return the text of a result."""
    return told.content[0].text  # pyright: ignore[reportAttributeAccessIssue]


def spoken(*words: str) -> Client:
    """Return a client that starts `forge mcp` with these words."""
    command, *first = COMMAND
    given = StdioServerParameters(command=command, args=[*first, *words], env=dict(os.environ))
    return Client(given)


# ---- standard input and output ---------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.smoke
def test_a_client_starts_the_server_and_acts_as_the_terminals_user(home: Home) -> None:
    """The whole way: the process, a reader beside it, the log, the actor, a pipeline."""

    async def talk() -> str:
        async with spoken() as client:
            assert client.server_info.name == "agent-forge"
            started = await client.call_tool("start_run", {"kind": "toy", "reason": "a try"})
            assert not started.is_error, text(started)
            run = started.structured_content["run"]  # pyright: ignore
            row = await client.call_tool("start_run", {"kind": "pipeline", "config": {"phases": TWO}})
            assert not row.is_error, text(row)
            seen = await client.call_tool("show_run", {"run": "r"})
            assert seen.structured_content["head"]["status"] == "completed"  # pyright: ignore
            await client.call_tool("cancel_run", {"run": run})
            report = await client.read_resource("forge://runs/r/report.md")
            assert report.contents[0].text.startswith("# Run r")  # pyright: ignore
            return run

    run = asyncio.run(talk())
    rows = toy_runs.rows(home, run)
    assert [(row.type, row.actor) for row in rows] == [("submitted", "ada"), ("cancelled", "ada")]


@pytest.mark.slow
def test_a_restricted_client_changes_nothing_and_reads_its_folders_only(
    home: Home, tmp_path: Path
) -> None:
    async def talk() -> list[str]:
        async with spoken("--role", "viewer") as client:
            viewer = await client.call_tool("pause_run", {"run": "r"})
        (tmp_path / "models").mkdir()
        async with spoken("--models", str(tmp_path / "models")) as client:
            outside = [{**TWO[0], "data": ["/etc/passwd"]}]
            asked = {"kind": "pipeline", "config": {"phases": outside}}
            pipeline = await client.call_tool("start_run", asked)
            folder = await client.call_tool("start_run", {"kind": "toy", "models": ["/etc"]})
        return [text(told) for told in (viewer, pipeline, folder)]

    viewer, pipeline, folder = asyncio.run(talk())
    assert viewer == "Forbidden: This needs the role submitter; ada is a viewer."
    assert "'/etc/passwd' is in none of this server's folders" in pipeline
    assert "'/etc' is in none of this server's folders" in folder


@pytest.mark.slow
def test_the_process_ends_with_its_input_and_at_once_by_ctrl_c(home: Home) -> None:
    """Standard output has messages alone; a client that goes leaves no process behind."""
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
    given = {"protocolVersion": "2025-06-18", "capabilities": {}}
    params = {**given, "clientInfo": {"name": "test", "version": "1"}}
    line = json.dumps({**hello, "params": params}) + "\n"
    done = subprocess.run(COMMAND, input=line, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    [answer] = done.stdout.splitlines()
    assert json.loads(answer)["result"]["serverInfo"]["name"] == "agent-forge"
    process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin
    assert process.stdout
    process.stdin.write(line)
    process.stdin.flush()
    assert "agent-forge" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == -signal.SIGINT
    process.stdin.close()
    process.stdout.close()


# ---- HTTP ------------------------------------------------------------------------------------


@dataclass
class Running:
    """A server in a thread of its own, and the tokens of users by their role."""

    url: str
    home: Home
    tokens: dict[str, str]

    @asynccontextmanager
    async def client(self, who: str, mode: str = "auto"):
        """Give a client with a user's token."""
        head = {"Authorization": f"Bearer {self.tokens[who]}"}
        async with httpx2.AsyncClient(headers=head, timeout=PATIENCE, verify=False) as http:
            transport = streamable_http_client(self.url, http_client=http)
            async with Client(transport, mode=mode) as client:
                yield client

    def post(self, body: Any = None, method: str = "POST", **headers: str) -> httpx2.Response:
        """Return the answer to a request as it is."""
        ping = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        head = {"Accept": "application/json, text/event-stream", **headers}
        given = {"json": ping if body is None else body} if method == "POST" else {}
        return httpx2.request(method, self.url, headers=head, verify=False, timeout=PATIENCE, **given)


Start = Callable[..., Running]


@pytest.fixture
def start(home: Home, tmp_path: Path) -> Iterator[Start]:
    """Start a server over the home, with these bounds instead of the usual ones."""
    ended = []

    def begin(**bounds: Any) -> Running:
        tokens = {}
        store = home.open_store()
        for role in accounts.ROLES:
            accounts.add(store, role, role)
            tokens[role] = accounts.issue(store, role)[1]
        store.close()
        options = replace(Options((tmp_path,)), **bounds)
        server, listening = server_of(create(home, options), options), listen("127.0.0.1", 0)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        ended.append((server, thread))
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.02)
        return Running(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", home, tokens)

    yield begin
    for server, thread in ended:
        server.should_exit = True
        thread.join(PATIENCE)


def carried(what: Callable[[], Awaitable[Any]]) -> Any:
    """Carry out a conversation."""
    return asyncio.run(what())  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_users_with_tokens_read_ask_and_are_the_actors(start: Start, mode: str) -> None:
    """By both generations of the protocol, side by side, each with the own role."""
    running = start()
    toy_runs.submit(running.home, "open")
    heard: list[float] = []

    async def hear(done: float, _of: float | None, _words: str | None) -> None:
        heard.append(done)

    async def talk() -> None:
        async with running.client("viewer", mode) as viewer, running.client("admin", mode) as admin:
            assert len((await viewer.list_tools()).tools) > 10
            refused = await viewer.call_tool("pause_run", {"run": "open"})
            assert text(refused) == "Forbidden: This needs the role submitter; viewer is a viewer."
            waiting = {"run": "open", "wait_seconds": 60}
            news = asyncio.create_task(viewer.call_tool("follow_run", waiting, progress_callback=hear))
            while not heard:
                await asyncio.sleep(0.02)
            assert not (await admin.call_tool("pause_run", {"run": "open"})).is_error
            assert (await news).structured_content["status"] == "paused"  # pyright: ignore
            own = await admin.call_tool("start_run", {"kind": "pipeline", "config": {}})
            assert "a pipeline needs at least one phase" in text(own)

    carried(talk)
    assert [row.actor for row in toy_runs.rows(running.home, "open")] == ["ada", "admin"]


def test_requests_without_a_valid_token_or_from_elsewhere_reach_no_tool(start: Start) -> None:
    """The checks of the API's requests, before anything is parsed; and the origin of pages."""
    running = start(origins=("https://friend.example",), wrong_burst=3, wrong_rate=1e-6)
    valid = {"Authorization": f"Bearer {running.tokens['viewer']}"}
    none = running.post()
    assert (none.status_code, none.headers["www-authenticate"]) == (401, "Bearer")
    assert "forge users token NAME" in none.json()["detail"]
    assert running.post(Authorization="Bearer forge_nobody").status_code == 401
    assert running.post(**valid).status_code == 200
    foreign = running.post(**valid, Origin="https://evil.example")
    assert (foreign.status_code, foreign.json()["title"]) == (403, "Forbidden")
    friend = running.post(**valid, Origin="https://friend.example")
    assert friend.status_code == 200
    assert friend.headers["access-control-allow-origin"] == "https://friend.example"
    assert running.post(**valid, Host="evil.example").status_code == 421
    for method in ("GET", "DELETE"):
        assert running.post(method=method, **valid).status_code == 405
    assert running.post({"x": "y" * (1 << 20)}, **valid).status_code == 413
    assert running.post().status_code == 401
    assert running.post().status_code == 429
    assert running.post(**valid).status_code == 200


def test_a_call_counts_as_a_request_and_a_void_token_ends_the_rights(start: Start) -> None:
    running = start(rate=1e-6, burst=3)
    valid = {"Authorization": f"Bearer {running.tokens['viewer']}"}
    assert [running.post(**valid).status_code for _ in range(4)] == [200, 200, 200, 429]
    other = {"Authorization": f"Bearer {running.tokens['submitter']}"}
    assert running.post(**other).status_code == 200
    store = running.home.open_store()
    accounts.remove(store, "submitter")
    store.close()
    assert running.post(**other).status_code == 401


@pytest.mark.slow
def test_forge_mcp_listens_where_it_says(home: Home, tmp_path: Path) -> None:
    """The line names the address that a client's settings need."""
    store = home.open_store()
    accounts.add(store, "eve", "viewer")
    token = accounts.issue(store, "eve")[1]
    store.close()
    words = [*COMMAND, "--http", "--port", "0", "--models", str(tmp_path)]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr
        found = re.match(r"mcp (http://127\.0\.0\.1:\d+/mcp)\n", process.stderr.readline())
        assert found
        assert "forge users token NAME" in process.stderr.readline()
        running = Running(found[1], home, {"eve": token})

        async def talk() -> int:
            async with running.client("eve") as client:
                return (await client.call_tool("list_runs", {})).structured_content["total"]  # pyright: ignore

        assert carried(talk) == 1
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)
        if process.stderr:
            process.stderr.close()
