"""`forge limits`, `workers`, `queue`, `worker`, `artifacts`: what they print and refuse."""

from __future__ import annotations

import base64
import json
import logging
import re
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

from agent_forge.cli.operations import up
from agent_forge.cli.operations.worker import worker_command
from agent_forge.runs.home import Home
from agent_forge.worker.devices import child_main, service
from agent_forge.worker.devices.service import Metrics
from agent_forge.worker.queue.device_table import DeviceTable
from agent_forge.worker.queue.leases import here, myself
from agent_forge.worker.queue.scheduler import Offer
from testing.worlds import fake_runs
from tests.integration.cli.test_forge import call, fails


def test_limits_are_shown_and_changed(tmp_path: Path) -> None:
    assert json.loads(call(tmp_path, "limits", "--json").stdout)["users"] == {}
    told = call(tmp_path, "limits", "ada", "--weight", "2.5", "--tasks", "3", "--json")
    assert json.loads(told.stdout)["users"] == {"ada": {"weight": 2.5, "tasks": 3}}
    call(tmp_path, "limits", "--tasks", "8", "--run-tasks", "4")
    call(tmp_path, "limits", "ada", "--tasks", "0")
    data = json.loads(call(tmp_path, "limits", "--json").stdout)
    assert data["everybody"] == {"tasks": 8, "run_tasks": 4}
    assert data["users"] == {"ada": {"weight": 2.5, "tasks": None}}
    assert call(tmp_path, "limits").stdout.splitlines()[-1] == "tasks of one run at once: 4"


@pytest.mark.parametrize(
    "words",
    [
        ["--weight", "2"],
        ["ada", "--weight", "0"],
        ["ada", "--weight", "-1"],
        ["ada", "--weight", "nan"],
        ["ada", "--weight", "inf"],
        ["ada", "--tasks", "-1"],
        ["ada", "--run-tasks", "2"],
        ["", "--weight", "2"],
        ["ada", "--tasks", "x"],
    ],
)
def test_limits_without_sense_are_refused_and_record_nothing(tmp_path: Path, words: list[str]) -> None:
    fails(tmp_path, 2, "limits", *words)
    with closing(Home(tmp_path).open_store()) as store:
        assert store.version("queue") == 0


def enter(home: Home, name: str, owner: str, kind: str = "device:cpu", refused: str = "r") -> None:
    """A device on the roster."""
    with closing(home.open_store()) as store:
        roster = DeviceTable(store.database)
        roster.enter(name, owner, "cpu")
        roster.offers(name, owner, Offer(frozenset({kind, "big"}), 5 << 30, "p"))
        roster.refuse(name, owner, {refused: (roster.now() + 60, "no such model")})
        roster.say(name, owner, "idle", done=7)


def test_workers_tells_what_each_device_is_at(tmp_path: Path) -> None:
    """The health check asks for a living device of this host, by the table of devices."""
    assert "no workers" in call(tmp_path, "workers").stderr
    enter(Home(tmp_path), "elsewhere/cpu0", "elsewhere/1/1/cpu0")
    assert call(tmp_path, "workers", "--check").exit_code == 3
    dead = f"{here()}/1/1/cpu0"
    enter(Home(tmp_path), f"{here().partition(':')[0]}/cpu0", dead)
    assert call(tmp_path, "workers", "--check").exit_code == 3
    enter(Home(tmp_path), f"{here().partition(':')[0]}/cpu0", myself("cpu0"))
    done = call(tmp_path, "workers", "--check", "--json")
    assert done.exit_code == 0
    device = next(d for d in json.loads(done.stdout) if not d["device"].startswith("elsewhere"))
    assert (device["done"], device["labels"]) == (7, "big device:cpu")
    assert device["refuses"] == "r: no such model"
    assert device["status"] == "idle"


def test_the_queue_is_cut_and_says_so(tmp_path: Path) -> None:
    with closing(Home(tmp_path).open_store()) as store:
        for number in range(4):
            fake_runs.submit(store, f"r{number}")
    done = call(tmp_path, "queue", "--limit", "3")
    assert len(done.stdout.splitlines()) == 4, "the columns' names, three runs"
    assert "there are more" in done.stderr
    assert len(json.loads(call(tmp_path, "queue", "--all", "--json").stdout)) == 4


