"""What is shown of a pipeline follows from the logs: strip, quality and size, family."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from agent_forge.cli.panels import MARKS
from agent_forge.events import Envelope
from agent_forge.pipeline import plan
from agent_forge.pipeline.decide import due
from agent_forge.pipeline.events import GateOverridden, PhaseEnded, PipelineState
from agent_forge.pipeline.kind import PipelineKind
from agent_forge.pipeline.panels import along
from agent_forge.runs import kinds
from agent_forge.runs.event_types import Figure
from agent_forge.runs.history import repository
from agent_forge.runs.panels.panels import Graph, Lines
from agent_forge.runs.panels.stages import Stage, Standing
from agent_forge.runs.record.events import Cancelled, Paused, Retried
from agent_forge.runs.record.lineage import Child, Line
from testing.toy.toy_kind import KNOWN
from testing.toy.toy_state import Started, StepCompleted, Submitted, ToyConfig, ToyState
from tests.unit.runs.test_pipelines import (
    GOOD,
    MERGE,
    PHASES,
    end,
    follow,
    measured,
    model,
    standard,
    world,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "pipeline-1.jsonl"
KIND = PipelineKind()
BYTES = {"bytes": Figure(value=800), "size": Figure(value=0.5)}
BITS = {"bits_per_byte": Figure(value=2.0, low=1.9, high=2.1, n=30)}


def golden() -> list[Envelope]:
    """Return the rows of the recorded pipeline."""
    return [Envelope(**json.loads(line)) for line in GOLDEN.read_text("utf-8").splitlines()]


def line(place: int, type_: str = "counted") -> Line:
    """Return an event of a child."""
    return Line(place, place, type_, False, "ada", "2026-11-26T03:42:05+00:00", "", None)


def child(task: str, run: str, steps: int = 0, *events: Any) -> Child:
    """Return a child that counts to 4, of which `steps` are done; then the events."""
    state = ToyState()
    state.take(Submitted(run=run, owner="ada", config=ToyConfig(steps=4)), key=f"{run}/submitted")
    if steps:
        state.take(Started(warnings=(), arithmetic="1"), key=f"{run}/start")
    for step in range(steps):
        state.take(StepCompleted(step=step, total=1), key=f"{run}/step/{step}")
    for event in events:
        state.take(event, key=f"{run}/asked")
    return Child(task, state, [line(1, "submitted")])


def told(state: PipelineState, children: list[Child] | None = None) -> list[str]:
    """Return how each phase stands."""
    return [stage.state for stage in along.stages(state, children)]


def only(state: PipelineState, number: int, children: list[Child] | None = None) -> Stage:
    """Return one phase as a stage."""
    return along.stages(state, children)[number - 1]


def panel(state: PipelineState, name: str) -> Any:
    """Return a panel of the pipeline, by its own log; None if there is none of the name."""
    return next((one for one in KIND.view.panels(state) if one.name == name), None)


# ---- the strip -------------------------------------------------------------------------------


def test_the_recorded_pipeline_stands_at_each_event_as_it_did() -> None:
    """Stopped, overridden, cancelled, tried again, passed unchanged: all of it from the log alone."""
    rows = golden()
    seen = {place: told(repository.fold(rows[:place])) for place in (1, 2, 3, 4, 7, 9, 11, 18)}
    assert seen == {
        1: ["waiting", "waiting"],
        2: ["running", "waiting"],
        3: ["ended", "waiting"],
        4: ["gate stopped", "waiting"],
        7: ["overridden", "running"],
        9: ["overridden", "cancelled"],
        11: ["overridden", "measuring"],
        18: ["overridden", "passed unchanged"],
    }


def test_a_gate_is_told_in_at_most_four_words_with_its_figure() -> None:
    state = repository.fold(golden())
    first, second = along.stages(state, None)
    assert (first.gate, second.gate) == ("gate overridden", "gate not met")
    assert first.figure is not None
    assert first.figure.metric.better == "up"
    assert first.figure.value == state.figures(1)["lead"].value
    rows = golden()
    every = {s.gate for n in range(1, 19) for s in along.stages(repository.fold(rows[:n]), None)}
    assert {"1 gate waits", "4 gates wait", "gate not met"} < every
    assert all(len(gate.split()) <= 4 for gate in every)


def test_a_phase_under_way_says_how_far_its_run_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The share is that of the run's own units at that moment; a run that has not started waits."""
    monkeypatch.setenv("FORGE_KINDS", KNOWN)
    state = world(PHASES)
    one = only(state, 1, [child("phase/1", "p.1-a", 3)])
    assert (one.state, one.inside, one.runs) == ("running", 0.75, ("p.1-a",))
    assert only(state, 1, [child("phase/1", "p.1-a")]).state == "waiting"
    paused = only(state, 1, [child("phase/1", "p.1-a", 1, Paused())])
    assert (paused.state, paused.inside) == ("paused", None)
    assert told(state, []) == ["waiting"] * 3


