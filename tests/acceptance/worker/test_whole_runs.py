"""Whole runs on toy models: the champion, the cache, two processes, kills."""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from agent_forge.evaluation import autotune
from agent_forge.evaluation.data.packing import ItemPack
from agent_forge.evomerge.config import parse
from agent_forge.evomerge.recipes.recipe import genome
from agent_forge.evomerge.reports import report
from agent_forge.evomerge.run import events as run_events
from agent_forge.evomerge.run.rules import early_stopping
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.run.tasks import Evaluate
from agent_forge.evomerge.tasks import context
from agent_forge.evomerge.tasks.context import MergeContext
from agent_forge.evomerge.tasks.execute import carry_out
from agent_forge.runs.errors import ConfigError, DataError, UnavailableError
from agent_forge.runs.history import audit
from agent_forge.runs.history.repository import history
from agent_forge.runs.home import Home
from agent_forge.weights.storage import weight_cache
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.tasks import runner
from testing.models.toys import Toys
from testing.waiting import PATIENCE
from testing.worlds import runs
from testing.worlds.finished_run import FinishedRun
from testing.worlds.warm_process import Template


@pytest.fixture(scope="module")
def undisturbed(finished_run: FinishedRun) -> tuple[Home, RunState]:
    """A run that nobody disturbs."""
    return finished_run()


def rows(home: Home, run: str = "r") -> list:
    store = home.open_store()
    try:
        return list(history(store, run))
    finally:
        store.close()


def test_a_run_ends_with_a_champion_compared_with_everybody(undisturbed) -> None:
    """The main job: eight seeds, two generations, champion, every rival on the test slice."""
    _, state = undisturbed
    assert state.status == "completed"
    assert len(state.candidates) == 24
    seeds = [state.candidates[0, slot] for slot in range(8)]
    assert [genome(s.recipe, state.recipes).pipeline.number for s in seeds] == list(range(8))
    assert {type(state.candidates[1, s]).__name__ for s in range(6)} == {"Mutated"}
    assert {type(state.candidates[1, s]).__name__ for s in (6, 7)} <= {"Merged", "Seeded"}
    names = [(r.kind, r.name) for r in state.completed.rivals]
    assert names[0] == ("base", "base")
    assert [n for k, n in names if k == "source"] == ["source0", "source1", "source2"]
    assert sorted(n for k, n in names if k == "baseline") == [
        "mean",
        "task-arithmetic-0.3",
        "task-arithmetic-0.5",
        "task-arithmetic-1",
    ]


def test_the_test_slice_is_read_once_and_last(undisturbed) -> None:
    """A slice that decisions look at is no test."""
    home, _ = undisturbed
    store = home.open_store()
    rows = store.read("evomerge/r")
    kinds = [(r.type, '"slice":"test"' in r.data) for r in rows]
    store.close()
    first = kinds.index(("evaluated", True))
    assert all(k in (("evaluated", True), ("completed", False)) for k in kinds[first:])
    assert sum(1 for k in kinds if k == ("evaluated", True)) == 9


@pytest.mark.soak
@pytest.mark.slow
def test_the_same_seed_gives_the_same_run_elsewhere(undisturbed, toys: Toys, tmp_path) -> None:
    """Champion, weights and lineage depend on nothing but config, sources and data."""
    _, state = undisturbed
    home = Home(tmp_path)
    runs.submit(home, toys, run="another-name")
    other = runs.finish(home, "another-name")
    assert other.champion == state.champion
    assert other.completed.digest == state.completed.digest
    assert other.lineage_digest() == state.lineage_digest()


def test_problems_are_generated_verified_and_recorded(undisturbed) -> None:
    """Both of them, one of each grade, on every draw and on whole slices."""
    _, state = undisturbed
    assert state.started.pools["search"]["math"].problem_grades == (1, 1)
    for event in state.evaluations.values():
        solved = event.outcomes["math"].solved
        assert len(solved) == 2
        assert set(solved) <= {0.0, 1.0}
        assert event.components.solved is not None
        assert event.components.bits_per_byte > 0
        assert event.outcomes["data"].solved == ()
    assert state.started.not_run == ""


