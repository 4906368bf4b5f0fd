"""A pipeline's row of the run list says of each phase what the strip of its page says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_forge.events import Envelope
from agent_forge.pipeline import ladder, view
from agent_forge.pipeline.events import PipelineState
from agent_forge.pipeline.panels import along
from agent_forge.runs.event_types import Figure
from agent_forge.runs.kinds.state import fold_into
from testing.toy.toy_kind import KNOWN

GOLDEN = sorted((Path(__file__).parents[2] / "golden").glob("pipeline-*.jsonl"))


@pytest.fixture(autouse=True)
def toy_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORGE_KINDS", KNOWN)


def model(state: PipelineState) -> list[Figure | None]:
    """Return quality and size of the newest measured model that goes on, as the page has them."""
    found = ladder.newest(state)
    return [found.bits, found.size] if found else [None, None]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_after_every_event_the_row_says_what_the_strip_says(path: Path) -> None:
    """By recorded logs: with stops, overrides, failures, measurements, inputs that pass unchanged."""
    rows = [Envelope(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]
    entry: dict[str, Any] = {"stages": None, "done": None, "result": None}
    compared = 0
    for place, row in enumerate(rows, start=1):
        event = PipelineState.registry.load(row)
        view.note(entry, event)
        state: Any = fold_into(PipelineState(), rows[:place])
        strip = along.stages(state, ())
        noted = json.loads(entry["stages"])
        assert [(s["name"], s["what"]) for s in noted] == [(s.name, s.what) for s in strip]
        assert [s["state"] for s in noted] == [s.state for s in strip], (place, row.type)
        told = [None if figure is None else figure.value for figure in model(state)]
        assert [entry.get("quality"), entry.get("bytes")] == told
        compared += 1
    assert compared == len(rows) > 3


def test_a_forged_event_stops_no_list() -> None:
    """A phase that the pipeline has not, and figures that are no numbers, are left out."""
    rows = [Envelope(**json.loads(line)) for line in GOLDEN[0].read_text("utf-8").splitlines()]
    events: list[Any] = [PipelineState.registry.load(row) for row in rows]
    ended = next(event for event in events if event.type == "phase_ended")
    entry: dict[str, Any] = {"stages": None, "done": None, "result": None}
    view.note(entry, ended)  # before `submitted`
    assert entry["stages"] is None
    view.note(entry, events[0])
    before = json.loads(entry["stages"])
    for phase in (0, 99):
        view.note(entry, ended.model_copy(update={"phase": phase}))
    assert json.loads(entry["stages"]) == before
    strange = {"bytes": Figure(value=1.0).model_copy(update={"value": float("nan")})}
    view.note(entry, ended.model_copy(update={"phase": 1, "figures": strange}))
    assert entry["bytes"] is None
    assert json.loads(entry["stages"])[0]["state"] in ("ended", "reused")
