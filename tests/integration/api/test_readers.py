"""What opens foreign models and data is a process beside the server; its end ends no server."""

from __future__ import annotations

import asyncio
import json
import math
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agent_forge.api.options import Options
from agent_forge.api.problems import HttpError
from agent_forge.api.processes import readers
from agent_forge.api.processes.readers import ReaderLane, Readers, Work
from agent_forge.runs.errors import SourceError, UnavailableError
from agent_forge.worker.commands import model_registry
from agent_forge.worker.devices import reading_process
from testing.models import lm_eval_tasks
from testing.models.toys import Toys
from testing.waiting import PATIENCE, wait_until
from tests.integration.api.conftest import Served


def lane(tmp_path: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> ReaderLane:
    """A lane whose processes run this code instead of `reading_process`."""
    *packages, module = reading_process.__name__.split(".")
    package = tmp_path
    for name in packages:
        package /= name
        package.mkdir()
        (package / "__init__.py").touch()
    (package / f"{module}.py").write_text(code, "utf-8")
    monkeypatch.setattr(readers, "PATIENCE", 0.5)
    return ReaderLane({**os.environ, "PYTHONPATH": str(tmp_path)}, PATIENCE)


@pytest.mark.slow
def test_the_server_itself_opens_no_weights() -> None:
    """It has not even loaded what could: neither torch nor safetensors."""
    code = (
        "import sys, agent_forge.api.app, agent_forge.api.serving, agent_forge.cli.operations.serve; "
        "import agent_forge.evomerge.mergekit.export_config; "
        "print({'torch', 'safetensors', 'transformers', 'lm_eval'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


#: Answers an order with itself, as often as asked; does what `how` says before.
ECHO = """
import json, os, signal, sys, time
for line in sys.stdin:
    order = json.loads(line)
    if order.get("how") == "bus":
        os.kill(os.getpid(), signal.SIGBUS)
    if order.get("how") == "memory":
        os.kill(os.getpid(), signal.SIGKILL)
    if order.get("how") == "late":
        time.sleep(3600)
    print(json.dumps({**order, "pid": os.getpid()}), flush=True)
"""


@pytest.mark.slow
def test_a_process_that_dies_or_is_late_answers_its_own_request(tmp_path, monkeypatch) -> None:
    """A file cut short under a memory map is SIGBUS: it killed the server."""

    async def ask() -> None:
        one = lane(tmp_path, ECHO, monkeypatch)
        first = await one.ask("ada", {})
        assert (await one.ask("ada", {}))["pid"] == first["pid"]
        with pytest.raises(SourceError, match="became shorter"):
            await one.ask("ada", {"how": "bus"})
        with pytest.raises(UnavailableError, match="has died"):
            await one.ask("ada", {"how": "memory"})
        await one.ask("ada", {})
        one._seconds = 0.5
        with pytest.raises(HttpError, match=r"longer than 0\.5 s"):
            await one.ask("ada", {"how": "late"})
        one._seconds = PATIENCE
        last = await one.ask("ada", {})
        assert last["pid"] != first["pid"]
        one.stop()
        await asyncio.sleep(0.2)
        with pytest.raises(ProcessLookupError):
            os.kill(last["pid"], 0)

    asyncio.run(ask())


@pytest.mark.slow
def test_one_user_keeps_one_process_and_the_others_theirs(tmp_path, monkeypatch) -> None:
    """Whoever sends much to read waits for their own, and nobody else does."""

    async def ask() -> None:
        one = lane(tmp_path, ECHO, monkeypatch)
        one._seconds = 8.0
        late = [asyncio.ensure_future(one.ask("ada", {"how": "late"})) for _ in range(5)]
        await asyncio.sleep(0.1)
        one._seconds = PATIENCE
        monkeypatch.setattr(readers, "PATIENCE", PATIENCE)
        assert (await one.ask("bob", {"n": 1}))["n"] == 1
        found = await asyncio.gather(*late, return_exceptions=True)
        told = sorted(problem.status for problem in found if isinstance(problem, HttpError))
        assert told == [422, 503, 503, 503, 503]
        one.stop()

    asyncio.run(ask())


def test_the_processes_have_no_secrets_and_the_hub_only_where_it_is_allowed(monkeypatch) -> None:
    """Nothing of the log, the store or the Hub can leave by what others wrote."""
    for name in ("FORGE_DATABASE_URL", "FORGE_ARTIFACT_KEY", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)

    def environment(hub: bool) -> dict[str, str]:
        made: Any = Readers(Options(hub=hub))
        made.stop()
        return made._lanes["check"]._env

    closed, opened = environment(False), environment(True)
    assert "secret" not in closed.values()
    assert closed["HF_HUB_OFFLINE"] == closed["HF_DATASETS_OFFLINE"] == "1"
    assert [name for name, value in opened.items() if value == "secret"] == ["HF_TOKEN"]


@pytest.mark.slow
def test_a_weights_file_that_is_cut_short_leaves_the_server(
    served: Served, toys: Toys, tmp_path: Path
) -> None:
    """A training that saves its checkpoint again is enough for that."""
    import shutil

    folder = tmp_path / "models" / "m"
    shutil.copytree(toys.base, folder)
    _grow(folder, 3 << 30)
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(served.ask, "POST", "/models", "submitter", json={"path": "m"})
        wait_until(
            lambda: asked.done() or _mapped(folder / "model.safetensors"), "a mapped file", pause=0.05
        )
        os.truncate(folder / "model.safetensors", 1 << 20)
        answer = asked.result()
    assert answer.status_code == 422, answer.text
    assert "shorter" in answer.json()["detail"], answer.text
    assert served.get("/health", None).status_code == 200
    shutil.rmtree(folder)


def _grow(folder: Path, size: int) -> None:
    """Give the model at least `size` bytes, all zero and sparse, by a larger vocabulary."""
    file, config = folder / "model.safetensors", folder / "config.json"
    with file.open("rb") as stored:
        head = json.loads(stored.read(int.from_bytes(stored.read(8), "little")))
    head.pop("__metadata__", None)
    embedding = head["model.embed_tokens.weight"]
    end, width = 0, embedding["shape"][1]
    start, stop = embedding["data_offsets"]
    item = (stop - start) // (embedding["shape"][0] * width)
    embedding["shape"][0] = size // (width * item) + 1
    for tensor in head.values():
        start, end = end, end + math.prod(tensor["shape"]) * item
        tensor["data_offsets"] = [start, end]
    config.write_text(
        json.dumps({**json.loads(config.read_text("utf-8")), "vocab_size": embedding["shape"][0]}),
        "utf-8",
    )
    written = json.dumps(head).encode()
    with file.open("wb") as out:
        out.write(len(written).to_bytes(8, "little") + written)
        out.truncate(8 + len(written) + end)


def _mapped(file: Path) -> bool:
    """Return True if a process beside this one has the file mapped; this one never has."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            mapped = str(file) in maps.read_text()
        except OSError:
            continue
        if mapped:
            assert maps.parent.name != str(os.getpid())
            return True
    return False


@pytest.mark.slow
def test_what_never_ends_is_refused_and_keeps_no_place(served: Served, toys: Toys) -> None:
    """A named pipe in a data folder kept its check, and the place for it, for ever."""
    import shutil

    roots = served.client.app.state.options.roots[0]  # pyright: ignore[reportAttributeAccessIssue]
    for source in (*toys.sources, toys.base):
        shutil.copytree(source, roots / source.name)
    (roots / "items").mkdir()
    os.mkfifo(roots / "items" / "z.txt")
    body = {"models": [s.name for s in toys.sources], "base": toys.base.name, "data": ["items"]}
    answer = served.ask("POST", "/runs/check", "submitter", json=body)
    assert (answer.status_code, "no plain file" in answer.json()["detail"]) == (422, True)


@pytest.mark.slow
def test_a_task_asks_no_hub_and_takes_no_folder_instead(
    served: Served, toys: Toys, tmp_path: Path, monkeypatch
) -> None:
    """Without FORGE_API_HUB the server's token went to the Hub with any task's data set."""
    import shutil

    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as hub:
        thread = threading.Thread(target=_listen, args=(hub, asked), daemon=True)
        thread.start()
        here = tmp_path / "here"
        (here / "owner" / "name").mkdir(parents=True)
        (here / "owner" / "name" / "test.jsonl").write_text('{"says": "ours"}\n')
        folder = tmp_path / "tasks"
        file = lm_eval_tasks.write(folder, "mine", lm_eval_tasks.TEXT, [{"says": "x"}])
        said = file.read_text().replace("dataset_path: json", "dataset_path: owner/name")
        file.write_text(said.split("dataset_kwargs")[0] + said[said.index("test_split") :])
        monkeypatch.chdir(here)
        for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):  # else the tests' own settings hold
            monkeypatch.delenv(name, raising=False)
        for name, value in {
            "FORGE_TASK_FOLDERS": str(folder),
            "HF_TOKEN": "hf_secret",
            "HF_ENDPOINT": f"http://127.0.0.1:{hub.getsockname()[1]}",
        }.items():
            monkeypatch.setenv(name, value)
        app: Any = served.client.app
        app.state.readers = Readers(app.state.options)
        roots = app.state.options.roots[0]
        for source in (*toys.sources, toys.base):
            shutil.copytree(source, roots / source.name)
        body = {
            "models": [s.name for s in toys.sources],
            "base": toys.base.name,
            "data": ["lm-eval:mine"],
        }
        answer = served.ask("POST", "/runs/check", "submitter", json=body)
        assert (answer.status_code, "lm-eval:mine" in answer.json()["detail"]) == (422, True)
        assert "lm-evaluation-harness has no task" not in answer.text
    assert asked == []


def _listen(hub: socket.socket, asked: list[bytes]) -> None:
    while True:
        try:
            connection, _ = hub.accept()
        except OSError:
            return
        with connection:
            asked.append(connection.recv(4096))


def test_only_who_registered_a_model_replaces_its_entry(served: Served, toys: Toys) -> None:
    """A submitter gave an admin's model another name, kind, metrics and path."""
    store = served.home.open_store()
    id_ = model_registry.register(store, toys.base, "theirs", "base", by="admin")
    measured = model_registry.measure(toys.base)
    store.close()

    async def known(order: str, user: str, **more: Any) -> dict[str, Any]:
        return vars(measured)

    app: Any = served.client.app
    app.state.readers.ask = known
    (app.state.options.roots[0] / "copy").mkdir()
    body = {"path": "copy", "name": "mine", "metrics": {"test": 9}}
    answer = served.ask("POST", "/models", "submitter", json=body)
    assert (answer.status_code, "admin" in answer.json()["detail"]) == (409, True)
    assert served.get(f"/models/{id_}").json()["name"] == "theirs"
    assert served.ask("POST", "/models", "admin", json=body).status_code == 201
    assert served.get(f"/models/{id_}").json()["name"] == "mine"
    assert served.ask("DELETE", f"/models/{id_}").status_code == 200
    assert served.ask("POST", "/models", "submitter", json=body).status_code == 201
    assert served.ask("POST", "/models", "submitter", json=body).status_code == 201


def test_a_reader_that_the_server_leaves_behind_ends(tmp_path, monkeypatch) -> None:
    """It ends with the server's end of its pipe: also where the server was killed."""
    made = readers.Reader(dict(os.environ))
    process = made._process
    assert process.stdin
    process.stdin.close()
    assert process.wait(PATIENCE) == 0
    assert process.stdout
    process.stdout.close()


def test_an_idle_process_has_its_clock_before_others_can_take_it(tmp_path, monkeypatch) -> None:
    """A clock that was set later killed the process amid the next order."""
    seen: list[tuple[float, bool]] = []
    one = lane(tmp_path, ECHO, monkeypatch)
    set_clock = readers.Reader.end_after

    def noted(reader: readers.Reader, seconds: float) -> None:
        seen.append((seconds, reader in one._idle))
        set_clock(reader, seconds)

    monkeypatch.setattr(readers.Reader, "end_after", noted)
    asyncio.run(one.ask("ada", {}))
    assert seen == [(PATIENCE, False), (readers.IDLE, False)]
    [reader] = one._idle
    first = reader._clock
    reader.end_after(3600.0)
    assert first is not None
    assert first.finished.is_set(), "the earlier clock does not end it any more"
    assert reader.kept()
    one.stop()
    reader.end()


def test_a_check_fills_half_of_the_memory_at_most() -> None:
    """A sparse file of 8 GiB is 4 kB on the disk, and all of it once it is read."""
    code = (
        "import os, agent_forge.worker.devices.reading_process as r\n"
        "pages = {'SC_PHYS_PAGES': 1 << 19, 'SC_PAGE_SIZE': 4096}\n"
        "os.sysconf = pages.get\n"
        "r.ORDERS['big'] = lambda order: (r._bound_memory(), bytearray(2 << 30))\n"
        "told = r.answered({'order': 'big'})\n"
        "print(told['error'], told['detail'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("ConfigError It needs more than half")


@pytest.mark.parametrize(
    ("hard", "container", "bound"),
    [(-1, "max", 4 << 30), (2 << 30, "max", 2 << 30), (-1, str(3 << 30), 3 << 29)],
)
def test_the_bound_keeps_to_limits_that_are_lower(
    tmp_path: Path, hard: int, container: str, bound: int
) -> None:
    """A hard limit below half of the memory made every check a 500; a container's was not seen."""
    (tmp_path / "memory.max").write_text(container + "\n")
    code = (
        "import os, pathlib, resource, sys, agent_forge.worker.devices.reading_process as r\n"
        "pages = {'SC_PHYS_PAGES': 1 << 21, 'SC_PAGE_SIZE': 4096}\n"
        "os.sysconf, r.CGROUP = pages.get, pathlib.Path(sys.argv[1])\n"
        "hard = int(sys.argv[2])\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))\n"
        "r._bound_memory()\n"
        "print(*resource.getrlimit(resource.RLIMIT_DATA))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "memory.max"), str(hard)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(bound), str(hard)]


def test_one_users_layers_leave_room_for_the_others() -> None:
    """Whoever asked for sixteen at once kept everybody else's from being worked out."""

    async def ask() -> None:
        work, command = Work(), [sys.executable, "-c", "import time; time.sleep(3600)"]
        for n in range(4):
            assert await work.begin(f"layers {n}", command, by="ada")
        with pytest.raises(HttpError, match="4 of yours"):
            await work.begin("layers more", command, by="ada")
        assert await work.begin("layers other", command, by="bob")
        assert await work.begin("export mine", command, by="ada")
        await work.stop()

    asyncio.run(ask())