@pytest.mark.slow
def test_without_a_sandbox_programs_are_left_out_of_the_whole_run(
    toys: Toys, tmp_path, monkeypatch
) -> None:
    """Said in `started`; also a worker that has one then leaves them out: a score is no mixture."""
    home = Home(tmp_path)
    runs.submit(home, toys, generations=0)
    store = home.open_store()
    worker = runner.WorkerProcess(
        store, weight_cache.Artifacts(home.artifacts), stop=_after_start(store)
    )
    with monkeypatch.context() as patch:
        patch.setattr("sys.platform", "darwin")
        worker.run("r")
    store.close()
    state = runs.finish(home)
    assert "on Linux only" in state.started.not_run
    assert any("3 problems are not run: programs" in w for w in state.started.warnings)
    assert state.started.pools["search"]["math"].problems == 1
    assert all(len(e.outcomes["math"].solved) == 1 for e in state.evaluations.values())
    assert state.status == "completed"


def _after_start(store):
    return lambda: any(row.type == "started" for row in store.read("evomerge/r"))


@pytest.mark.soak
@pytest.mark.slow
def test_weights_of_domains_steer_by_domains(toys: Toys, tmp_path) -> None:
    """Scores are those of the domains alone; one that the data lacks fails before any work."""
    weights = {"perplexity": 0, "accuracy": 0, "speed": 0, "memory": 0}
    home = Home(tmp_path)
    given = {**weights, "domains": {"math": 0.75, "data": 0.25}}
    runs.submit(home, toys, generations=0, fitness_weights=given)
    state = runs.finish(home)
    for event in state.evaluations.values():
        if event.fitness:
            parts = event.fitness.normalised
            expected = 0.75 * parts["domain/math"] + 0.25 * parts["domain/data"]
            assert event.fitness.scalar == pytest.approx(expected)
            assert event.fitness.quality == pytest.approx(expected)
    assert all(r.lead is not None for r in state.completed.rivals)
    runs.submit(home, toys, run="wrong", fitness_weights={**weights, "domains": {"poetry": 1}})
    with pytest.raises(DataError, match="weighs the domain 'poetry'"):
        runs.finish(home, "wrong")
    assert runs.state(home, "wrong").status == "failed"


@pytest.mark.soak
@pytest.mark.slow
def test_batch_and_dtype_are_probed_once_and_pinned(toys: Toys, tmp_path, monkeypatch) -> None:
    """Whoever goes on follows what `started` recorded, and measures as it did."""
    home = Home(tmp_path)
    monkeypatch.setattr(autotune, "batch", lambda *given: {64: 1.0, 192: 9.0})
    monkeypatch.setattr(autotune, "halved", lambda *given: autotune.Trial(2.0, 0.001))
    runs.submit(home, toys, batch_tokens="probe", evaluation_dtype="probe", generations=0)
    state = runs.finish(home)
    assert state.completed
    assert state.started
    profile = state.started.profile
    assert (profile.batch_tokens, profile.evaluation, profile.dtype) == (192, "bfloat16", "float32")
    told = [line for line in state.started.warnings if line.startswith("probed")]
    assert len(told) == 2
    written = report.markdown(report.report(state, rows(home)))
    assert f"## Warnings\n\n- {told[0]}\n- {told[1]}\n\n## Cost" in written
    monkeypatch.setattr(autotune, "batch", lambda *given: pytest.fail("probed again"))
    bench = MergeContext(state, Artifacts(home.artifacts))
    bench.check_unchanged()
    assert (bench.resident.batch_tokens, bench.resident.dtype) == (192, torch.bfloat16)
    for task, event in (
        (Evaluate(id_, "test", None), state.evaluations[id_, "test", None])
        for id_ in (state.completed.champion, state.started.sources[0].recipe_id)
    ):
        again = carry_out(task, bench)
        assert isinstance(again, run_events.Evaluated)
        assert again.outcomes == event.outcomes


