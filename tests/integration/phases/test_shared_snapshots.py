"""Snapshots in the shared store: a training goes on in another home, with the same bits."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_forge.phases.cognate.script import Cognate
from agent_forge.phases.cognate.work import Context
from agent_forge.runs.errors import UnavailableError
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.decide import open_tasks
from agent_forge.studies.making import maker, shared_snapshots
from agent_forge.weights.recipes import Train
from agent_forge.weights.storage.artifact_store import Vault, open_vault
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands import fork
from testing.miniatures import bitnet_runs, cognate_runs
from testing.models.toys import Toys
from testing.verification import verified_again
from tests.integration.cli.test_forge import succeeds
from tests.integration.phases.test_snapshots_left import advanced, kept

#: How the store may be used: in the clear, or sealed under a key.
KEYS = {"plain": "", "sealed": base64.b64encode(bytes(range(32))).decode()}


@pytest.fixture(params=["plain"])
def first(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Home:
    """A home with a store, whose run `r` is stopped after some segments of its training."""
    monkeypatch.setenv("FORGE_SEGMENT_STEPS", "1")
    monkeypatch.setenv("FORGE_ARTIFACT_KEY", KEYS[request.param])
    home = Home(tmp_path / "first", store=f"file://{tmp_path / 'store'}")
    submitted(home, toys, tmp_path)
    state = cognate_runs.carry_until(home, lambda now: len(advanced(now)) > 2)
    assert steps(state) == [1, 2, 3]
    return home


def submitted(home: Home, toys: Toys, folder: Path) -> Home:
    """Submit a run with one short training."""
    data = bitnet_runs.texts(folder / "texts")
    short = {"specialist_tokens": 2_000, "batch": 2, "own_share": 1.0, "domains": ["sums"]}
    cognate_runs.submit(home, "r", toys.base, data, **short)
    return home


def other(first: Home, name: str = "second", **changes: Any) -> Home:
    """Another machine's home: with the first one's log, and nothing on its own disk."""
    url = f"sqlite:///{first.database}"
    return replace(first, folder=first.folder.parent / name, url=url, **changes)


def stored(first: Home) -> list[str]:
    """The names of the snapshots in the store."""
    return [name for name in open_vault(first).names() if name.startswith("snapshot-")]


def training(state: Any) -> Train:
    """The run's only training."""
    return Cognate().trainings(state)["sums"]


def name_of(home: Home, step: int) -> str:
    """The name in the store of the snapshot at a step."""
    state = cognate_runs.state(home)
    folder = Context(state, Artifacts.of(home)).kept
    return maker.SharedSnapshots(None, folder).name(training(state).to(step).id)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The segments that are trained from now on: first step, step after the last."""
    done: list[tuple[int, int]] = []
    real = maker.segment

    def counted(recipe: Any, start: Any, optimiser: Any, streams: Any, *rest: Any, **more: Any) -> Any:
        done.append((rest[0], rest[1]))
        return real(recipe, start, optimiser, streams, *rest, **more)

    monkeypatch.setattr(maker, "segment", counted)
    return done


@pytest.fixture(scope="module")
def undisturbed(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The run, made in one home without a store."""
    folder = tmp_path_factory.mktemp("quiet")
    return cognate_runs.finish(submitted(Home(folder), toys, folder))


def same(state: Any, undisturbed: Any) -> None:
    """The run has completed with the bits of the undisturbed one."""
    assert state.status == "completed"
    assert {i: m.digest for i, m in state.made.items()} == {
        i: m.digest for i, m in undisturbed.made.items()
    }
    assert not state.divergences


def steps(state: Any) -> list[int]:
    """The recorded steps at which segments ended."""
    return sorted(event.step for event in advanced(state))


def from_to(trained: Sequence[tuple[int, int]]) -> tuple[int, int, int]:
    """The first step that was trained, the one after the last, and the number of all."""
    return trained[0][0], trained[-1][1], sum(last - first for first, last in trained)


@pytest.mark.parametrize(
    "first", [pytest.param("plain", marks=pytest.mark.slow), "sealed"], indirect=True
)
def test_another_machine_trains_only_the_rest(
    first: Home, undisturbed: Any, trained: list[tuple[int, int]]
) -> None:
    """The first machine is gone with its disk; nothing of the training is in the store at the end."""
    done = steps(cognate_runs.state(first))[-1]
    assert len(stored(first)) == 2  # the newest, and the one before, which its segment began with
    shutil.rmtree(first.artifacts)
    second = other(first)
    state = cognate_runs.finish(second)
    total = training(state).upto
    assert 0 < done < total
    assert from_to(trained) == (done, total, total - done)
    same(state, undisturbed)
    assert stored(first) == []
    assert kept(second) == []


