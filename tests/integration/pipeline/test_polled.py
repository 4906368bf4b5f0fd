"""A pipeline polled after every event of its log: what the page, the lists and the queue say of it.

A phase never goes back, a pipeline does not wait while a device works on its phase, nothing says that
all is done while something is left, and the numbers of the list are those of the report.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from agent_forge.events import New
from agent_forge.pipeline.decide import due
from agent_forge.pipeline.events import PipelineState, Started
from agent_forge.runs.event_types import Figure
from agent_forge.runs.home import Home
from agent_forge.runs.streams import stream
from agent_forge.worker.queue.device_table import DeviceTable
from agent_forge.worker.queue.leases import myself
from agent_forge.worker.queue.scheduler import Offer
from testing.toy import toy_pipelines, toy_runs
from testing.toy.toy_pipelines import TWO, phase
from tests.integration.kinds.test_api import got, served
from tests.unit.runs.test_pipelines import GOOD, MERGE, PHASES, end, measured, model, standard

THREE = [*TWO, phase("third", seed=3)]
#: States of a phase in the order in which they follow each other.
ORDER = ("waiting", "running", "measuring", "ended")
DEVICE, OWNER = "vm/cpu0", myself("cpu0")


@pytest.fixture
def client(home: Home, tmp_path: Path) -> Iterator[TestClient]:
    with served(home, tmp_path / "models") as client:
        yield client


@pytest.fixture
def roster(home: Home) -> Iterator[DeviceTable]:
    """The table of devices, with one device that is free."""
    with closing(home.open_store()) as store:
        roster = DeviceTable(store.database)
        roster.enter(DEVICE, OWNER, "cpu")
        roster.offers(DEVICE, OWNER, Offer(frozenset({"device:cpu"}), 1, None, False))
        roster.say(DEVICE, OWNER, "idle")
        yield roster


def work(roster: DeviceTable, run: str, task: str) -> None:
    """Let the device work on a task."""
    roster.say(DEVICE, OWNER, "busy", run=run, task=task)


def strip(client: TestClient, run: str) -> list[dict[str, Any]]:
    panels = got(client, f"/runs/{run}/panels")["panels"]
    return next(panel for panel in panels if panel["name"] == "strip")["stages"]


def row(client: TestClient, run: str) -> dict[str, Any]:
    return next(one for one in got(client, "/pipelines")["pipelines"] if one["run"] == run)


def test_after_every_event_it_says_what_its_phase_does_and_goes_only_forward(
    home: Home, client: TestClient, roster: DeviceTable
) -> None:
    """With a device at work on the phase that is open: in page, head, list, queue and `/phases`."""
    toy_pipelines.submit(home, THREE)
    before, seen, worked = [0, 0, 0], 0, 0
    while not toy_runs.state(home, "p").ended:
        once = iter([False] * 3)
        toy_runs.carry_until(home, lambda _, once=once: next(once, True), "p")
        stages = strip(client, "p")
        assert [(s["name"], s["state"]) for s in row(client, "p")["stages"]] == [
            (s["name"], s["state"]) for s in stages
        ]
        now = [ORDER.index(stage["state"]) for stage in stages]
        assert all(a <= b for a, b in zip(before, now, strict=True)), (before, now)
        before, seen = now, seen + 1
        under_way = [s for s in stages if s["state"] == "running"]
        assert all(s["inside"] is None or s["inside"] < 1 for s in under_way)
        for stage in under_way[:1]:
            if not got(client, f"/runs/{stage['runs'][0]}")["pending"]:
                continue  # it has ended, and the pipeline has not recorded that yet
            worked += 1
            _at_work(client, roster, stage)
    assert before == [3, 3, 3]
    assert (seen > 6, worked > 3) == (True, True)
    assert got(client, "/runs/p/head")["inside"] == 1.0


def _at_work(client: TestClient, roster: DeviceTable, stage: dict[str, Any]) -> None:
    """Check what is said while the device works on a phase's run, and what if it works elsewhere."""
    [run] = stage["runs"]
    where = f"phase {stage['number']} of 3, {stage['name']}"
    [task, *_] = got(client, f"/runs/{run}")["pending"]
    work(roster, run, task)
    head = got(client, "/runs/p/head")
    live = got(client, "/runs/p/panels")["head"]["now"]
    for told in (head, live):
        assert told["waits_for"] is told["helps"] is told["inside"] is None
        assert told["doing"].startswith(f"{where}: ")
        assert (told["part"]["run"], told["part"]["name"]) == (run, where)
        assert told["part"]["inside"] < 1
    assert [one["who"] for one in head["at_work"]] == [DEVICE]
    message = got(client, "/phases/pipeline/status")
    assert message["message"] == head["doing"]
    assert message["progress"] < 1
    assert {one["waits_for"] for one in got(client, "/queue")["runs"]} == {""}
    work(roster, "elsewhere", "x")
    head = got(client, "/runs/p/head")
    assert head["doing"] is None
    assert head["waits_for"] == f"a free worker: {DEVICE} works on elsewhere"
    waits = {one["run"]: one["waits_for"] for one in got(client, "/queue")["runs"]}
    assert waits == {"p": "", run: f"a free worker: {DEVICE} works on elsewhere"}


