"""`examples/speedrun.toml` in miniature: its phases, roles, data and gates fit together, to the end."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_forge.pipeline.events import PipelineState
from agent_forge.runs import kinds
from agent_forge.runs.history import audit, repository
from agent_forge.runs.kinds.asked import Lookup, RunRequest
from agent_forge.runs.kinds.state import fold_into
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.tasks import runner
from testing.miniatures import pipeline_runs, speedruns
from testing.worlds.finished_run import FinishedTraining
from tests.integration.cli.test_forge import call

KINDS = [
    *("cognate", "evomerge", "quietstar", "bitnet"),
    *("curriculum", "bake", "baking", "experts", "compression"),
]


def test_the_phases_stand_in_the_order_of_the_source_documents() -> None:
    """And whatever a phase after the merge does, it cannot stop the pipeline."""
    planned = kinds.of("pipeline").plan(RunRequest("pipeline", speedruns.example()), Lookup())
    config: Any = planned.config
    assert [phase.kind for phase in config.phases] == KINDS
    for phase in (config.phases[2], *config.phases[4:8]):
        assert {gate.metric for gate in phase.gates} > {"retention", "regression", "cumulative"}
        assert {gate.otherwise for gate in phase.gates} == {"pass unchanged"}
    with_gain = {phase.kind: phase.gates[0].metric for phase in config.phases[4:8]}
    wanted = {"curriculum": "gain", "bake": "ratio", "baking": "gain", "experts": "gain"}
    assert with_gain == wanted


@pytest.mark.slow
def test_in_miniature_it_comes_to_its_end(finished_training: FinishedTraining, tmp_path: Path) -> None:
    """A phase without a gain hands on the model that it was given, to the last bit."""
    home = finished_training()
    pipeline_runs.submit(home, speedruns.phases(), reuse=True)
    with closing(home.open_store()) as store:
        state = runner.finish(runner.WorkerProcess(store, Artifacts.of(home)), "p")
        names = ["p", *(f"p.{n}-{name}" for n, name in enumerate(speedruns.SMALLER, 1) if n > 1)]
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
    assert "verified." in call(home.folder, "verify", "p").output
    kinds.of("pipeline").write_result(home, state, tmp_path / "out")
    assert (tmp_path / "out" / "small" / "model.forge").is_file()
