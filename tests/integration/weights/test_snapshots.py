"""Snapshots of trainings on disk: whole or noticed, the nearest found, old ones deleted."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from agent_forge.events import failpoints
from agent_forge.runs.errors import SnapshotDamagedError, TamperedError, UnavailableError
from agent_forge.weights.folders.checkpoint import digest
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training import snapshots
from agent_forge.weights.training.loop import Snapshot, segment
from agent_forge.weights.training.snapshots import Snapshots
from testing.models.toy_training import model, recipe, streams

RECIPE = recipe()


def made(step: int) -> Snapshot:
    """A snapshot that looks like one after `step` steps."""
    weights = {"a": torch.full((2, 3), float(step)), "b": torch.arange(5.0)}
    optimiser = {"optimiser/a/step": torch.tensor(float(step))}
    return Snapshot(step, weights, optimiser, (2.5,) * step, (0.1,) * step, (1.0,) * step, 48, 0.5)


@pytest.fixture
def store(tmp_path: Path) -> Snapshots:
    """An empty folder of snapshots."""
    return Snapshots(tmp_path / "snapshots")


def test_a_snapshot_is_read_as_it_was_written(store: Snapshots) -> None:
    """Tensors, numbers and digests."""
    facts = store.write(RECIPE, made(3))
    read = store.read(RECIPE.to(3))
    assert read is not None
    assert (read.step, read.losses, read.rates, read.norms) == (3, (2.5,) * 3, (0.1,) * 3, (1.0,) * 3)
    assert (read.tokens, read.seconds) == (48, 0.5)
    assert digest(read.weights) == facts.weights == digest(made(3).weights)
    assert digest(read.optimiser) == facts.optimiser == digest(made(3).optimiser)
    assert facts.recipe == RECIPE.to(3).id
    assert store.read(RECIPE.to(4)) is None


def test_a_training_goes_on_from_a_snapshot_on_disk_with_the_same_bits(store: Snapshots) -> None:
    """What was read lies elsewhere in memory than what was computed."""
    store.write(RECIPE, segment(RECIPE, model(), None, streams(), 0, 3))
    half = store.nearest(RECIPE)
    assert half is not None
    start = Tensors(model().config, half.weights)
    rest = segment(RECIPE, start, half.optimiser, streams(), half.step, 8)
    whole = segment(RECIPE, model(), None, streams(), 0, 8)
    assert digest(rest.weights) == digest(whole.weights)
    assert digest(rest.optimiser) == digest(whole.optimiser)


@pytest.mark.parametrize("name", [snapshots.WEIGHTS, snapshots.OPTIMISER, snapshots.FACTS])
@pytest.mark.parametrize("harm", ["missing", "truncated", "empty", "changed"])
def test_damage_to_any_file_is_noticed(store: Snapshots, name: str, harm: str) -> None:
    """A training that goes on from damaged tensors looks plausible."""
    store.write(RECIPE, made(3))
    file = store.folder / RECIPE.to(3).id / name
    content = file.read_bytes()
    if harm == "missing":
        file.unlink()
    elif harm == "changed":  # the last byte of a tensor, or of a digest
        at = content.index(b'"weights"') + 13 if name == snapshots.FACTS else len(content) - 2
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    else:
        file.write_bytes(content[: len(content) // 2 if harm == "truncated" else 0])
    with pytest.raises(SnapshotDamagedError) as told:
        store.read(RECIPE.to(3))
    assert isinstance(told.value, TamperedError)


def test_tensors_of_another_shape_are_noticed(store: Snapshots) -> None:
    """The digest covers names, dtypes and shapes, not only bytes."""
    store.write(RECIPE, made(3))
    file = store.folder / RECIPE.to(3).id / snapshots.WEIGHTS
    tensors = load_file(file)
    save_file({"a": tensors["a"].reshape(3, 2), "b": tensors["b"]}, file)
    with pytest.raises(SnapshotDamagedError, match="digest"):
        store.read(RECIPE.to(3))


def test_a_snapshot_under_the_name_of_another_is_noticed(store: Snapshots) -> None:
    """Whole files of another step would shift the schedule."""
    store.write(RECIPE, made(3))
    (store.folder / RECIPE.to(3).id).rename(store.folder / RECIPE.to(5).id)
    with pytest.raises(SnapshotDamagedError, match="another training"):
        store.read(RECIPE.to(5))


def test_the_nearest_earlier_snapshot_of_the_same_training_is_found(store: Snapshots) -> None:
    """Not a later one, and none of another training."""
    for step in (2, 5, 7):
        store.write(RECIPE, made(step))
    store.write(recipe(seed=1), made(4))
    assert store.steps(RECIPE) == [2, 5, 7]
    found = {k: store.nearest(RECIPE.to(k)) for k in (1, 2, 4, 5, 6, 8)}
    steps = {k: None if s is None else s.step for k, s in found.items()}
    assert steps == {1: None, 2: 2, 4: 2, 5: 5, 6: 5, 8: 7}


def test_a_damaged_snapshot_is_passed_over_and_deleted(store: Snapshots) -> None:
    """Snapshots are a cache: the training begins at the one before."""
    for step in (2, 5):
        store.write(RECIPE, made(step))
    (store.folder / RECIPE.to(5).id / snapshots.WEIGHTS).unlink()
    found = store.nearest(RECIPE)
    assert found is not None
    assert found.step == 2
    assert store.steps(RECIPE) == [2]


def test_only_the_newest_of_a_living_training_is_kept(store: Snapshots) -> None:
    """Twelve bytes a parameter each; results and other trainings stay."""
    for step in (2, 4, 6):
        store.write(RECIPE, made(step))
    store.write(recipe(seed=1), made(4))
    store.keep_newest(RECIPE, spared_ids=[RECIPE.to(2).id])
    assert store.steps(RECIPE) == [2, 6]
    assert store.steps(recipe(seed=1)) == [4]


@pytest.mark.parametrize("point", ["publish-begun", "publish-filled", "publish-synced"])
def test_a_crash_while_writing_leaves_no_snapshot(
    store: Snapshots, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder appears whole or not at all."""

    def crash(name: str) -> None:
        if name == point:
            raise KeyboardInterrupt

    monkeypatch.setattr(failpoints, "hit", crash)
    with pytest.raises(KeyboardInterrupt):
        store.write(RECIPE, made(3))
    assert store.read(RECIPE.to(3)) is None
    assert store.steps(RECIPE) == []


def test_a_folder_that_cannot_be_made_is_no_failure_of_the_training(store: Snapshots) -> None:
    """The run is intact and can be resumed."""
    store.folder.touch()
    with pytest.raises(UnavailableError):
        store.write(RECIPE, made(3))