@pytest.mark.slow
@pytest.mark.parametrize("native", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_by_default_a_run_is_measured_in_bfloat16_where_the_processor_has_it(
    toys: Toys, tmp_path, monkeypatch, native: bool
) -> None:
    """Pinned when the run starts, and followed afterwards; nothing to be warned of, nothing timed."""
    home = Home(tmp_path)
    monkeypatch.setattr(autotune, "has_bfloat16", lambda device: native)
    monkeypatch.setattr(autotune, "tokens_per_second", lambda *given: pytest.fail("timed"))
    runs.submit(home, toys, evaluation_dtype="auto", generations=0)
    state = runs.finish(home)
    assert state.completed
    assert state.started
    assert state.started.profile.evaluation == ("bfloat16" if native else "")
    assert state.started.warnings == ()
    monkeypatch.setattr(autotune, "natively", lambda *given: pytest.fail("looked at again"))
    bench = MergeContext(state, Artifacts(home.artifacts))
    bench.check_unchanged()
    assert bench.resident.dtype == (torch.bfloat16 if native else None)


@pytest.mark.slow
def test_passes_count_as_compiled_where_they_are_full(monkeypatch) -> None:
    """By hand: 2 generations of 3 candidates, of 48 windows in passes of 20 two are full, in one of
    two domains; 2 · 3 · 2 · 20 · 64 tokens at 960 a second are 16 s, half of which is saved.
    """
    config = parse(
        {
            "evaluation_compile": "probe",
            "generations": 2,
            "population_size": 3,
            "strategy": "cma-es",
            "batch_tokens": 20 * 64,
        }
    )
    data = {
        "long": ItemPack(windows=[np.zeros(64, np.int64)]),
        "short": ItemPack(windows=[np.zeros(9, np.int64)]),
    }
    for seconds, used in ((7.9, (20, 64)), (8.1, None)):
        trial = autotune.Trial(2.0, 0.0, seconds, 960.0)
        monkeypatch.setattr(autotune, "compiled", lambda *given, trial=trial: trial)
        model: Any = SimpleNamespace(
            device=torch.device("cpu"), load=lambda weights: None, rows=lambda length: 20, compiled=None
        )
        (told,) = context.probe(model, config, [{}], data, 64)
        assert model.compiled == used
        assert told.endswith("not used" if used is None else ": used")


@pytest.mark.soak
@pytest.mark.slow
def test_compiled_evaluation_is_pinned_and_measures_the_same_again(
    toys: Toys, tmp_path, monkeypatch
) -> None:
    """Really compiled; only that it pays is claimed. Where nothing compiles, others measure."""
    home, settings = Home(tmp_path), {"evaluation_compile": "probe", "batch_tokens": 128}
    monkeypatch.setattr(autotune, "compiled", lambda *given: autotune.Trial(1.05, 0.0, 9.0))
    runs.submit(home, toys, run="slow", generations=0, **settings)
    state = runs.finish(home, "slow")
    assert state.started
    assert state.started.profile.compiled == ""
    assert state.started.warnings[-1].endswith(": not used")

    monkeypatch.setattr(autotune, "compiled", lambda *given: autotune.Trial(2.0, 0.0, 0.0))
    monkeypatch.setattr(autotune.Trial, "pays", lambda *given: True)
    runs.submit(home, toys, generations=0, **settings)
    state = runs.finish(home)
    assert state.completed
    assert state.started
    assert "++" in state.started.profile.compiled
    assert "2.00 times as fast" in state.started.warnings[-1]
    bench = MergeContext(state, Artifacts(home.artifacts))
    bench.check_unchanged()
    rows = 128 // state.started.context
    assert bench.resident.compiled == (rows, state.started.context)
    champion = state.completed.champion
    again = carry_out(Evaluate(champion, "test", None), bench)
    assert isinstance(again, run_events.Evaluated)
    assert again.outcomes == state.evaluations[champion, "test", None].outcomes

    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(UnavailableError, match=r"compiled is not set, not .*\+\+"):
        bench.check_unchanged()


@pytest.mark.soak
@pytest.mark.slow
def test_a_chosen_batch_is_used_and_bfloat16_changes_scores(toys: Toys, tmp_path) -> None:
    states = {}
    for name, settings in (("own", {}), ("half", {"evaluation_dtype": "bfloat16", "batch_tokens": 64})):
        home = Home(tmp_path / name)
        runs.submit(home, toys, generations=0, **settings)
        states[name] = runs.finish(home)
        assert states[name].started
    profile = states["half"].started.profile
    assert (profile.batch_tokens, profile.evaluation) == (64, "bfloat16")
    assert states["own"].started.profile.evaluation == ""
    source = states["own"].started.sources[0].recipe_id
    own, half = (states[n].components((source, "test", None)) for n in ("own", "half"))
    assert half.perplexity != own.perplexity
    assert half.perplexity == pytest.approx(own.perplexity, rel=autotune.TOLERANCE)


@pytest.mark.slow
def test_clear_losers_are_dropped_early_and_the_rest_is_audited(toys: Toys, tmp_path) -> None:
    """With a gate that almost everybody meets: a fitness that sorts, a reason, the same run again."""
    strict = {"gate_perplexity": 0.999, "search_windows": 12, "batch_tokens": 128}
    states = []
    for name in ("a", "b"):
        home = Home(tmp_path / name)
        runs.submit(home, toys, **strict)
        states.append(runs.finish(home))
    first, second = states
    assert first.lineage_digest() == second.lineage_digest()
    drawn = [e for e in first.evaluations.values() if e.generation is not None]
    early = [e for e in drawn if e.stopped]
    assert early
    for event in early:
        assert "times that of the worst source" in event.stopped
        assert event.fitness is not None
        draws = first.draws("search", event.generation)
        for domain, part in event.scored.items():
            assert set(part.windows) < set(draws[domain].windows)
            assert len(event.outcomes[domain].nll) == len(part.windows)
            assert event.outcomes[domain].right == ()
    assert all(e.stopped is None for e in first.evaluations.values() if e.generation is None)
    for generation, done in first.generations.items():
        evaluations = [first.evaluations[id_, "search", generation] for id_ in done.ranking]
        dropped = [e.stopped is not None for e in evaluations]
        assert dropped == sorted(dropped), "what was dropped is ranked after what was not"
    store = Home(tmp_path / "a").open_store()
    rows = list(history(store, "r"))
    store.close()
    assert [f for f in audit.audit(rows) if f.level == "error"] == []
    changed = early[0].model_copy(update={"stopped": "because", "seconds": 0.0})
    assert early_stopping.unfounded(first, changed) == "it was ended early for another reason"
    assert "should have been" in (early_stopping.unfounded(first, _whole(first, early[0])) or ""), (
        "an evaluation that should have been ended early passes for whole"
    )


def _whole(state, event):
    """The same evaluation as if it had gone on, on the windows of a source."""
    draws = state.draws(event.slice, event.generation)
    seen = state.sources_on(event.slice, draws)
    name = max(seen, key=lambda n: sum(sum(o.nll) for o in seen[n].values()))
    return event.model_copy(update={"stopped": None, "scored": None, "outcomes": seen[name]})


@pytest.mark.soak
@pytest.mark.slow
def test_another_seed_gives_another_run(undisturbed, toys: Toys, tmp_path) -> None:
    """Or the test above would prove nothing."""
    _, state = undisturbed
    home = Home(tmp_path)
    runs.submit(home, toys, seed=4)
    assert runs.finish(home).lineage_digest() != state.lineage_digest()


@pytest.mark.soak
@pytest.mark.slow
def test_a_cache_deleted_between_two_generations_changes_nothing(
    undisturbed, toys: Toys, tmp_path, monkeypatch
) -> None:
    """Weights are a cache of the log. Memory is emptied too, by a new process for every stretch."""
    home = Home(tmp_path)
    runs.submit(home, toys)
    for generation in range(3):
        store = home.open_store()
        seen: list[int] = []

        def watch(state, rows, seen=seen) -> None:
            seen[:] = [len(state.generations)]

        worker = runner.WorkerProcess(
            store, weight_cache.Artifacts(home.artifacts), watch, lambda g=generation, s=seen: s[0] > g
        )
        worker.run("r")
        store.close()
        shutil.rmtree(home.artifacts, ignore_errors=True)
    state = runs.finish(home)
    assert state.lineage_digest() == undisturbed[1].lineage_digest()


@pytest.mark.slow
def test_a_damaged_cache_file_is_noticed_and_rebuilt(undisturbed, toys: Toys, tmp_path) -> None:
    """A cache that is believed is a lie waiting to happen."""
    home = Home(tmp_path)
    runs.submit(home, toys)
    store = home.open_store()
    seen = [0]

    def watch(state, rows) -> None:
        seen[0] = len(state.generations)

    worker = runner.WorkerProcess(
        store, weight_cache.Artifacts(home.artifacts), watch, lambda: seen[0] > 0
    )
    worker.run("r")
    store.close()
    files = sorted(home.artifacts.rglob("*.safetensors"))
    assert files
    for file in files:
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    state = runs.finish(home)
    assert state.lineage_digest() == undisturbed[1].lineage_digest()


@pytest.mark.soak
@pytest.mark.slow
def test_on_postgresql_the_run_ends_the_same(undisturbed, toys: Toys, tmp_path, postgres) -> None:
    """The database is not in the profile: it decides nothing."""
    home = Home(tmp_path, postgres.new_database())
    runs.submit(home, toys)
    assert runs.finish(home).lineage_digest() == undisturbed[1].lineage_digest()


@pytest.mark.slow
@pytest.mark.soak
def test_two_processes_share_one_run(undisturbed, toys: Toys, tmp_path, warm: Template) -> None:
    """They work beside each other and end with the same champion; nothing is recorded twice."""
    home = Home(tmp_path)
    runs.submit(home, toys)
    both = [warm.start(home), runs.process(home)]
    for one in both:
        out, err = one.communicate(timeout=PATIENCE)
        assert one.returncode == 0, err
        assert out.strip() == undisturbed[1].lineage_digest()
    assert not runs.state(home).divergences


def soak(*values: object) -> Any:
    """Leave a case to `make soak`."""
    return pytest.param(*values, marks=pytest.mark.soak)


#: Where a kill hurts most; benchmarks/worker/crash_walk.py does them all. CI has three that merging
#: runs alone pass; toy runs are killed at each that every kind passes.
POINTS = [
    soak("append-began:2"),
    soak("append-inserted:4"),
    soak("append-committed:9"),
    soak("task-claimed:12"),
    soak("task-done:15"),
    soak("task-appended:30"),
    soak("task-released:40"),
    pytest.param("build-computed:7", marks=pytest.mark.smoke),
    soak("build-stored:11"),
    soak("evaluate-loaded:9"),
    soak("evaluate-scored:15"),
    soak("layers-scored:2"),
    soak("facts-decided:1"),
    soak("facts-appended:2"),
    soak("publish-filled:1"),
    soak("publish-renamed:1"),
]


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_failpoint_a_run_ends_as_if_undisturbed(
    undisturbed, toys: Toys, tmp_path, warm: Template, point: str
) -> None:
    """SIGKILL, in a process of its own, during real builds and evaluations; then resume."""
    home = Home(tmp_path)
    runs.submit(home, toys)
    assert runs.was_killed(warm.start(home, failpoints=f"kill:{point}")), "not reached"
    state = runs.finish(home)
    assert state.champion == undisturbed[1].champion
    assert state.completed.digest == undisturbed[1].completed.digest
    assert state.lineage_digest() == undisturbed[1].lineage_digest()


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["cma-es", "auto", "tournament", "nsga2"])
def test_every_strategy_goes_on_after_kills_as_if_undisturbed(
    toys: Toys, tmp_path, warm: Template, strategy: str
) -> None:
    """Whole runs on models; the distribution and the fronts are made again from the log."""
    ends = []
    for name, points in (("calm", ()), ("killed", ("task-done:12", "facts-decided:2", "task-done:9"))):
        home = Home(tmp_path / name)
        runs.submit(home, toys, strategy=strategy, population_size=4, generations=2)
        for point in points:
            assert runs.was_killed(warm.start(home, failpoints=f"kill:{point}")), "not reached"
        ends.append(runs.finish(home))
        assert audit.audit(rows(home)) == []
    assert ends[0].completed
    assert ends[1].completed
    assert ends[0].completed.digest == ends[1].completed.digest
    assert ends[0].lineage_digest() == ends[1].lineage_digest()
    told = report.report(ends[0], rows(home))
    assert report.markdown(told)


