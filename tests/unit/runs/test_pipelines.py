"""What a pipeline decides from its log alone: models that pass unchanged, models that are not there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_forge.events import Envelope
from agent_forge.phases import measure
from agent_forge.pipeline import plan
from agent_forge.pipeline.config import GateConfig, PipelineConfig
from agent_forge.pipeline.decide import due
from agent_forge.pipeline.events import (
    Completed,
    GateDecided,
    PassedThrough,
    PhaseEnded,
    PhaseFailed,
    PhaseMeasured,
    PipelineState,
    Started,
    Submitted,
)
from agent_forge.pipeline.report import markdown
from agent_forge.runs import kinds
from agent_forge.runs.event_types import Figure, MadeModel, ModelReference, Profile, SourceRecord
from agent_forge.runs.history import children
from agent_forge.runs.history.repository import fold
from agent_forge.runs.kinds.decide import Delegate
from agent_forge.runs.kinds.state import State
from agent_forge.runs.record.events import Failed, Retried
from tests.golden.test_golden import rows_of
from tests.golden.test_golden_kinds import FOLDER as GOLDEN
from tests.golden.test_golden_kinds import LOGS

PHASE_LOGS = [path for path in LOGS if not path.stem.startswith("pipeline")]

GATE = {"metric": "lead", "at_least": 0.0, "otherwise": "pass unchanged"}
PHASES = [
    {"name": "a", "kind": "cognate"},
    {"name": "b", "kind": "evomerge", "models": {"base": "a:base"}, "gates": [GATE]},
    {"name": "c", "kind": "evomerge", "models": {"base": "b:champion"}, "gates": [GATE]},
]


def measurement(documents: dict[str, int] | None = None, **roles: str) -> State:
    """Return a measurement that has started; each digit of a role is a model."""
    state = measure.Measure.state()
    given = {
        role: tuple(ModelReference(name=x, path=f"/models/{x}") for x in letters)
        for role, letters in roles.items()
    }
    state.take(measure.Submitted(run="m", owner="ada", config=measure.MeasureConfig(), **given))
    every = dict.fromkeys("".join(roles.values()))
    sources = (
        SourceRecord(name=x, recipe_id=x * 64, digest=x * 64, sketch="", parameters=9) for x in every
    )
    names = ("device", "dtype", "attention", "machine", "torch", "transformers", "numpy")
    profile = Profile(**dict.fromkeys(names, "x"), threads=1, batch_tokens=1)
    state.take(
        measure.Started(
            warnings=(),
            sources=tuple(sources),
            roles={role: tuple(x * 64 for x in letters) for role, letters in roles.items()},
            data_digest="0" * 64,
            documents=documents or {"a": 2},
            bytes={x * 64: 36 for x in every},
            profile=profile,
        )
    )
    return state


def model(letter: str) -> MadeModel:
    """Return a model that is told apart by one digit."""
    return MadeModel(recipe_id=letter * 64, digest=letter * 64)


def world(
    phases: list[dict], given: dict[str, ModelReference] | None = None, **settings: Any
) -> PipelineState:
    """Return a pipeline that has started; without gates for all phases unless `settings` has some."""
    state = PipelineState()
    config = PipelineConfig.model_validate({"phases": phases, "gates": [], **settings})
    state.take(Submitted(run="p", owner="ada", config=config, given=given or {}), key="p/submitted")
    state.take(Started(warnings=()), key="p/started")
    return state


def end(state: PipelineState, number: int, value: float = -1.0, **models: MadeModel) -> None:
    """Record that a phase's run has completed, and all facts that follow until the next task."""
    [task] = due(state).tasks
    event = PhaseEnded(
        child=task.run,
        child_version=1,
        child_head="0" * 64,
        phase=number,
        name=state.submitted.config.phase(number).name,
        lineage="0" * 64,
        models=models,
        figures={"lead": Figure(value=value)},
    )
    state.take(event, key=f"p/{task.key}")
    follow(state)


def measured(state: PipelineState, number: int, **figures: Figure) -> None:
    """Record a phase's measurement, and all facts that follow until the next task."""
    [task] = due(state).tasks
    event = PhaseMeasured(
        child=task.run,
        child_version=1,
        child_head="0" * 64,
        phase=number,
        name=state.submitted.config.phase(number).name,
        lineage="0" * 64,
        figures=figures,
    )
    state.take(event, key=f"p/{task.key}")
    follow(state)