def test_a_phase_that_lacks_a_label_says_which_command_helps(
    home: Home, client: TestClient, roster: DeviceTable
) -> None:
    """The label is that of the pipeline; the worker that is there has another."""
    toy_pipelines.submit(home, labels=("big-gpu",))
    for path in ("/runs/p/head", "/queue"):
        told = got(client, path)
        told = told["runs"][0] if path == "/queue" else told
        assert told["waits_for"] == "a worker with the label big-gpu (none is connected)"
        assert told["helps"] == "forge worker --queues big-gpu"


# ---- measured models -------------------------------------------------------------------------

BITS = {"bits_per_byte": Figure(value=2.0, low=1.9, high=2.1, n=31)}
#: Of the model's tensors, as a measurement reads them, and of the file that the last phase writes.
TENSORS, FILE = Figure(value=115_840), Figure(value=14_757)
SMALL = {"name": "small", "kind": "compression", "models": {"model": "b:champion"}}


@pytest.fixture
def compressed(home: Home) -> PipelineState:
    """A pipeline `p` in the log whose last phase writes a file of few bytes, which was measured."""
    state = standard(PHASES[0], MERGE, SMALL)
    end(state, 1, base=model("1"), code=model("2"))
    end(state, 2, champion=model("3"))
    measured(state, 2, **GOOD, **BITS, bytes=TENSORS)
    [task] = due(state).tasks
    ended = state.ended_phase(2)
    assert ended is not None
    figures = {"bytes": FILE, "retention": GOOD["retention"]}
    change = {"child": task.run, "phase": 3, "name": "small", "figures": figures}
    last = ended.model_copy(update={**change, "models": {"model": model("4")}})
    events: list[tuple[Any, str]] = [
        (state.submitted, "p/submitted"),
        (Started(warnings=()), "p/started"),
        *((event, f"p/{key}") for key, event in state.answers.items()),
    ]
    with closing(home.open_store()) as store:
        live, version = PipelineState(), 0

        def put(event: Any, key: str) -> None:
            nonlocal version
            version = store.append(stream("pipeline", "p"), version, [New(event, key)]).rows[-1].version
            live.take(event, key=key)

        for event, key in events:
            put(event, key)
            while live.started and not live.ended and (facts := due(live).facts):
                put(facts[0].event, facts[0].key)
        put(last, f"p/{task.key}")
    return live


def numbers(report: str) -> tuple[str, str]:
    """Return quality and bytes of the newest model that goes on, as the report's table has them."""
    ends = ("| yes |", "| it is the result |")
    rows = [line.split(" | ") for line in report.splitlines() if line.endswith(ends)]
    return rows[-1][1].partition(" ")[0], rows[-1][3]


def test_the_numbers_of_the_list_are_those_of_the_report(
    home: Home, client: TestClient, compressed: PipelineState
) -> None:
    """Before the file is measured they are those of the phase before; then bytes are the file's."""
    for value, size, words in (
        (2.0, 115_840, ("2", "113.1 KiB")),
        (2.1, 14_757, ("2.100", "14.4 KiB")),
    ):
        shown, report = row(client, "p"), client.get("/runs/p/report.md").text
        head = got(client, "/runs/p/panels")["head"]
        assert (shown["quality"], shown["bytes"], head["result"]["value"]) == (value, size, value)
        assert numbers(report) == words
        assert head["verdict"] in report
        assert f"{head['done']} of {head['of']}" == f"{shown['done']} of {shown['of']}" == "3 of 3"
        assert [stage["state"] for stage in shown["stages"]] == [
            stage["state"] for stage in strip(client, "p")
        ]
        if size == 115_840:
            assert strip(client, "p")[2]["state"] == "measuring"
            assert head["result"]["name"] == "b:champion, after phase 2"
            measure(home, compressed)
    assert strip(client, "p")[2]["state"] == "ended"
    assert "7.8 times less" in head["verdict"]
    page = client.get("/runs/p/report.html")
    assert page.headers["content-type"].startswith("text/html")
    assert page.text.count('href="#section-') == page.text.count("<h2") > 3


def measure(home: Home, state: PipelineState) -> None:
    """Record the measurement of the last phase's model, which reads its tensors in float32."""
    [task] = due(state).tasks
    before = state.measured_phase(2)
    assert before is not None
    bits = Figure(value=2.1, low=2.0, high=2.2, n=31)
    figures = {**before.figures, "bits_per_byte": bits, "bytes": TENSORS}
    change = {"child": task.run, "phase": 3, "name": "small", "figures": figures}
    with closing(home.open_store()) as store:
        version = state.version or len(toy_runs.rows(home, "p"))
        new: list[New] = [New(before.model_copy(update=change), f"p/{task.key}")]
        while new:
            done = store.append(stream("pipeline", "p"), version, new)
            version = done.rows[-1].version
            for one in new:
                state.take(one.event, key=one.key)
            facts = [] if state.gates.get(3) else due(state).facts
            new = list(facts)