@pytest.mark.parametrize(
    "first", ["plain", pytest.param("sealed", marks=pytest.mark.slow)], indirect=True
)
def test_a_damaged_stored_snapshot_gives_way_to_the_one_before(
    first: Home, undisturbed: Any, trained: list[tuple[int, int]], tmp_path: Path
) -> None:
    before, done = steps(cognate_runs.state(first))[-2:]
    damaged = tmp_path / "store" / "data" / name_of(first, done)
    (file,) = damaged.rglob("optimiser.safetensors")
    content = bytearray(file.read_bytes())
    content[-2] ^= 1
    file.write_bytes(content)
    state = cognate_runs.finish(other(first))
    assert trained[0] == (before, done)
    assert trained[1][0] == done
    same(state, undisturbed)


@pytest.mark.slow
def test_another_snapshot_under_its_name_is_not_taken(
    first: Home, undisturbed: Any, trained: list[tuple[int, int]], tmp_path: Path
) -> None:
    """Files that are whole in themselves, and not those that the log recorded."""
    import torch

    state = cognate_runs.state(first)
    before, done = steps(state)[-2:]
    recipe = training(state)
    snapshots = Context(state, Artifacts.of(first)).kept
    real = snapshots.read(recipe.to(done))
    assert real is not None
    weights = {name: tensor + torch.ones_like(tensor) for name, tensor in real.weights.items()}
    forged = type(snapshots)(tmp_path / "forged")
    forged.write(recipe, replace(real, weights=weights))
    vault = open_vault(first)
    vault.remove(name_of(first, done))
    vault.put(name_of(first, done), forged.files(recipe.to(done)))
    ended = cognate_runs.finish(other(first))
    assert trained[0] == (before, done)
    same(ended, undisturbed)


@pytest.mark.slow
def test_without_the_stored_snapshots_all_is_trained_again_and_compared(
    first: Home, undisturbed: Any, trained: list[tuple[int, int]]
) -> None:
    for name in stored(first):
        open_vault(first).remove(name)
    state = cognate_runs.finish(other(first))
    total = training(state).upto
    assert from_to(trained) == (0, total, total)
    same(state, undisturbed)