def follow(state: PipelineState) -> None:
    """Record all facts that follow until the next task."""
    while not state.ended and (facts := due(state).facts):
        for new in facts:
            state.take(new.event, key=new.key)


def test_a_model_that_passes_two_phases_unchanged_is_the_first_one() -> None:
    """A role of a phase that was passed by means what passed by."""
    state = world(PHASES)
    end(state, 1, base=model("1"), code=model("2"))
    end(state, 2, champion=model("3"))
    assert isinstance(state.passed[2], PassedThrough)
    assert due(state).tasks[0].asked.models == {"base": [f"p.1-a:{'1' * 64}"]}
    end(state, 3, champion=model("4"))
    assert isinstance(state.completed, Completed)
    assert state.completed.models == {"": model("1")}
    assert plan.outgoing(state, 3) == {"": ("p.1-a", model("1"))}


def test_a_given_model_that_passes_all_phases_is_no_model_of_the_pipeline() -> None:
    given = {"G": ModelReference(name="G", path="/models/g")}
    first = {**PHASES[1], "models": {"base": "G"}}
    state = world([first, PHASES[2]], given)
    assert due(state).tasks[0].asked.models == {"base": ["/models/g"]}
    end(state, 1, champion=model("3"))
    assert due(state).tasks[0].asked.models == {"base": ["/models/g"]}
    end(state, 2, champion=model("4"))
    assert state.completed.models == {}


@pytest.mark.parametrize("reference", ["a:law", "a"])
def test_a_phase_whose_model_is_not_there_fails_and_is_named(reference: str) -> None:
    """Roles are checked before the start; a kind may give others all the same."""
    state = world([PHASES[0], {**PHASES[1], "models": {"base": reference}}])
    end(state, 1, base=model("1"), code=model("2"))
    assert isinstance(state.failed, Failed)
    assert state.failed.reason == f"phase b: it is given {reference}, and there is no such model"


@pytest.mark.parametrize(
    ("gate", "figure", "passes"),
    [
        ({"at_least": 0.0}, (0.1, None, None), True),
        ({"at_least": 0.0}, (0.1, -0.01, 0.2), False),
        ({"at_least": 0.1}, (0.1, 0.1, 0.1), True),
        ({"at_most": 0.05}, (0.04, 0.03, 0.06), False),
        ({"at_most": 0.05}, (0.04, 0.03, 0.05), True),
    ],
)
def test_the_worse_end_of_an_interval_meets_the_limit(gate, figure, passes: bool) -> None:
    assert GateConfig(metric="lead", **gate).meets(*figure) is passes


def test_a_figure_that_is_not_there_stops() -> None:
    state = world([{**PHASES[0], "gates": [{"metric": "other", "at_least": 0.0}]}])
    end(state, 1, base=model("1"), code=model("2"))
    [decided] = state.gates[1]
    assert isinstance(decided, GateDecided)
    assert (decided.figure, decided.verdict) == (None, "stop")
    assert "other was not measured" in state.failed.reason


# ---- measured gates --------------------------------------------------------------------------

#: A phase of given models behind one that makes them, with the pipeline's gates alone.
MERGE = {"name": "b", "kind": "evomerge", "models": {"base": "a:base", "sources": ["a:code", "a:base"]}}
GOOD = {
    "retention": Figure(value=1.02, low=1.0, high=1.04),
    "regression": Figure(value=0.01, low=0.0, high=0.02),
    "cumulative": Figure(value=1.02, low=1.0, high=1.04),
}


def standard(*phases: dict, **settings: Any) -> PipelineState:
    """Return a pipeline with the gates that every pipeline has."""
    whole = PipelineConfig.model_validate({"phases": phases, **settings})
    return world([*phases], gates=whole.gates, test=whole.test)


def test_a_model_made_of_given_ones_is_measured_beside_them_and_the_first_ones() -> None:
    """On the items of the first phase that has any; what makes several models is not measured."""
    state = standard(PHASES[0], MERGE)
    end(state, 1, base=model("1"), code=model("2"))
    assert 1 not in state.gates
    end(state, 2, champion=model("3"))
    [task] = due(state).tasks
    assert (task.key, task.run, task.asked.kind) == ("measure/2", "p.2-b-test", "measure")
    one, two = f"p.1-a:{'1' * 64}", f"p.1-a:{'2' * 64}"
    assert task.asked.models == {
        "model": [f"p.2-b:{'3' * 64}"],
        "against": [one, two],
        "first": [one, two],
    }
    assert task.asked.data == ["p.1-a:items"]
    measured(state, 2, **GOOD)
    assert [(g.gate.metric, g.verdict) for g in state.gates[2]] == [
        ("retention", "pass"),
        ("regression", "pass"),
        ("cumulative", "pass"),
    ]
    assert isinstance(state.completed, Completed)


