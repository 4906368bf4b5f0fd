"""Trainings of titans_mag models: the same bits however they are cut, by other objectives, too."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from agent_forge.weights.folders.checkpoint import digest
from agent_forge.weights.recipes import Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training.loop import Snapshot, segment
from agent_forge.weights.training.models import modules
from agent_forge.weights.training.windows import stream_digest
from testing.models import titans_toys, toy_training
from testing.shares import one_quick
from tests.golden.test_guards import machine

#: Kind of model → digest of weights and state after 8 steps, by machine.
GOLDEN = Path(__file__).parents[3] / "golden" / "titans_mag.json"
KINDS: dict[str, dict[str, Any]] = {
    "linear": {},
    "two-layer": {"memory": "two-layer", "width": 4},
    "recursive": {"recursions": 2, "halting": True},
}


def carried_out(recipe: Train, start: Tensors, cuts: tuple[int, ...] = (), **more: Any) -> Snapshot:
    """The last snapshot of a training that is cut after these steps."""
    state, whole = None, None
    for first, last in itertools.pairwise((0, *cuts, recipe.upto)):
        whole = segment(recipe, start, state, first=first, last=last, **more)
        start, state = Tensors(start.config, whole.weights), whole.optimiser
    assert whole is not None
    return whole


def bits(made: Snapshot) -> tuple[str, str]:
    return digest(made.weights), digest(made.optimiser)


@pytest.mark.parametrize("precision", one_quick("bfloat16", "float32"))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimiser", one_quick("mugrokfast@1", "adamw@1"))
def test_a_training_that_is_cut_after_every_step_gives_the_same_bits(
    optimiser: str, kind: str, precision: str
) -> None:
    """QK-Clip finds attention and leaves the memory alone."""
    recipe = toy_training.recipe(optimiser, precision=precision, accumulation=2)
    start, more = titans_toys.initial(**KINDS[kind]), {"streams": toy_training.streams()}
    whole = carried_out(recipe, start, **more)
    cut = carried_out(recipe, start, tuple(range(1, recipe.steps)), **more)
    assert bits(cut) == bits(whole)
    assert whole.losses[-1] < whole.losses[0]


def test_activations_that_are_computed_again_give_the_same_bits() -> None:
    start, more = titans_toys.initial(), {"streams": toy_training.streams()}
    plain = carried_out(toy_training.recipe(), start, **more)
    again = carried_out(toy_training.recipe(checkpointing=True), start, **more)
    assert bits(plain) == bits(again)


@pytest.mark.parametrize("objective", one_quick("lora@1", "answers@1", "distil@1", "ternary@1"))
def test_other_objectives_train_it(objective: str) -> None:
    """Items that share rows, a teacher, adapters, ternary weights: cut in the middle, the same bits."""
    start = titans_toys.initial()
    fields: dict[str, Any] = {"objective": objective}
    streams = toy_training.streams()
    inputs = {}
    if objective == "answers@1":
        streams = toy_training.answers()
        fields["data_digests"] = {name: stream_digest(ids) for name, ids in streams.items()}
    if objective == "distil@1":
        fields["inputs"], inputs = {"teacher": "1" * 64}, {"teacher": start}
    if objective == "lora@1":
        fields["params"] = {"objective": "lm@1", "rank": 4}
    recipe = toy_training.recipe(**fields)
    more = {"streams": streams, "inputs": inputs}
    whole = carried_out(recipe, start, **more)
    assert bits(carried_out(recipe, start, (3,), **more)) == bits(whole)
    moved = {n for n, t in whole.weights.items() if not t.equal(start.weights[n])}
    assert {n for n in moved if ".memory.k_proj" in n}


def test_items_of_a_row_are_trained_as_if_alone() -> None:
    """The loss of packed items is the mean of those of the items."""
    from agent_forge.weights.training import objectives

    streams = toy_training.answers()
    digests = {name: stream_digest(ids) for name, ids in streams.items()}
    recipe = toy_training.recipe(objective="answers@1", data_digests=digests)
    module = modules.build(titans_toys.initial())
    objective = objectives.of("answers@1")(recipe, module, streams, {})
    batch = objective.batch(0)
    with torch.no_grad():
        loss = float(objective.loss(batch))
    tokens, answers = batch["tokens"], batch["answers"]
    total = count = 0.0
    for row in range(len(tokens)):
        for at in range(0, recipe.context, 4):  # items of four tokens
            item = tokens[row, at : at + 4]
            if len(item) == 4 and answers[row, at + 2]:
                told = module(item[None, :3], use_cache=False).logits[0, -1].log_softmax(-1)
                total, count = total - told[item[3]].item(), count + 1
    assert count == float(answers.sum())
    assert loss == pytest.approx(total / count, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_gives_the_numbers_that_it_gave(kind: str) -> None:
    """A change of the architecture's code must not change models that its name already has."""
    noted = json.loads(GOLDEN.read_text("utf-8"))
    if machine() not in noted:
        pytest.skip(f"noted on {', '.join(noted)}, this is {machine()}")
    assert golden(kind) == noted[machine()][kind]


def golden(kind: str) -> str:
    """Return the digest of weights and state after 8 steps of Muon."""
    recipe = toy_training.recipe("mugrokfast@1", purpose="golden")
    start = titans_toys.initial(**KINDS[kind])
    made = segment(recipe, start, None, toy_training.streams(), 0, 8, threads=1)
    return digest(made.weights | made.optimiser)


def main() -> None:
    """Note this machine's digests if it has none: call this module with `python -m`."""
    whole = json.loads(GOLDEN.read_text("utf-8")) if GOLDEN.exists() else {}
    whole.setdefault(machine(), {kind: golden(kind) for kind in KINDS})
    GOLDEN.write_text(json.dumps(whole, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main()
