"""Training on answers: which rows a step has, what its loss is, and that it is cut anywhere."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from agent_forge.runs.errors import ConfigError, DataError, SourceChangedError
from agent_forge.weights.recipes import Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training.loop import Snapshot, segment
from agent_forge.weights.training.models import modules
from agent_forge.weights.training.objectives import Batch
from agent_forge.weights.training.objectives.answers import Answers, ends
from agent_forge.weights.training.windows import Ids, stream_digest
from testing.models.toy_training import VOCABULARY, model, recipe
from tests.integration.weights.test_training import bits


def stream(*items: tuple[list[int], list[int]]) -> Ids:
    """Return items as a stream: prompts as they are, answers as −1 − id."""
    return np.asarray([t for p, a in items for t in (*p, *(-1 - x for x in a))], np.int32)


#: Two of the short kind and 50 of a longer: distinct, so that an item tells its stream.
STREAMS = {
    "easy/1": stream(([1, 2], [3]), ([2, 1], [4, 0])),
    "hard/2": stream(*(([10, i, i, 11], [i + 1, 12, 0]) for i in range(13, 63))),
}


def training(**changes: Any) -> Train:
    fields: dict[str, Any] = {"objective": "answers@1", "context": 20}
    fields |= {"data": {"easy/1": 0.25, "hard/2": 0.75}} | changes
    digests = {name: stream_digest(STREAMS[name]) for name in fields["data"]}
    return recipe(**{"data_digests": digests, **fields})


def objective(**changes: Any) -> Answers:
    return Answers(training(**changes), modules.build(model()).eval(), STREAMS, {})


def items(row: Batch, index: int) -> list[list[int]]:
    """Return the token ids of a row's items, cut where positions begin again."""
    tokens, places = row["tokens"][index].tolist(), row["places"][index].tolist()
    starts = [i for i, place in enumerate(places) if place == 0]
    return [tokens[a:b] for a, b in itertools.pairwise([*starts, len(tokens)])]


KNOWN = {"easy/1": [[1, 2, 3], [2, 1, 4, 0]]} | {
    "hard/2": [[10, i, i, 11, i + 1, 12, 0] for i in range(13, 63)]
}


def test_an_item_ends_where_an_answer_does() -> None:
    assert ends(STREAMS["easy/1"]).tolist() == [3, 7]
    for wrong in ([], [-1, 2, -3], [1, 2]):
        with pytest.raises(DataError, match="begins with a prompt and ends with an answer"):
            ends(np.asarray(wrong, np.int32))


def test_rows_are_whole_items_and_their_answers_are_marked() -> None:
    """The rest of a row is empty: zeros, of which none is to be learned."""
    batch = objective().batch(3)
    assert batch["tokens"].shape == (4, 21)
    every = [*KNOWN["easy/1"], *KNOWN["hard/2"]]
    for index in range(4):
        *whole, last = items(batch, index)
        assert whole
        assert all(item in every for item in whole)
        assert last in every or set(last) == {0}
        marked = batch["answers"][index].tolist()
        wanted = [
            place >= (2 if item[0] < 10 else 4) and item in every
            for item in [*whole, last]
            for place in range(len(item))
        ]
        assert marked == wanted[1:]


def test_streams_are_drawn_by_their_shares() -> None:
    """A quarter of some 4,000 items is of the first stream, within five standard deviations."""
    found = objective(batch=32, context=60)
    drawn = [i for n in range(20) for r in range(32) for i in items(found.batch(n), r) if any(i)]
    easy = sum(item in KNOWN["easy/1"] for item in drawn)
    assert len(drawn) > 3000
    assert abs(easy / len(drawn) - 0.25) < 5 * (0.25 * 0.75 / len(drawn)) ** 0.5


def test_the_rows_of_a_step_follow_from_recipe_and_step() -> None:
    """Not from the steps that were read before, and for other steps and seeds they are others."""
    first, second = objective(), objective()
    first.batch(0)
    assert torch.equal(first.batch(5)["tokens"], second.batch(5)["tokens"])
    assert not torch.equal(second.batch(5)["tokens"], second.batch(6)["tokens"])
    assert not torch.equal(second.batch(5)["tokens"], objective(seed=8).batch(5)["tokens"])