def test_a_phase_that_trains_says_the_time_left_by_its_run_s_log() -> None:
    """As the run itself says it, at the same moment; before its first segment it says nothing."""
    text = (GOLDEN.parent / "cognate-3.jsonl").read_text("utf-8")
    rows = [Envelope(**json.loads(line)) for line in text.splitlines()]
    first = next(n for n, row in enumerate(rows) if row.type == "advanced")
    for upto, known in ((first, False), (first + 1, True)):
        run: Any = repository.fold(rows[:upto])
        one = only(world(PHASES), 1, [Child("phase/1", run, [line(1)])])
        assert (one.state, one.left_s is not None) == ("running", known)
        assert one.left_s == kinds.of("cognate").view.outlook(run, None).eta_s


def test_a_run_that_was_given_up_stands_behind_the_one_that_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A click opens the newest; the names in the timeline tell both apart."""
    monkeypatch.setenv("FORGE_KINDS", KNOWN)
    state = world(PHASES)
    first = child("phase/1", "p.1-a", 1, Cancelled(reason="a try"))
    state.take(plan.returned(state, due(state).tasks[0], first.state), key="p/phase/1")
    follow(state)
    assert told(state) == ["cancelled", "waiting", "waiting"]
    state.take(Retried(), key="p/retried/1")
    assert told(state)[0] == "running"
    both = [first, child("phase/1/1", "p.1-a-1", 2)]
    one = only(state, 1, both)
    assert (one.state, one.inside, one.runs) == ("running", 0.5, ("p.1-a-1", "p.1-a"))
    assert along.names(state, both) == {"p.1-a": "1 a", "p.1-a-1": "1 a, run 2"}


def test_a_phase_that_is_measured_is_under_way_and_fails_with_its_measurement() -> None:
    state = standard(PHASES[0], MERGE)
    end(state, 1, base=model("1"), code=model("2"))
    end(state, 2, champion=model("3"))
    assert told(state) == told(state, []) == ["ended", "measuring"]
    assert only(state, 2).gate == "3 gates wait"
    [task] = due(state).tasks
    state.take(plan.refused(state, task, "no text"), key=f"p/{task.key}")
    follow(state)
    assert told(state) == ["ended", "failed"]


def test_a_stopped_gate_says_interval_and_limit_until_it_is_overridden() -> None:
    state = standard(PHASES[0], MERGE)
    end(state, 1, base=model("1"), code=model("2"))
    end(state, 2, champion=model("3"))
    measured(state, 2, **{**GOOD, "retention": Figure(value=0.9, low=0.8, high=1.0)})
    assert (only(state, 2).state, only(state, 2).gate) == ("gate stopped", "gate not met")
    gate = panel(state, "gates").gates[0]
    assert (gate.low, gate.high, gate.limit, gate.verdict) == (0.8, 1.0, 0.95, "stop")
    words = "quality kept of the best input is 90 % (80 % to 100 %), and must be at least 95 %"
    assert gate.reason == words
    state.take(GateOverridden(phase=2, reason="good enough"), key="p/gate_overridden/1")
    assert (only(state, 2).state, only(state, 2).gate) == ("overridden", "gate overridden")
    gate = panel(state, "gates").gates[0]
    assert (gate.verdict, gate.reason) == ("overridden", "good enough")


# ---- quality and size ------------------------------------------------------------------------


def test_only_what_was_measured_has_a_point() -> None:
    """The best input's bits per byte are the model's times `retention`; bytes likewise."""
    state = standard(PHASES[0], MERGE)
    assert panel(state, "quality") is panel(state, "bytes") is None
    end(state, 1, base=model("1"), code=model("2"))
    end(state, 2, champion=model("3"))
    measured(state, 2, **GOOD, **BITS, **BYTES)
    quality, sizes = panel(state, "quality"), panel(state, "bytes")
    assert isinstance(quality, Lines)
    own, best = quality.series
    begun = pytest.approx(2.0 * 1.02)
    assert (own.x, own.y, own.low, own.high) == ((1, 2), (begun, 2.0), (None, 1.9), (None, 2.1))
    assert best.y == (None, begun)
    assert quality.x.names == ("beginning", "a", "b")
    own, largest = sizes.series
    assert (own.y, own.low, largest.y) == ((1600, 800), None, (None, 1600))


def test_the_head_has_bits_per_byte_of_a_result_that_goes_on() -> None:
    state = standard(PHASES[0], MERGE)
    assert KIND.view.head(state).result is None
    end(state, 1, base=model("1"), code=model("2"))
    end(state, 2, champion=model("3"))
    measured(state, 2, **GOOD, **BITS)
    result = KIND.view.head(state).result
    assert result is not None
    assert (result.name, result.value, result.n) == ("b:champion, after phase 2", 2.0, 30)
    passed = KIND.view.head(repository.fold(golden()))
    assert passed.result is None  # its input went on, which is the result
    assert [fact.value for fact in passed.facts if fact.name == "result"] == [
        "specialists:base, passed on unchanged by merge"
    ]


# ---- a branch that no later phase takes ------------------------------------------------------

#: A ternary training of the merged model; its run has figures of its own, and it gives two models.
TERNARY = {"name": "t", "kind": "bitnet", "models": {"model": "b:champion"}}
LAST = {"name": "c", "kind": "evomerge", "models": {"base": "b:champion"}}
OWN = {
    "bits_per_byte": Figure(value=3.0, low=2.9, high=3.1, n=972),
    "retention": Figure(value=0.9, low=0.8, high=0.95),
}


def branched() -> PipelineState:
    """Return a pipeline whose third phase is given to no other, at its fourth."""
    state = standard(PHASES[0], MERGE, TERNARY, LAST)
    end(state, 1, base=model("1"), code=model("2"))
    end(state, 2, champion=model("3"))
    measured(state, 2, **GOOD, **BITS, **BYTES)
    [task] = due(state).tasks
    models = {"model": model("4"), "master": model("5")}
    child = {"child": task.run, "child_version": 1, "child_head": "0" * 64, "lineage": "0" * 64}
    event = PhaseEnded(**child, phase=3, name="t", models=models, figures=OWN)
    state.take(event, key=f"p/{task.key}")
    follow(state)
    return state


def test_a_model_that_only_its_run_has_measured_has_a_row_and_goes_nowhere() -> None:
    """The chart has its point, so the table has its row; no phase is given it."""
    state = branched()
    rows = {row[0]: row[1:] for row in panel(state, "ladder").rows}
    alone = ("3 (2.900 to 3.100) by its own run", "–", "–", "no: no phase is given it")
    assert rows["t"] == alone
    assert rows["b"][-1] == "yes"
    assert [stage.aside for stage in along.stages(state, None)] == [False, False, True, False]
    result = KIND.view.head(state).result
    assert result is not None
    assert result.called == "b:champion"


def test_the_best_input_is_that_of_the_measurement() -> None:
    """A phase's own `retention` may be over another model, as over continued training."""
    quality = panel(branched(), "quality")
    own, best = quality.series
    assert (own.x, own.y[-2], best.y[-2:]) == ((1, 2, 3, 4), 3.0, (None, None))
    assert quality.says.endswith("t: measured by the phase's own run, on its own items.")


