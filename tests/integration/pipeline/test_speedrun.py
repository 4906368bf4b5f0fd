"""`examples/speedrun.toml` in miniature: its phases, roles, data and gates fit together, to the end."""

from __future__ import annotations

import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pipeline.events import PipelineState
from runs import kinds
from runs.history import audit, repository
from runs.kinds.asked import Asked, Lookup
from runs.kinds.state import fold_into
from testing.miniatures import pipeline_runs, small_text
from testing.worlds.finished_run import FinishedTraining
from testing.worlds.runs import REPOSITORY
from weights.storage.weight_cache import Artifacts
from worker.tasks import runner

KINDS = [
    *("cognate", "evomerge", "quietstar", "bitnet"),
    *("curriculum", "bake", "baking", "experts", "compression"),
]
#: Phase → settings by which it takes seconds. Models have 64 tokens.
SMALLER: dict[str, dict[str, Any]] = {
    "specialists": {"preset": "mini", "domains": small_text.DOMAINS},
    "merge": pipeline_runs.PHASES[1]["settings"],
    "thoughts": {
        "tokens": 300,
        "base_tokens": 300,
        "batch": 2,
        "context": 16,
        "thought_lengths": [2],
        "document_tokens": 24,
        "measured_tokens": 200,
        "characters": 500_000,
    },
    "ternary": {"tokens": 2_000, "characters": 500_000},
    "learned": {
        "levels": 1,
        "tokens": 6_000,
        "segments": 2,
        "pool": 16,
        "selection_items": 8,
        "test_items": 8,
    },
    "prompt": {
        "context_tokens": 12,
        "reply_tokens": 12,
        "trajectories": 8,
        "held_out": 8,
        "steps": 3,
        "batch": 4,
        "characters": 500_000,
        "generic": False,
    },
    "tools": {
        "tool_prompt": "Tools!\n",
        "others": ["x\n"],
        "train_items": 8,
        "selection_items": 4,
        "test_items": 8,
        "personas": 2,
        "persona_tokens": 4,
        "reply_tokens": 12,
        "steps": 3,
        "characters": 500_000,
    },
    "mixed": {
        "tokens": 1_000,
        "characters": 500_000,
        "context": 48,
        "experts": 1,
        "evaluations": 8,
        "population": 4,
        "windows": 2,
        "shots": 2,
        "rounds": 1,
        "points": 4,
        "lora": False,
    },
    "small": {"settings": "rtn-4,uniform-1"},
}


def example() -> dict[str, Any]:
    """The file, as it is."""
    return tomllib.loads((REPOSITORY / "examples" / "speedrun.toml").read_text("utf-8"))


def smaller() -> list[dict[str, Any]]:
    """Its phases with these settings, on a small text; models without a lead go on, too."""
    phases = example()["phase"]
    for phase in phases:
        phase["settings"] = {**phase.get("settings", {}), **SMALLER[phase["name"]]}
    phases[0]["data"] = [str(small_text.file())]
    phases[0]["gate"][0]["at_least"] = phases[1]["gate"][0]["at_least"] = -10
    return phases


def test_the_phases_stand_in_the_order_of_the_source_documents() -> None:
    """And whatever a phase after the merge does, it cannot stop the pipeline."""
    planned = kinds.of("pipeline").plan(Asked("pipeline", example()), Lookup())
    config: Any = planned.config
    assert [phase.kind for phase in config.phases] == KINDS
    for phase in (config.phases[2], *config.phases[4:8]):
        assert {gate.metric for gate in phase.gates} > {"retention", "regression", "cumulative"}
        assert {gate.otherwise for gate in phase.gates} == {"pass unchanged"}
    with_gain = {phase.kind: phase.gates[0].metric for phase in config.phases[4:8]}
    wanted = {"curriculum": "gain", "bake": "ratio", "baking": "gain", "experts": "gain"}
    assert with_gain == wanted


@pytest.mark.slow
def test_in_miniature_it_comes_to_its_end(
    finished_training: FinishedTraining, tmp_path: Path
) -> None:
    """A phase without a gain hands on the model that it was given, to the last bit."""
    home = finished_training()
    pipeline_runs.submit(home, smaller(), reuse=True)
    with closing(home.open_store()) as store:
        state = runner.finish(runner.Worker(store, Artifacts.of(home)), "p")
        names = ["p", *(f"p.{n}-{name}" for n, name in enumerate(SMALLER, 1) if n > 1)]
        rows = {name: list(repository.history(store, name)) for name in names}
    assert isinstance(state, PipelineState)
    assert [audit.audit(some) for some in rows.values()] == [[]] * 9
    merged = state.ended_phase(2)
    assert merged is not None
    given = merged.models["champion"].digest
    for number, name in enumerate(names[2:], 3):
        kind = kinds.of(KINDS[number - 1])
        child: Any = fold_into(kind.state(), rows[name])
        read = child.started.source if name == "p.9-small" else child.started.model
        assert read.digest == given
        verdicts = {gate.verdict for gate in state.gates[number]}
        assert verdicts <= {"pass", "pass unchanged"}
        ended = state.ended_phase(number)
        assert ended is not None
        if verdicts == {"pass"} and name != "p.4-ternary":  # a branch
            given = ended.models["model"].digest
    # Models this small solve no task, and nothing of the tools can be baked: the null is told.
    gain = next(gate for gate in state.gates[7] if gate.gate.metric == "gain")
    assert gain.figure is not None
    assert (gain.figure.value, gain.verdict) == (0.0, "pass unchanged")
    assert state.completed.models["model"].digest == given
    kinds.of("pipeline").write_result(home, state, tmp_path / "out")
    assert (tmp_path / "out" / "small" / "model.forge").is_file()
