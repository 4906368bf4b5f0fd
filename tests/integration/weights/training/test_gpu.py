"""Training on a GPU; skipped where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import distributed

from agent_forge.runs.home import Home
from agent_forge.weights.folders.checkpoint import digest
from agent_forge.weights.recipes import Algorithm
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training import complete, team
from agent_forge.weights.training.loop import Snapshot, segment
from testing.miniatures import cognate_runs
from testing.models.toy_training import model, recipe, streams
from testing.worlds import runs

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")

MUON = Algorithm(name="mugrokfast@1", params={"tau": None})


def trained(training, first: int = 0, last: int = 8, before: Snapshot | None = None, **more):
    """Some steps on the GPU, from a snapshot if there is one."""
    start = Tensors(model().config, before.weights) if before else model()
    optimiser = before.optimiser if before else None
    more = {"device": "cuda:0"} | more
    return segment(training, start, optimiser, streams(), first, last, **more)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("optimiser", ["adamw@1", "mugrokfast@1"])
def test_a_training_that_is_cut_has_the_same_bits(optimiser: str, precision: str) -> None:
    training = recipe(optimiser, precision=precision, accumulation=2)
    whole = trained(training)
    cut = trained(training, 3, 8, trained(training, 0, 3))
    assert (digest(whole.weights), digest(whole.optimiser)) == (
        digest(cut.weights),
        digest(cut.optimiser),
    )


def test_it_is_near_the_processor_s() -> None:
    """In float32, but for the order of sums."""
    there = trained(recipe())
    here = trained(recipe(), device="cpu")
    for name, tensor in here.weights.items():
        torch.testing.assert_close(there.weights[name], tensor, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
def test_shards_over_nccl_are_near_whole_weights(tmp_path: Path, optimiser: str) -> None:
    """One process is all that one GPU has; its collectives, gathers and snapshots are NCCL's."""
    training = recipe()
    if optimiser == "muon":
        training = complete(recipe(MUON.name).model_copy(update={"optimiser": MUON}))
    backend = team.BACKENDS["cuda"]
    meeting = f"file://{tmp_path / 'meeting'}"
    distributed.init_process_group(backend, meeting, rank=0, world_size=1)
    try:
        common = {"group": distributed.group.WORLD, "sharded": True}
        whole = trained(training, **common)
        cut = trained(training, 3, 8, trained(training, 0, 3, **common), **common)
    finally:
        distributed.destroy_process_group()
    assert digest(whole.weights) == digest(cut.weights)
    plain = trained(training)
    for name, tensor in plain.weights.items():
        torch.testing.assert_close(whole.weights[name], tensor, rtol=1e-3, atol=1e-4, msg=name)


def test_a_run_of_trainings_is_made_again_with_the_same_bits(tmp_path: Path) -> None:
    """Queued runs name a device; a second run of the same settings makes the same models."""
    found = []
    for place in ("a", "b"):
        home = Home(tmp_path / place)
        cognate_runs.submit(home, device="cuda:0")
        state = runs.finish(home)
        assert state.completed
        found.append(state.lineage_digest())
    assert found[0] == found[1]