# ---- gates in words --------------------------------------------------------------------------


def test_the_nearest_gate_is_the_one_whose_interval_comes_nearest_to_its_limit() -> None:
    """1.02 − 0.95 is 3.5 times 1.02 − 1.0, and 0.05 − 0.01 is 4 times 0.02 − 0.01."""
    state = standard(PHASES[0], MERGE)
    end(state, 1, base=model("1"), code=model("2"))
    end(state, 2, champion=model("3"))
    measured(state, 2, **GOOD)
    assert panel(state, "gates").says == (
        "3 of 3 passed; nearest to its limit: b: quality kept of the best input, 3.5 times as far from "
        "it as from the end of its 95 % interval. A figure with a baseline is measured on documents "
        "that no phase may choose by, any other by the phase's own run."
    )


def test_an_event_calls_a_gate_as_the_table_does() -> None:
    """`retention` of a compression is another figure than that of its measurement."""
    small = {"name": "s", "kind": "compression", "models": {"model": "a:base"}}
    state = standard(PHASES[0], small, gates=[{"metric": "retention", "at_least": 0.95}])
    end(state, 1, base=model("1"))
    end(state, 2, model=model("2"))
    [decided] = state.gates[2]
    told = KIND.view.summary_line(
        "gate_decided", decided.model_dump(mode="json"), KIND.view.names(state)
    )
    assert told == "phase s: quality kept of the given model: stop"
    assert panel(state, "gates").gates[0].metric.name == "quality kept of the given model"