def test_a_gate_says_the_same_figure_of_the_phase_s_best_input() -> None:
    """Bits per byte of 2.0 at a retention of 1.1: the input had 2.2, and kept 1.32 / 1.1 so far."""
    own = [{"metric": name, "at_most": 1e9} for name in ("bits_per_byte", "bytes", "size", "lead")]
    state = standard(PHASES[0], {**MERGE, "gates": own})
    end(state, 1, base=model("1"), code=model("2"))
    end(state, 2, champion=model("3"))
    told = {
        "retention": 1.1,
        "regression": -0.1,
        "cumulative": 1.32,
        "bits_per_byte": 2.0,
        "bytes": 50.0,
        "size": 0.25,
    }
    measured(state, 2, **{name: Figure(value=value) for name, value in told.items()})
    found = {one.gate.metric: one.baseline for one in state.gates[2]}
    assert found.pop("lead") is None, "the phase's own run has measured it"
    assert found == pytest.approx(
        {
            "bits_per_byte": 2.2,
            "bytes": 200.0,
            "size": 1.0,
            "retention": 1.0,
            "regression": 0.0,
            "cumulative": 1.2,
        }
    )


@pytest.mark.parametrize(
    ("name", "figure"),
    [
        ("retention", Figure(value=0.96, low=0.94, high=0.98)),
        ("regression", Figure(value=0.04, low=0.03, high=0.06)),
        ("cumulative", Figure(value=0.85, low=0.83, high=0.87)),
    ],
)
def test_each_of_the_three_gates_stops_by_the_worse_end(name: str, figure: Figure) -> None:
    state = standard(PHASES[0], MERGE)
    end(state, 1, base=model("1"), code=model("2"))
    end(state, 2, champion=model("3"))
    measured(state, 2, **{**GOOD, name: figure})
    assert isinstance(state.failed, Failed)
    assert f"the gate of phase b stopped it: {name} is" in state.failed.reason


def test_a_phase_s_own_gate_takes_the_place_of_the_pipeline_s() -> None:
    own = {"metric": "retention", "at_least": 1.5, "otherwise": "pass unchanged"}
    state = standard(PHASES[0], {**MERGE, "gates": [own], "unchanged": "a:base"})
    end(state, 1, base=model("1"), code=model("2"))
    end(state, 2, champion=model("3"))
    measured(state, 2, **GOOD)
    assert [g.gate.metric for g in state.gates[2]] == ["retention", "regression", "cumulative"]
    assert state.gates[2][0].verdict == "pass unchanged"
    assert state.completed.models == {"": model("1")}


def test_without_items_only_a_phase_s_own_gates_are_left() -> None:
    given = {"G": ModelReference(name="G", path="/models/g")}
    first = {**PHASES[1], "models": {"base": "G"}}
    state = world([first], given, gates=standard(PHASES[0]).submitted.config.gates)
    end(state, 1, champion=model("3"))
    assert [g.gate.metric for g in state.gates[1]] == ["lead"]


def test_items_of_a_later_phase_are_nothing_to_measure_on() -> None:
    """Such a pipeline is refused when it is submitted; decisions cannot depend on that."""
    given = {"G": ModelReference(name="G", path="/models/g")}
    first = {**PHASES[1], "name": "z", "models": {"base": "G"}}
    gates = [{"metric": "retention", "at_least": 1}]
    state = world([first, PHASES[0]], given, test="a:items", gates=gates)
    end(state, 1, champion=model("3"))
    assert [g.gate.metric for g in state.gates[1]] == ["lead"]


def test_a_measurement_that_fails_fails_the_pipeline_and_is_begun_again_by_a_retry() -> None:
    state = standard(PHASES[0], MERGE)
    end(state, 1, base=model("1"), code=model("2"))
    end(state, 2, champion=model("3"))
    [task] = due(state).tasks
    state.take(plan.refused(state, task, "no text"), key=f"p/{task.key}")
    assert isinstance(state.answers["measure/2"], PhaseFailed)
    follow(state)
    assert state.failed.reason == (
        "phase b: the measurement p.2-b-test could not be submitted: no text"
    )
    state.take(Retried(), key="p/retried/1")
    [task] = due(state).tasks
    assert (task.key, task.run) == ("measure/2/1", "p.2-b-test-1")