@pytest.mark.slow
def test_killed_at_random_moments_a_run_still_ends_the_same(
    undisturbed, toys: Toys, tmp_path, warm: Template
) -> None:
    """Not only at places that we thought of; each kill comes after an event of its process."""
    home = Home(tmp_path)
    runs.submit(home, toys)
    rng = random.Random(0)
    for _ in range(3):
        before, one = runs.state(home).version, warm.start(home)
        while runs.state(home).version == before:
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 0.5))
        one.kill()
        assert runs.was_killed(one), "it had ended"
    assert runs.finish(home).lineage_digest() == undisturbed[1].lineage_digest()


@pytest.mark.slow
def test_data_that_changed_is_an_error_at_resume(toys: Toys, tmp_path) -> None:
    """Scores on other items are other scores."""
    mine = Toys(toys.base, toys.sources, Path(shutil.copytree(toys.data, tmp_path / "data")))
    home = Home(tmp_path / "home")
    runs.submit(home, mine)
    _stop_after(home, 6)
    file = mine.data / "math.jsonl"
    file.write_text(file.read_text().replace("Worksheet", "worksheet", 1))
    with pytest.raises(DataError, match="data has changed"):
        runs.finish(home)


@pytest.mark.slow
def test_a_process_that_does_not_match_the_profile_is_refused(
    toys: Toys, tmp_path, monkeypatch
) -> None:
    """Another number of threads may change the last bit of a score."""
    home = Home(tmp_path)
    runs.submit(home, toys)
    _stop_after(home, 6)
    monkeypatch.setenv("FORGE_THREADS", str(len(os.sched_getaffinity(0)) + 1))
    with pytest.raises(UnavailableError, match="threads is"):
        runs.finish(home)


@pytest.mark.slow
def test_the_same_weights_twice_end_the_run_before_work(toys: Toys, tmp_path) -> None:
    """Two folders, one model: found by digest, said by name."""
    twin = Path(shutil.copytree(toys.sources[0], tmp_path / "twin"))
    home = Home(tmp_path / "home")
    runs.submit(home, Toys(toys.base, (toys.sources[0], twin), toys.data))
    with pytest.raises(ConfigError, match="source0 and twin hold the same weights"):
        runs.finish(home)
    assert runs.state(home).status == "failed"


def _stop_after(home: Home, events: int) -> None:
    store = home.open_store()
    seen = [0]

    def watch(state, rows) -> None:
        seen[0] = state.version

    worker = runner.WorkerProcess(
        store, weight_cache.Artifacts(home.artifacts), watch, lambda: seen[0] >= events
    )
    worker.run("r")
    store.close()