@pytest.mark.parametrize(
    ("limit", "words"), [(0.01, "at least 0.01"), (0.125, "at least 0.125"), (2.0, "at least 2")]
)
def test_a_limit_stands_as_it_was_set(limit: float, words: str) -> None:
    gate = {"metric": "lead", "at_least": limit}
    state = world([{**PHASES[0]}, {**PHASES[1], "gates": [gate]}])
    end(state, 1, base=model("1"), code=model("2"))
    end(state, 2, champion=model("3"))
    assert panel(state, "gates").gates[0].reason.endswith(f"is −1, and must be {words}")


# ---- the family ------------------------------------------------------------------------------


def test_models_stand_in_the_lanes_of_their_phases_and_only_the_way_of_the_last_is_ours() -> None:
    """The merge was passed by, so that its input is the result, and what that was made from."""
    graph = panel(repository.fold(golden()), "family")
    assert isinstance(graph, Graph)
    lanes = {node.name: (node.lane, node.column) for node in graph.nodes}
    assert lanes["small.jsonl"] == ("given", 0)
    assert lanes["specialists:base"] == ("1 specialists", 1)
    assert lanes["merge:champion"] == ("2 merge", 2)
    assert {node.name for node in graph.nodes if node.ours} == {"small.jsonl", "specialists:base"}
    names = {node.id: node.name for node in graph.nodes}
    into = {names[e.source] for e in graph.edges if names[e.target] == "merge:champion"}
    assert into == {f"specialists:{role}" for role in ("base", "code", "math", "data")}
    assert {node.run for node in graph.nodes if node.lane == "2 merge"} == {"p.2-merge-1"}


def test_a_pipeline_that_has_not_begun_shows_its_phases_and_no_family() -> None:
    state = world(PHASES)
    assert [one.name for one in KIND.view.panels(state)] == ["strip", "gates", "phases"]


def test_a_terminal_has_a_mark_for_every_state_of_a_phase() -> None:
    """A state without a mark would end `forge show`."""
    assert set(MARKS) == set(get_args(Standing))
