"""What a worker does when something fails: the task, the cache, the promise of equal bits."""

from __future__ import annotations

import logging
import os
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from agent_forge.evaluation import autotune
from agent_forge.evaluation.data.items import Text
from agent_forge.evaluation.data.slices import SLICES
from agent_forge.events import Cause
from agent_forge.evomerge.kind import EvoMergeKind
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.state import fold
from agent_forge.evomerge.run.tasks import Build, MeasureCost
from agent_forge.evomerge.tasks import context, execute
from agent_forge.evomerge.tasks.execute import carry_out
from agent_forge.runs.errors import (
    ConfigError,
    DataError,
    NotFoundError,
    RunFailedError,
    UnavailableError,
)
from agent_forge.runs.history.repository import load
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.decide import Start, decide
from agent_forge.runs.streams import stream
from agent_forge.weights.folders import checkpoint
from agent_forge.weights.folders.checkpoint import digest
from agent_forge.weights.storage import weight_cache
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.tasks import recorder, runner
from testing.models.toys import Toys
from testing.worlds import fake_runs, runs


@pytest.mark.slow
def test_a_task_that_fails_three_times_ends_the_run_with_its_reason(
    toys: Toys, tmp_path, monkeypatch
) -> None:
    """It never loops, and nothing has to be guessed."""

    def fails(task, bench):
        if isinstance(task, Build):
            raise RuntimeError("the roof is gone")
        return carry_out(task, bench)

    monkeypatch.setattr(execute, "carry_out", fails)
    home = Home(tmp_path)
    runs.submit(home, toys)
    with pytest.raises(RunFailedError, match=r"build/0/\d failed 3 times: RuntimeError: the roof"):
        runs.finish(home)
    state = runs.state(home)
    assert state.status == "failed"
    assert [f.attempt for f in state.failures.values()] == [3]


@pytest.mark.parametrize("error", [RuntimeError("a\0b"), ConfigError("a\0b\udcff")], ids=repr)
def test_a_failure_counts_whatever_its_text_holds(tmp_path, monkeypatch, error: Exception) -> None:
    """A text that no database stores raised before the failure was recorded: it was tried for ever."""

    def fails(task, bench):
        raise error

    class Opened:
        carry_out = staticmethod(lambda task: fails(task, None))

    monkeypatch.setattr(EvoMergeKind, "context", lambda self, state, cache: Opened())
    home = Home(tmp_path)
    with closing(home.open_store()) as store:
        fake_runs.submit(store, "r")
        state = load(store, "r")
        own = recorder.TaskExecutor(store, Artifacts.of(home), Cause(), lambda state: state)
        with suppress(ConfigError):
            own.do(state, decide(state).tasks[0])
        state = load(store, "r")
    said = [failure.error for failure in state.failures.values()]
    said += [state.failed.reason] if state.failed else []
    assert len(said) == 1
    assert r"a\x00b" in said[0]


@pytest.mark.slow
def test_trouble_with_the_machine_records_nothing_and_can_be_resumed(
    toys: Toys, tmp_path, monkeypatch
) -> None:
    """A full disk is not the task's fault."""

    def full(task, bench):
        if isinstance(task, Build):
            raise UnavailableError("no space left")
        return carry_out(task, bench)

    home = Home(tmp_path)
    runs.submit(home, toys)
    with monkeypatch.context() as patched:
        patched.setattr(execute, "carry_out", full)
        with pytest.raises(UnavailableError):
            runs.finish(home)
    assert not runs.state(home).failures
    assert runs.finish(home).status == "completed"


@pytest.mark.slow
def test_candidates_with_infinite_weights_are_sorted_last_and_said(toys: Toys, tmp_path) -> None:
    """Noise beyond float32: no fitness and a reason, never a crash."""
    home = Home(tmp_path)
    noise = {"mutation": "weights", "mutation_relative_to": "absolute", "mutation_rate": 0.5}
    runs.submit(home, toys, generations=1, mutation_sigma=1e39, **noise)
    state = runs.finish(home)
    assert state.status == "completed"
    assert state.champions[-1].generation == 0
    assert state.generations[1].scores[2:] == (None,) * 6
    reasons = {e.why_none for e in state.evaluations.values() if e.components is None}
    assert len(reasons) == 1
    assert "holds NaN or Inf" in (reasons.pop() or "")


