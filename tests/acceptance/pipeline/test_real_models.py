"""cognate → evomerge in one pipeline, on real models in miniature, killed on the way."""

from __future__ import annotations

import random
import shutil
import time
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent_forge.cli.main import forge
from agent_forge.phases.cognate import recipes
from agent_forge.pipeline.events import PipelineState
from agent_forge.pipeline.submission import dry_run
from agent_forge.runs import kinds
from agent_forge.runs.history import audit
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.worker.commands import submit
from testing.miniatures import cognate_runs, pipeline_runs
from testing.services.cluster import DRAINED, Cluster
from testing.waiting import PATIENCE
from testing.worlds.finished_run import FinishedTraining
from testing.worlds.runs import was_killed
from testing.worlds.warm_process import Template

#: What ends the names of the pipeline's children.
CHILDREN = ("1-specialists", "2-merge", "2-merge-test")


def finished(home: Home, run: str = "p") -> PipelineState:
    """Carry the pipeline to its end; the logs of it and its children are honest."""
    from agent_forge.runs.history import repository
    from agent_forge.weights.storage.weight_cache import Artifacts
    from agent_forge.worker.tasks import runner

    with closing(home.open_store()) as store:
        state = runner.finish(runner.WorkerProcess(store, Artifacts.of(home)), run)
        for name in (run, *(f"{run}.{rest}" for rest in CHILDREN)):
            assert audit.audit(list(repository.history(store, name))) == []
    assert isinstance(state, PipelineState)
    return state


@pytest.mark.slow
@pytest.mark.parametrize(
    ("points", "passes"),
    [
        (("build-stored:2",), True),
        pytest.param(
            ("advanced-kept:2", "child-answered:1", "task-appended:5"), False, marks=pytest.mark.soak
        ),
    ],
    ids=["once", "in every phase"],
)
def test_killed_on_the_way_a_pipeline_ends_with_the_same_models_and_verifies_to_the_corpus(
    finished_training: FinishedTraining,
    warm: Template,
    tmp_path: Path,
    points: tuple[str, ...],
    passes: bool,
) -> None:
    """Its first phase is the run that other tests finish undisturbed; its second is built again.

    Its result is the champion if the second phase's gate passes, else the base.

    Copies of models and items are removed after the last kill, in soak the weights too: they come
    from the runs that made them.
    """
    quiet = finished_training()
    home = cognate_runs.share_text(quiet, Home(tmp_path / "home"))
    pipeline_runs.submit(home, pipeline_runs.passing() if passes else pipeline_runs.PHASES)
    for point in points:
        assert was_killed(warm.start(home, "p", f"kill:{point}")), "not reached"
    lost = [home.artifacts] if len(points) > 1 else [home.artifacts / n for n in ("supply", "models")]
    for folder in (*lost, home.folder / "models"):
        shutil.rmtree(folder)
    state = finished(home)
    made = cognate_runs.state(quiet).completed.models
    first, second = state.ended_phase(1), state.ended_phase(2)
    assert first is not None
    assert second is not None
    assert {r: m.digest for r, m in first.models.items()} == {r: m.digest for r, m in made.items()}
    verdicts = [verdict.verdict for verdict in state.gates[2]]
    assert verdicts == ["pass" if passes else "pass unchanged", *["pass"] * 3]
    result = second.models["champion"] if passes else made["base"]
    assert {model.digest for model in state.completed.models.values()} == {result.digest}
    told = kinds.of("pipeline").write_result(home, state, tmp_path / "out")
    assert told["folder"] == str(tmp_path / "out")
    assert (tmp_path / "out" / "merge" / "model.safetensors").is_file()
    env = {"FORGE_HOME": str(home.folder)}
    verified = CliRunner().invoke(forge, ["verify", str(tmp_path / "out")], env=env)
    assert verified.exit_code == 0, verified.output
    verified = CliRunner().invoke(forge, ["verify", "p", "--origins"], env=env)
    assert verified.exit_code == 0, verified.output
    assert "origins are runs p.1-specialists, p.2-merge, p.2-merge-test" in verified.output
    if len(points) > 1:
        rebuilt = CliRunner().invoke(forge, ["verify", "p.2-merge", "--rebuild", "all"], env=env)
        assert rebuilt.exit_code == 0, rebuilt.output
    lineage = CliRunner().invoke(forge, ["lineage", "p"], env=env)
    assert "untrained" in lineage.output


@pytest.mark.soak
@pytest.mark.slow
def test_killed_at_forty_random_moments_pipelines_end_with_the_same_digests(
    finished_training: FinishedTraining, warm: Template, tmp_path: Path
) -> None:
    """Eight pipelines of five kills each, beside one that nobody disturbs."""
    quiet, rng = finished_training(), random.Random(7)
    home = cognate_runs.share_text(quiet, Home(tmp_path / "home"))
    pipeline_runs.submit(home)  # of the same name: names of runs are those of the models in them
    digest = finished(home).lineage_digest()
    for number in range(8):
        other = cognate_runs.share_text(quiet, Home(tmp_path / f"home-{number}"))
        pipeline_runs.submit(other)
        for _ in range(5):
            process = warm.start(other, "p")
            time.sleep(rng.uniform(0.5, 15.0))
            process.kill()
            process.communicate(PATIENCE)
        assert finished(other).lineage_digest() == digest


@pytest.mark.soak
@pytest.mark.slow
def test_two_workers_that_are_preempted_at_a_hundred_random_moments_make_the_same_models(
    finished_training: FinishedTraining, tmp_path: Path
) -> None:
    """Twenty pipelines of five preemptions each, half of them with a notice, and a quiet process."""
    quiet, rng = finished_training(), random.Random(11)
    home = cognate_runs.share_text(quiet, Home(tmp_path / "home"))
    pipeline_runs.submit(home)  # of the same name: names of runs are those of the models in them
    digest = finished(home).lineage_digest()
    for number in range(20):
        cluster = Cluster(tmp_path / f"cluster-{number}", env={"FORGE_PART_SECONDS": "0.5"})
        with closing(cluster):
            cognate_runs.share_text(quiet, cluster.home)
            cluster.worker(*DRAINED)
            cluster.worker(*DRAINED)
            pipeline_runs.submit(cluster.home)
            for _ in range(5):
                time.sleep(rng.uniform(1.0, 12.0))
                cluster.preempt(rng)
            cluster.wait(lambda home=cluster.home: cognate_runs.state(home, "p").ended, pause=0.5)
        assert finished(cluster.home).lineage_digest() == digest


@pytest.mark.slow
def test_what_phases_cost_is_tried_on_stand_ins_before_their_models_exist(tmp_path: Path) -> None:
    """A training, a merge of what it will make and a measurement of that: all amounts are known."""
    phases = {"phases": pipeline_runs.PHASES}
    plan = submit.plan(RunRequest("pipeline", phases))
    found = list(dry_run.costs(plan, lambda name: None, None))
    assert [cost.label for cost in found] == ["specialists", "merge", "merge, measured"]
    for cost in found:
        amounts = (cost.forecast.seconds, cost.forecast.memory)
        assert all(one.value and one.value > 0 for one in amounts), cost
    training, _, measured = (cost.forecast for cost in found)
    size = kinds.of("cognate").settings.parse(pipeline_runs.PHASES[0]["settings"]).size
    tokens = [size.base_tokens, *[size.specialist_tokens] * 3]
    steps = sum(recipes.steps(size, size.context, count) for count in tokens)
    assert f"and it has {steps:,};" in training.seconds.how
    assert "; 5 models are to read" in measured.seconds.how