@pytest.mark.slow
def test_a_snapshot_on_disk_needs_no_store(
    first: Home, trained: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is as new as any in the store."""
    fetched: list[str] = []
    real = Vault.fetch

    def fetch(self: Vault, name: str, folder: Path) -> bool:
        fetched.append(name)
        return real(self, name, folder)

    monkeypatch.setattr(Vault, "fetch", fetch)
    done = steps(cognate_runs.state(first))[-1]
    cognate_runs.finish(first)
    assert trained[0][0] == done
    assert not [name for name in fetched if name.startswith("snapshot-")]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["put", "has"])
def test_a_store_that_fails_costs_a_note_and_no_training(
    first: Home,
    undisturbed: Any,
    trained: list[tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    what: str,
) -> None:
    """Nothing is fetched if this machine's disk has the snapshot."""

    def down(self: Vault, *words: Any) -> Any:
        raise UnavailableError("the store is full.")

    done = steps(cognate_runs.state(first))[-1]
    monkeypatch.setattr(Vault, what, down)
    state = cognate_runs.finish(first)
    total = training(state).upto
    assert from_to(trained) == (done, total, total - done)
    same(state, undisturbed)
    assert "the store is full" in caplog.text


@pytest.mark.slow
def test_no_segment_lists_the_names_of_the_store(
    first: Home, undisturbed: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A list grows with all that the store has; older snapshots are looked up by name, and go."""

    def listed(self: Vault) -> list[str]:
        raise AssertionError("the names are listed")

    with monkeypatch.context() as patch:
        patch.setattr(Vault, "names", listed)
        same(cognate_runs.finish(first), undisturbed)
    assert not caplog.records
    assert len(stored(first)) <= 2


@pytest.mark.slow
def test_older_ones_go_also_those_that_a_failing_store_kept(
    first: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two at most of each training, once the store works again."""

    def down(self: Vault, *words: Any) -> Any:
        raise UnavailableError("the store is down.")

    with monkeypatch.context() as patch:
        patch.setattr(Vault, "remove", down)
        count = len(advanced(cognate_runs.state(first)))
        cognate_runs.carry_until(first, lambda now: len(advanced(now)) > count)
    assert len(stored(first)) == 3
    count = len(advanced(cognate_runs.state(first)))
    cognate_runs.carry_until(first, lambda now: len(advanced(now)) > count)
    newest = steps(cognate_runs.state(first))[-2:]
    assert sorted(stored(first)) == sorted(name_of(first, step) for step in newest)


@pytest.mark.slow
def test_those_of_a_cancelled_run_go(first: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the one that was under way when the run was cancelled, and was put after that."""
    assert first.store is not None
    monkeypatch.setenv("FORGE_ARTIFACT_STORE", first.store)
    state = cognate_runs.state(first)
    (task,) = open_tasks(state)
    succeeds(first.folder, "cancel", "r")
    assert stored(first) == []
    Context.opened(state, Artifacts.of(first)).carry_out(task)
    assert len(stored(first)) == 1
    cognate_runs.carry_until(other(first), lambda now: False)
    assert stored(first) == []


def test_they_stay_for_a_fork_that_goes_on(first: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    assert first.store is not None
    monkeypatch.setenv("FORGE_ARTIFACT_STORE", first.store)
    before = stored(first)
    with closing(first.open_store()) as store:
        place = len(cognate_runs.rows(first))
        name = fork.fork(store, fork.plan(store, "r", place, None, {"max_hours": 9.0}))
        succeeds(first.folder, "cancel", name)
        assert stored(first) == before  # the parent goes on
        other_name = fork.fork(store, fork.plan(store, "r", place, None, {"max_hours": 8.0}))
        succeeds(first.folder, "cancel", "r")
        assert stored(first) == before  # the other fork goes on
        succeeds(first.folder, "cancel", other_name)
    assert stored(first) == []


@pytest.mark.slow
def test_a_fork_before_its_parents_newest_snapshot_trains_each_segment_once(
    first: Home, undisturbed: Any, trained: list[tuple[int, int]]
) -> None:
    """The fork's newest snapshot must stay, though the parent's are of later steps."""
    cognate_runs.carry_until(first, lambda now: len(advanced(now)) > 5)
    rows = cognate_runs.rows(first)
    place = next(n for n, row in enumerate(rows, 1) if row.type == "advanced")
    with closing(first.open_store()) as store:
        name = fork.fork(store, fork.plan(store, "r", place, None, {"max_hours": 9.0}))
    trained.clear()
    state = cognate_runs.finish(replace(first, store=None), name)
    assert len(trained) == len(set(trained))
    assert trained[0] == (0, 1)  # the recorded one, whose snapshot is gone
    assert trained[-1][1] == training(state).upto
    assert {i: m.digest for i, m in state.made.items()} == {
        i: m.digest for i, m in undisturbed.made.items()
    }


def test_a_fork_says_that_it_goes_on_from_the_store(first: Home) -> None:
    """And says that it does not, once the store has none."""
    state, second = cognate_runs.state(first), other(first)
    done = steps(state)[-1]
    told = Cognate().storage.resumes(state, Artifacts.of(second))
    assert told == [f"the training of sums goes on from step {done}."]
    for name in stored(first):
        open_vault(first).remove(name)
    (said,) = Cognate().storage.resumes(state, Artifacts.of(second))
    assert "not kept on this machine or in the shared store" in said
    assert "from its first step on" in said


@pytest.mark.slow
def test_an_audit_trains_again_whatever_the_store_has(
    first: Home, trained: list[tuple[int, int]]
) -> None:
    """Else a forged snapshot would vouch for itself."""
    state = cognate_runs.finish(first)
    total = training(state).upto
    trained.clear()
    assert verified_again(first, state.run, tolerance=None)[0] == []
    assert from_to(trained) == (0, total, total)


def test_names_in_the_store_differ_by_profile_and_step() -> None:
    """The same recipe gives other bits under another profile."""
    one, two = (shared_snapshots.group(f"profile {n}") for n in (1, 2))
    names = {shared_snapshots.name(group, id_) for group in (one, two) for id_ in ("a", "b")}
    assert len(names) == 4