@pytest.fixture
def late(toys: Toys, tmp_path):
    """(worker, a state from before the first candidate was built, that build's task)."""
    home = Home(tmp_path)
    runs.submit(home, toys, generations=0)
    runs.finish(home)
    store = home.open_store()
    rows = store.read(stream("evomerge", "r"))
    first = next(i for i, row in enumerate(rows) if row.type == "seeded")
    state = fold(rows[:first])
    task = next(t for t in decide(state).tasks if isinstance(t, Build))
    yield runner.WorkerProcess(store, Artifacts(home.artifacts)), state, task
    store.close()


@pytest.mark.slow
def test_who_starts_a_run_too_late_goes_on_with_what_the_other_one_read(
    late, toys: Toys, tmp_path, monkeypatch
) -> None:
    """Here the items changed between the two: what was read second must not be measured on."""
    worker, *_ = late
    rows = worker.store.read(stream("evomerge", "r"))
    early = fold(rows[:1])
    changed = [Text(id=s, domain="d", slice=s, text="other words " * 30) for s in SLICES]
    monkeypatch.setattr(context, "load_items", lambda *given: changed)
    assert worker._hands.do(early, Start()) in ("late", "known")
    early.absorb(rows[1:3])
    with pytest.raises(DataError, match="the data has changed since the run started"):
        worker._hands.context(early, MeasureCost())


@pytest.mark.slow
@pytest.mark.parametrize("given", [pytest.param("probe", marks=pytest.mark.soak), 64])
def test_what_two_probed_differently_is_no_divergence(late, monkeypatch, given) -> None:
    """Timing is luck, and the first one stands. With a number the two must agree."""
    worker, *_ = late
    early = fold(worker.store.read(stream("evomerge", "r"))[:1])
    assert early.submitted
    config = early.submitted.config.model_copy(update={"batch_tokens": given})
    early.submitted = early.submitted.model_copy(update={"config": config})
    monkeypatch.setattr(autotune, "batch", lambda *given: {64: 1.0})
    worker._hands.do(early, Start())
    found = [d.task for d in load(worker.store, "r").divergences]
    assert found == ([] if given == "probe" else ["start"])


@pytest.mark.slow
def test_a_late_result_that_is_the_same_is_nothing(late) -> None:
    """Two workers may do one task; the log has it once."""
    worker, state, task = late
    before = worker.store.version(stream("evomerge", "r"))
    worker._hands.do(state, task)
    assert worker.store.version(stream("evomerge", "r")) == before


@pytest.mark.slow
def test_a_late_result_that_differs_is_a_divergence(late, monkeypatch) -> None:
    """The profile's promise is broken: it must not pass in silence."""
    worker, state, task = late

    def other(task, bench):
        return carry_out(task, bench).model_copy(update={"digest": "f" * 64})

    monkeypatch.setattr(execute, "carry_out", other)
    worker._hands.do(state, task)
    found = load(worker.store, "r").divergences
    assert [(d.task, d.found) for d in found] == [(task.key, "f" * 64)]
    assert isinstance(found[0], events.DivergenceDetected)


def test_an_unknown_run_cannot_be_carried_on(tmp_path) -> None:
    """By the API too."""
    with pytest.raises(NotFoundError):
        runs.finish(Home(tmp_path), "nothing")


def _weights(value: float) -> dict[str, torch.Tensor]:
    return {"w": torch.full((1000,), value)}


def test_memory_holds_the_newest_within_its_budget(tmp_path: Path) -> None:
    """4,000 bytes each, room for two; one alone always stays."""
    cache = Artifacts(tmp_path, memory_bytes=8_000)
    for name in "abc":
        cache.put(name * 64, _weights(1.0))
    assert cache.get("a" * 64) is None
    assert cache.get("b" * 64) is not None
    assert (cache.hits, cache.misses) == (1, 1)
    assert weight_cache.size(_weights(1.0)) == 4_000


def test_memory_that_is_given_back_is_read_from_disk_again(tmp_path: Path) -> None:
    weights = _weights(1.0)
    cache, name = Artifacts(tmp_path), digest(weights)
    cache.keep(name, weights)
    for one in (name, "b" * 64):
        cache.put(one, weights)
    cache.release()
    assert cache.in_memory(name) is cache.get("b" * 64) is None
    found = cache.get(name)
    assert found is not None
    assert torch.equal(found["w"], weights["w"])