# ---- reuse -----------------------------------------------------------------------------------


def _measurable() -> tuple[PipelineState, Delegate]:
    """Return a pipeline whose second phase is to be measured, and the task of that."""
    state = standard(PHASES[0], MERGE)
    end(state, 1, base=model("1"), code=model("2"))
    end(state, 2, champion=model("3"))
    [task] = due(state).tasks
    return state, task


@pytest.mark.parametrize(
    ("roles", "said"),
    [
        ({"model": "3", "against": "12", "first": "12"}, None),
        ({"model": "4", "against": "12", "first": "12"}, "other models as model"),
        ({"model": "3", "against": "21", "first": "12"}, "other models as against"),
        ({"model": "3", "against": "1", "first": "12"}, "other models as against"),
        ({"model": "3", "against": "12"}, "other models as first"),
    ],
)
def test_a_run_is_taken_only_if_it_was_given_the_models_of_the_phases_before(
    roles: dict[str, str], said: str | None
) -> None:
    """By the digests of their weights, role by role: their names tell nothing."""
    state, task = _measurable()
    found = plan.unlike(state, task, measurement(**roles))
    assert found == (said and f"phase b asks for {said}")


def test_a_run_with_another_model_than_the_one_that_was_named_is_not_taken() -> None:
    """A model of an earlier run is named with its digest when the pipeline is submitted."""
    given = {"G": ModelReference(name="G", path="/models/g", digest="5" * 64)}
    phases = [{"name": "a", "kind": "measure", "models": {"model": "G"}}]
    state = world(phases, given)
    [task] = due(state).tasks
    assert plan.unlike(state, task, measurement(model="5")) is None
    assert plan.unlike(state, task, measurement(model="6")) == (
        "phase a asks for other models as model"
    )


def test_another_setting_or_kind_is_another_run() -> None:
    phases = [{"name": "a", "kind": "measure", "settings": {"seed": 4}, "models": {"model": "G"}}]
    state = world(phases, {"G": ModelReference(name="G", path="/models/g")})
    [task] = due(state).tasks
    assert plan.unlike(state, task, measurement(model="5")) == "phase a asks for other settings"
    other, task = _measurable()
    assert plan.unlike(other, replace(task, key="phase/2"), measurement(model="5")) == (
        "phase b asks for a merging run"
    )


@pytest.mark.parametrize("path", PHASE_LOGS, ids=lambda path: path.stem)
def test_a_run_of_an_earlier_version_is_what_its_phase_asked_for(path: Path) -> None:
    """Settings that it did not have yet are as its version had them, not as today's defaults."""
    rows = rows_of(path)
    child, own = fold(rows), json.loads(rows[0].data)["config"]
    state, task = _asking(child.kind, own)
    assert plan.asked_otherwise(state, task, child) is None
    state, task = _asking(child.kind, {**own, "seed": own["seed"] + 1})
    assert plan.asked_otherwise(state, task, child) == "phase a asks for other settings"


def test_a_setting_that_a_run_did_not_have_is_another_if_the_phase_names_it() -> None:
    rows = rows_of(GOLDEN / "experts-2.jsonl")
    child, own = fold(rows), json.loads(rows[0].data)["config"]
    assert "elite" not in own
    for elite, said in ((0, None), (5, "phase a asks for other settings")):
        state, task = _asking("experts", {**own, "elite": elite})
        assert plan.asked_otherwise(state, task, child) == said


def _asking(kind: str, settings: dict[str, Any]) -> tuple[PipelineState, Delegate]:
    """Return a pipeline with a phase of these settings, and its task."""
    phases = [{"name": "a", "kind": kind, "settings": settings, "models": {"model": "G"}}]
    state = world(phases, {"G": ModelReference(name="G", path="/models/g")})
    [task] = due(state).tasks
    return state, task


def test_equal_runs_have_one_identity_whatever_their_models_are_called() -> None:
    """A model of a pipeline is called after its run; that, notes and luck are no inputs."""
    first, second = measurement(model="1"), measurement(model="1")
    renamed = first.started.sources[0].model_copy(update={"name": "p.1-other"})
    second.started = first.started.model_copy(update={"sources": (renamed,), "warnings": ("x",)})
    assert children.identity(first, "v1") == children.identity(second, "v1")
    for other in (
        (measurement(model="2"), "v1"),
        (first, "v2"),
        (measurement(model="1", documents={"a": 3}), "v1"),
    ):
        assert children.identity(*other) != children.identity(first, "v1")