def test_the_queue_says_what_a_run_waits_for(tmp_path: Path) -> None:
    with closing(Home(tmp_path).open_store()) as store:
        fake_runs.submit(store, "r")
    queue = lambda: json.loads(call(tmp_path, "queue", "--json").stdout)[0]["waits_for"]  # noqa: E731
    assert queue() == "a worker (none is connected)"
    enter(Home(tmp_path), "elsewhere/cuda0", "elsewhere/1/1/x", "device:cuda")
    assert queue() == "a worker with a cpu (none is connected)"
    enter(Home(tmp_path), "elsewhere/cpu0", "elsewhere/1/1/y")
    assert queue() == "devices that can: no such model"
    enter(Home(tmp_path), "elsewhere/cpu1", "elsewhere/1/1/z", refused="another")
    assert queue() == ""
    with closing(Home(tmp_path).open_store()) as store:
        fake_runs.finish(store, "r", lambda state: state.started is not None)
    assert queue().startswith("a device with the profile x|")
    call(tmp_path, "pause", "r")
    assert queue() == "someone to resume it"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--device", "gpu"], 2, "is not known"),
        (["--device", "cuda:0"], 3, "is not here"),
        (["--device", "cpu,cpu"], 2, "stands twice"),
        (["--queues", "a b"], 2, "has spaces"),
        (["--queues", "device:cuda"], 2, "a colon"),
        (["--only"], 2, "--only goes with"),
        (["--concurrency", "0"], 2, ""),
    ],
)
def test_a_worker_that_cannot_be_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, told: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert told in fails(tmp_path, code, "worker", *words)
    assert "no workers" in call(tmp_path, "workers").stderr


@pytest.mark.parametrize(
    ("store", "key", "told"),
    [
        (None, None, "FORGE_ARTIFACT_STORE"),
        ("nonsense", None, ""),
        ("nosuchthing://x", None, "nosuchthing"),
        ("FOLDER", "short", "FORGE_ARTIFACT_KEY"),
    ],
)
def test_a_store_that_cannot_be_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str | None, key: str | None, told: str
) -> None:
    for name, value in (("FORGE_ARTIFACT_STORE", store), ("FORGE_ARTIFACT_KEY", key)):
        if value is not None:
            monkeypatch.setenv(name, value.replace("FOLDER", f"file://{tmp_path}"))
    assert told in fails(tmp_path, 2, "artifacts", "list")


def test_artifacts_are_listed_and_sealed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agent_forge.weights.storage.artifact_store import Vault

    monkeypatch.setenv("FORGE_ARTIFACT_STORE", f"file://{tmp_path / 'store'}")
    (tmp_path / "file.txt").write_text("weights")
    Vault.open(f"file://{tmp_path / 'store'}").put("a" * 64, {"file.txt": tmp_path / "file.txt"})
    assert call(tmp_path, "artifacts", "list").stdout.split() == ["a" * 64]
    monkeypatch.setenv("FORGE_ARTIFACT_KEY", base64.b64encode(bytes(32)).decode())
    assert "rotate --plain" in fails(tmp_path, 2, "artifacts", "rotate")
    rotate = ("artifacts", "rotate", "--plain", "--json")
    assert json.loads(call(tmp_path, *rotate).stdout) == {"rotated": 1}
    assert json.loads(call(tmp_path, *rotate).stdout) == {"rotated": 0}
    assert json.loads(call(tmp_path, "artifacts", "rotate", "--json").stdout) == {"rotated": 0}
    assert "1 artifacts were removed" in call(tmp_path, "artifacts", "remove", "a" * 64).stdout
    assert json.loads(call(tmp_path, "artifacts", "list", "--json").stdout) == []