def test_disk_holds_the_newest_within_its_budget(tmp_path: Path) -> None:
    """The longest unused goes; what was just written stays, whatever the budget."""
    kept = [_weights(v) for v in (1.0, 2.0, 3.0)]
    names = [digest(w) for w in kept]
    cache = Artifacts(tmp_path, disk_bytes=9_000)
    for name, weights in zip(names, kept, strict=True):
        cache.keep(name, weights)
    fresh = Artifacts(tmp_path)
    assert fresh.get(names[0]) is None
    found = fresh.get(names[2])
    assert found is not None
    assert torch.equal(found["w"], kept[2]["w"])
    Artifacts(tmp_path, disk_bytes=0).keep("0" * 64, kept[0])
    assert [p.name for p in tmp_path.glob("??/*")] == ["0" * 64]


def test_the_disk_drops_first_what_is_cheap_to_make_again_for_its_bytes(tmp_path: Path) -> None:
    """Ten times the bytes for five times the seconds go before a small one that is older."""
    small, large, last = _weights(1.0), {"w": torch.full((10_000,), 2.0)}, _weights(3.0)
    cache = Artifacts(tmp_path, disk_bytes=45_000)
    cache.keep(digest(small), small, 10.0)
    cache.keep(digest(large), large, 50.0)
    cache.keep(digest(last), last, 1.0)
    assert {p.name for p in tmp_path.glob("??/*")} == {digest(small), digest(last)}


def test_weights_that_are_adopted_cost_what_their_maker_noted(tmp_path: Path) -> None:
    """Imported trainings went first: their seconds were lost on the way."""
    weights = _weights(1.0)
    Artifacts(tmp_path / "a").keep(digest(weights), weights, 12.5)
    (folder,) = (tmp_path / "a").glob("??/*")
    mine = Artifacts(tmp_path / "b")
    assert mine.adopt(folder)
    assert mine.adopt(folder)
    assert [f.read_text() for f in (tmp_path / "b").glob("??/*/seconds.txt")] == ["12.5\n"]
    bare = tmp_path / digest(weights)
    bare.mkdir()
    (bare / "model.safetensors").write_bytes(next(folder.glob("*.safetensors")).read_bytes())
    other = Artifacts(tmp_path / "c")
    assert other.adopt(bare, 7.0)
    assert [f.read_text() for f in (tmp_path / "c").glob("??/*/seconds.txt")] == ["7.0\n"]


def _snapshot(cache: Artifacts, name: str, ended: bool = False, seconds: float = 0.0) -> Path:
    """Write a snapshot's folder of 4,000 bytes of weights that was last used two hours ago."""
    place = cache.folder / "snapshots" / ("0" * 16) / (name * 64)
    place.mkdir(parents=True)
    save_file(_weights(1.0), place / "model.safetensors")
    (place / "seconds.txt").write_text(f"{seconds}\n")
    if ended:
        (place / "ended").touch()
    used = time.time() - 7200
    os.utime(place, (used, used))
    return place


def test_snapshots_count_and_those_of_ended_runs_go_first(tmp_path: Path) -> None:
    """Then the cheapest of all; one that was used lately stays, whatever the budget."""
    cache = Artifacts(tmp_path)
    weights = _weights(1.0)
    cache.keep(digest(weights), weights, 5.0)
    ended = _snapshot(cache, "a", ended=True, seconds=900.0)
    cheap, dear = _snapshot(cache, "b", seconds=1.0), _snapshot(cache, "c", seconds=50.0)
    new = _snapshot(cache, "d")
    os.utime(new)
    Artifacts(tmp_path, disk_bytes=17_500).shrink()
    assert [p.exists() for p in (ended, cheap, dear, new)] == [False, True, True, True]
    Artifacts(tmp_path, disk_bytes=13_000).shrink()
    assert [p.exists() for p in (cheap, dear, new)] == [False, True, True]
    Artifacts(tmp_path, disk_bytes=0).shrink()
    assert [p.exists() for p in (dear, new)] == [False, True]
    assert list(tmp_path.glob("??/*")) == []


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path: Path, monkeypatch, caplog) -> None:
    """The weights can be rebuilt: the run goes on."""

    def full(place, fill):
        raise UnavailableError("no space left")

    monkeypatch.setattr(checkpoint, "publish", full)
    with caplog.at_level(logging.WARNING):
        Artifacts(tmp_path).keep("a" * 64, _weights(1.0))
    assert "the weights cache is not written" in caplog.text


def test_a_cached_file_that_is_no_safetensors_counts_as_missing(tmp_path: Path) -> None:
    """And is removed, so that it is written again."""
    place = tmp_path / "aa" / ("a" * 64)
    place.mkdir(parents=True)
    (place / "model.safetensors").write_bytes(b"torn")
    assert Artifacts(tmp_path).get("a" * 64) is None
    assert not place.exists()
