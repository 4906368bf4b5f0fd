"""A forged measurement, of any model by any measure, with all that follows: `--recompute` finds it.

Chain, decisions and result of such a log are in order (`testing/forging.py`).
"""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agent_forge.cli.main import forge
from agent_forge.events import Event
from agent_forge.evomerge.run.events import Evaluated
from agent_forge.evomerge.run.state import RunState
from agent_forge.runs.history.repository import measurements
from agent_forge.runs.home import Home
from testing import forging
from testing.miniatures import cognate_runs, pipeline_runs
from testing.shares import one_quick
from testing.worlds.finished_run import FinishedRun, FinishedTraining


def verify(home: Home, *words: str) -> tuple[int, str]:
    """Exit code and output of `forge verify`."""
    env = {"FORGE_HOME": str(home.folder), "FORGE_DATABASE_URL": ""}
    told = CliRunner(env=env).invoke(forge, ["verify", *words])
    return told.exit_code, told.output


def forged(home: Home, folder: Path, stream: str, task: str, change: Any) -> Home:
    """A copy of a home in which the answer to a task, and all that follows, is another one."""
    with closing(forging.Log(home.database, folder)) as log:
        forging.forge(log, stream, task, change)
    return log.home


def worse(event: Event) -> Event:
    """A model that predicts every text of a domain worse by 15 %: others win by it."""
    assert isinstance(event, Evaluated)
    domain, seen = next(iter(event.outcomes.items()))
    other = seen.model_copy(update={"nll": tuple(value * 1.15 for value in seen.nll)})
    return event.model_copy(update={"outcomes": {**event.outcomes, domain: other}})


def model(state: RunState, role: str) -> str:
    """The recipe id of a model that the verdict compares."""
    assert state.started
    found = {
        "base": state.started.base.recipe_id,
        "source": state.started.sources[1].recipe_id,
        "champion": state.champion or "",
        "baseline": next(iter(state.baselines.values())),
    }
    return found[role]


@pytest.mark.parametrize("role", one_quick("source", "base", "champion", "baseline"))
def test_a_forged_score_of_any_model_that_the_verdict_compares_is_found(
    finished_run: FinishedRun, tmp_path: Path, role: str
) -> None:
    home, state = finished_run(generations=1)
    id_ = model(state, role)
    task = f"evaluate/test/all/{id_}"
    other = forged(home, tmp_path / "home", "evomerge/r", task, worse)
    assert verify(other, "r")[0] == 0, "the forger is not clumsy"
    code, told = verify(other, "r", "--recompute")
    assert code == 1
    assert f"error: fitness: evaluate/test/all/{id_[:12]}: measured again it is off by" in told
    assert "profile" not in told
    assert told.count("error:") == 1


@pytest.fixture(scope="module")
def pipeline(finished_training: FinishedTraining) -> Home:
    """A finished pipeline `p` of a training, a merge, and the measurement of its champion."""
    home = finished_training()
    pipeline_runs.submit(home, pipeline_runs.passing(), reuse=True)
    cognate_runs.finish(home, "p")
    return home


@pytest.mark.slow
@pytest.mark.parametrize("run", ["evomerge/p.2-merge", "measure/p.2-merge-test"])
def test_a_forged_measurement_of_a_pipelines_child_is_found_from_the_pipeline(
    pipeline: Home, tmp_path: Path, run: str
) -> None:
    """Whose gate decides by it: `--origins` alone follows figures, and measures nothing."""
    rng = random.Random(run)
    with closing(forging.Log(pipeline.database, tmp_path / "read")) as log:
        tasks = [task.key for task, _ in measurements(log.rows(run))]
    for number in range(20):
        try:
            change = lambda event: forging.forged_measurement(event, rng)  # noqa: E731
            other = forged(pipeline, tmp_path / str(number), run, rng.choice(tasks), change)
        except forging.OtherWorkError:
            continue
        if verify(other, "p", "--origins")[0] == 0:
            break
    else:
        raise AssertionError("no measurement can be forged without other work")
    code, told = verify(other, "p", "--origins", "--recompute")
    assert code == 1, told
    name = run.partition("/")[2]
    assert f"error: origins: run {name}: fitness: " in told


@pytest.mark.slow
def test_a_forged_measurement_of_a_reused_run_is_found_from_the_pipeline(
    pipeline: Home, tmp_path: Path
) -> None:
    """The pipeline has noted that run's chain head, so nothing has to be measured."""
    rng = random.Random(0)
    with closing(forging.Log(pipeline.database, tmp_path / "read")) as log:
        tasks = [task.key for task, _ in measurements(log.rows("cognate/r"))]
    change = lambda event: forging.forged_measurement(event, rng)  # noqa: E731
    other = forged(pipeline, tmp_path / "forged", "cognate/r", tasks[-1], change)
    code, told = verify(other, "p", "--origins")
    assert code == 1
    assert "run r: it has another history than it had" in told


@pytest.mark.slow
def test_a_pipeline_is_measured_and_made_again_through_its_children(pipeline: Home) -> None:
    """It makes and measures nothing itself."""
    code, told = verify(pipeline, "p", "--origins", "--rebuild", "all", "--recompute")
    assert code == 0, told
    assert told.count("run p.2-merge: rebuilt") > 10
    for run in ("r", "p.2-merge", "p.2-merge-test"):
        assert f"run {run}: measured" in told
    code, told = verify(pipeline, "p", "--recompute")
    assert code == 2
    assert "its phases' runs make and measure. Add --origins." in told