def test_logs_are_lines_of_json_with_run_task_and_position(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level, logging.getLogger(child_main.OURS).level
    try:
        child_main.set_up("json")
        extra = {"run": "r", "task": "build/0/1", "position": 7, "candidate": None}
        service.log.info("task ended", extra=extra)
        logging.getLogger("elsewhere").info("not ours")
        (line,) = capsys.readouterr().err.splitlines()
    finally:
        root.handlers[:], level, own = before
        root.setLevel(level)
        logging.getLogger(child_main.OURS).setLevel(own)
    found = json.loads(line)
    assert found.pop("timestamp")
    assert found == {
        "event": "task ended",
        "level": "info",
        "run": "r",
        "task": "build/0/1",
        "position": 7,
    }


def test_logs_for_people_name_tasks_in_words_and_cut_digests(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A line of a terminal has no room for digests of 64 digits, and a key says little."""
    root = logging.getLogger()
    before = root.handlers[:], root.level, logging.getLogger(child_main.OURS).level
    digest = "0123456789abcdef" * 4
    told = {
        "run": "r",
        "task": f"evaluate/search/0/{digest}",
        "what": "measuring math on search",
        "candidate": digest,
        "position": 7,
        "ended": "done",
        "seconds": 2.5,
    }
    try:
        child_main.set_up("text")
        service.log.info("task ended", extra=told)
        service.log.warning("the process of %s was killed", told["task"])
        first, second = capsys.readouterr().err.splitlines()
    finally:
        root.handlers[:], level, own = before
        root.setLevel(level)
        logging.getLogger(child_main.OURS).setLevel(own)
    assert first.partition(" ")[2] == "[info] r: measuring math on search: done in 2.5 s"
    assert "search/0/0123456789ab was" in second
    assert max(map(len, (first, second))) <= 80


def test_forge_up_tells_which_runs_have_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And those of before it began are no news."""
    monkeypatch.setattr(up, "LOOK", 0.0)
    home = Home(tmp_path)
    with closing(home.open_store()) as store:
        fake_runs.whole(store, "old")
        endings = up.Endings(home)
        fake_runs.whole(store, "new")
        assert endings.news() == ["run new completed"]
        assert endings.news() == []
        endings.close()


def test_metrics_count_what_they_are_told() -> None:
    from prometheus_client import generate_latest

    from agent_forge.worker.queue.bookkeeping import Measures

    metrics = Metrics()
    told = {"ended": "done", "seconds": 2.0, "hits": 3, "misses": 1, "append": 0.02, "tokens": 500}
    metrics.ended("evaluate/search/0/x", told)
    metrics.dispatched(Measures(waiting=4, oldest=9.5, expired=2, decisions=7, leads=True), 1, 2)
    text = generate_latest(metrics.registry).decode()
    for line in (
        'forge_tasks_total{ended="done",kind="evaluate"} 1.0',
        'forge_cache_lookups_total{result="hit"} 3.0',
        "forge_tokens_per_second 250.0",
        "forge_queue_tasks 4.0",
        "forge_queue_oldest_seconds 9.5",
        "forge_lease_expiries_total 2.0",
        "forge_dispatcher 1.0",
        'forge_devices{status="busy"} 1.0',
        'forge_append_seconds_bucket{le="0.03"} 1.0',
    ):
        assert line in text.splitlines(), line


def test_metrics_name_no_run_user_or_model() -> None:
    """Their port asks for no token: labels are of fixed lists, the rest are numbers."""
    from prometheus_client import generate_latest

    metrics = Metrics()
    metrics.ended("evaluate/search/0/SECRET", {"ended": "done", "seconds": 2.0, "user": "SECRET"})
    text = generate_latest(metrics.registry).decode()
    assert set(re.findall(r'(\w+)="', text)) == {"kind", "ended", "result", "le"}
    assert "SECRET" not in text


def test_metrics_are_served_on_this_machine_unless_an_address_is_given() -> None:
    """The port only tells: a request that would change something is refused."""
    (option,) = (one for one in worker_command.params if one.name == "metrics_address")
    port = Metrics().serve(0, str(option.default))
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", data=b"x=1")
    assert option.default == "127.0.0.1"
    assert refused.value.code == 405
    refused.value.close()