def test_items_of_a_row_do_not_see_each_other() -> None:
    """Each item's logits are those that it has alone."""
    found = objective()
    batch, module = found.batch(1), modules.build(model()).eval()
    with torch.no_grad():
        row = module(input_ids=batch["tokens"], position_ids=batch["places"]).logits
        for index in range(4):
            at = 0
            for item in items(batch, index):
                alone = module(input_ids=torch.tensor([item])).logits[0]
                torch.testing.assert_close(row[index, at : at + len(item)], alone)
                at += len(item)


def test_the_loss_is_the_mean_over_answers_however_a_step_is_cut() -> None:
    """Item by item with a plain forward pass; and as the mean of the parts of a step."""
    found = objective()
    batch, module = found.batch(2), modules.build(model()).eval()
    lost: list[torch.Tensor] = []
    for index in range(4):
        for item in items(batch, index):
            if any(item):
                prompt = 2 if item[0] < 10 else 4
                logits = module(input_ids=torch.tensor([item])).logits[0]
                lost += F.cross_entropy(
                    logits[prompt - 1 : -1], torch.tensor(item[prompt:]), reduction="none"
                )
    wanted = torch.stack(lost).mean().item()
    assert found.loss(batch).item() == pytest.approx(wanted, rel=1e-5)
    parts = [{n: t[i : i + 2] for n, t in batch.items()} for i in (0, 2)]
    halves = [found.loss(part).item() for part in parts]
    assert sum(halves) / 2 == pytest.approx(wanted, rel=1e-5)
    assert halves[0] != halves[1]


def carried_out(whole: Train, cuts: tuple[int, ...] = ()) -> Snapshot:
    start, optimiser, found = model(), None, None
    for first, last in itertools.pairwise((whole.first, *cuts, whole.upto)):
        found = segment(whole, start, optimiser, STREAMS, first, last)
        start, optimiser = Tensors(start.config, found.weights), found.optimiser
    assert found is not None
    return found


def test_a_training_that_is_cut_after_every_step_gives_the_same_bits() -> None:
    whole = training(accumulation=2)
    assert bits(carried_out(whole)) == bits(carried_out(whole, tuple(range(1, whole.steps))))


@pytest.mark.slow
def test_it_learns_and_prompts_are_not_learned() -> None:
    """Random prompts of an untrained model stay near log 64; the answers do not."""
    whole = training(steps=150, data={"hard/2": 1.0}, batch=8, context=40)
    made = carried_out(whole)
    assert np.mean(made.losses[:3]) == pytest.approx(np.log(VOCABULARY), abs=0.3)
    assert np.mean(made.losses[-3:]) < 2
    module = modules.build(Tensors(model().config, made.weights)).eval()
    batch = objective(data={"hard/2": 1.0}).batch(0)
    with torch.no_grad():
        logits = module(input_ids=batch["tokens"][:, :-1], position_ids=batch["places"][:, :-1])
    prompts = ~batch["answers"] & (batch["places"][:, 1:] > 0) & (batch["tokens"][:, 1:] > 12)
    lost = F.cross_entropy(logits.logits[prompts], batch["tokens"][:, 1:][prompts])
    assert lost.item() > 3.5


def test_what_cannot_be_trained_on_is_refused() -> None:
    with pytest.raises(DataError, match=r"hard/2 has 7 tokens: it needs a context of 6 at least"):
        objective(context=5)
    assert objective(context=6).batch(0)["tokens"].shape == (4, 7)
    with pytest.raises(ConfigError, match="lacks the data hard/2"):
        Answers(training(), modules.build(model()), {"easy/1": STREAMS["easy/1"]}, {})
    with pytest.raises(ConfigError, match="reads the models"):
        Answers(training(), modules.build(model()), STREAMS, {"teacher": model()})
    other = {**STREAMS, "easy/1": stream(([1], [2]))}
    with pytest.raises(SourceChangedError, match="easy/1"):
        Answers(training(), modules.build(model()), other, {})
    with pytest.raises(KeyError):
        objective().load({"x": torch.zeros(1)})
    assert objective().state() == {}