def test_specialists_of_the_data_s_domains_are_what_was_asked_for() -> None:
    """Domains that the settings leave out are those of the data."""
    cognate = kinds.of("cognate")
    made = cognate.settings.parse({"preset": "mini", "domains": ["law"]})
    assert cognate.settings.fit({"preset": "mini"}, made)
    assert not cognate.settings.fit({"preset": "mini", "domains": ["code"]}, made)
    assert not cognate.settings.fit({"preset": "tiny"}, made)


# ---- the report ------------------------------------------------------------------------------


def merged(cumulative: Figure, **gate: Any) -> str:
    """Return the report of a pipeline whose second phase's model was measured."""
    state = standard(PHASES[0], {**MERGE, "unchanged": "a:base", **gate})
    end(state, 1, base=model("1"), code=model("2"))
    end(state, 2, champion=model("3"))
    bits = Figure(value=2.0, low=1.9, high=2.1, n=30)
    measured(state, 2, **{**GOOD, "cumulative": cumulative, "bits_per_byte": bits})
    row = Envelope._make([1, "pipeline/p", *[None] * 9, "2026-01-01T10:00:00", "v", "", ""])
    return markdown(state, [row], {})


def test_the_report_says_what_the_input_had() -> None:
    """2.0 bits per byte, and a retention of 1.02: the input had 2.04."""
    text = merged(GOOD["cumulative"], gates=[{"metric": "bits_per_byte", "at_most": 3.0}])
    assert "must be at most 3 (its input's is 2.040): **" in text


def test_the_gain_over_the_beginning_is_told_in_words_with_its_interval() -> None:
    """1.25 times the bits of the result are needed by the best first model: 1/5 fewer."""
    text = merged(Figure(value=1.25, low=1.0 / 0.9, high=4 / 3, n=30))
    assert (
        "The model of phase b needs 20.0 % fewer bits per byte than the best model that the pipeline "
        "began with, on 30 documents that no phase may choose by (95 % interval: 10.0 % fewer bits per "
        "byte to 25.0 % fewer bits per byte)."
    ) in text
    assert "| the best at the beginning | 2.500 | 100 % |  |  |" in text
    assert "| b | 2 (1.900 to 2.100) | 125 % (111.1 % to 133.3 %) | – | it is the result |" in text


def test_a_gain_whose_interval_has_no_gain_in_it_may_be_noise() -> None:
    assert ": that may be noise." in merged(Figure(value=1.01, low=0.99, high=1.03, n=30))
    worse = merged(Figure(value=0.95, low=0.9, high=0.98, n=30))
    assert "needs 5.3 % more bits per byte" in worse
    assert "noise" not in worse


def test_what_a_phase_that_was_passed_by_would_have_gained_is_not_told_as_a_gain() -> None:
    """Its model does not go on: the ladder says so, and the opening says why."""
    gate = {"metric": "retention", "at_least": 1.5, "otherwise": "pass unchanged"}
    text = merged(Figure(value=1.25, low=1.2, high=1.3, n=30), gates=[gate])
    assert "The model of phase b needs" not in text
    assert "| no: its input goes on |" in text
    assert (
        "phase b passed it on unchanged, because quality kept of the best input is 102 % (100 % to "
        "104 %), and must be at least 150 %" in text
    )
    assert f"Its result is `a:base` (weights `{'1' * 12}`)" in text


def test_each_kind_tells_its_finding_in_sentences() -> None:
    """Of runs that have completed; the default is the head's result."""
    told: dict[str, list[str]] = {}
    for kind in ("cognate-2", "measure-1", "schema-1-1"):
        rows = rows_of(GOLDEN / f"{kind}.jsonl")
        state: Any = fold(rows)
        told[kind] = list(kinds.of(state.kind).view.summary(state, rows))
    assert told["cognate-2"][0].startswith("- The ")
    assert "the best other model on its own domain" in told["cognate-2"][0]
    kept = "- quality kept of the best input "
    assert any(line.startswith(kept) and " % (" in line for line in told["measure-1"])
    assert "generations had" in told["schema-1-1"][1]
