"""Supervised fine-tuning: the rows of a step, the loss beside transformers' own, and any cut."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    MambaConfig,
    MambaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
)

from agent_forge.runs.errors import ConfigError, DataError, SourceChangedError
from agent_forge.weights.recipes import Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training import token_losses
from agent_forge.weights.training.loop import Snapshot, segment
from agent_forge.weights.training.models import modules
from agent_forge.weights.training.objectives import Batch
from agent_forge.weights.training.objectives.answers import check_apart
from agent_forge.weights.training.objectives.sft import SHORTEST, WAITING, Sft
from agent_forge.weights.training.windows import Ids, pack_items, stream_digest, unpack_items
from testing.models import titans_toys
from testing.models.toy_training import model, recipe
from tests.integration.weights.test_training import bits


def item(number: int, *turns: tuple[list[int], list[int]]) -> Ids:
    """Return an item that begins with its number; of each turn the second part is to be learned."""
    ids = [number, *(t for read, learned in turns for t in (*read, *(-1 - x for x in learned)))]
    return np.asarray(ids, np.int32)


#: Forty items of one or two turns, of 5 to 16 tokens, and a text of 500 tokens.
ITEMS = [item(n, ([n % 5, 7], [n % 9, 9]), *[([3] * (n % 11), [8])] * (n % 2)) for n in range(10, 50)]
STREAMS = {"chats": pack_items(ITEMS), "prose": np.asarray([50 + n % 13 for n in range(500)], np.int32)}
ONLY = {"chats": 1.0}
GPT2 = {"vocab_size": 64, "bos_token_id": 1, "eos_token_id": 2}


def training(**changes: Any) -> Train:
    fields: dict[str, Any] = {"objective": "sft@1", "context": 40, "params": {"text": ["prose"]}}
    fields |= {"data": {"chats": 0.7, "prose": 0.3}} | changes
    digests = {name: stream_digest(STREAMS[name]) for name in fields["data"]}
    return recipe(**{"data_digests": digests, **fields})


def objective(**changes: Any) -> Sft:
    return Sft(training(**changes), modules.build(model()).eval(), STREAMS, {})


def pieces(batch: Batch, index: int) -> list[list[int]]:
    """Return the token ids of a row's items, cut where positions begin again."""
    tokens, places = batch["tokens"][index].tolist(), batch["places"][index].tolist()
    starts = [i for i, place in enumerate(places) if place == 0]
    return [tokens[a:b] for a, b in itertools.pairwise([*starts, len(tokens)])]


def plain(marked: Ids) -> list[int]:
    return np.where(marked < 0, -1 - marked, marked).tolist()


def test_items_come_back_from_their_stream() -> None:
    assert [ids.tolist() for ids in unpack_items(pack_items(ITEMS))] == [i.tolist() for i in ITEMS]
    assert unpack_items(pack_items([])) == []
    for wrong in ([0], [3, 1, 2], [-1, 2], [2, 1, 2, 9]):
        with pytest.raises(DataError, match="the stream holds no items: number"):
            unpack_items(np.asarray(wrong, np.int32))


def test_rows_are_whole_items_and_what_is_learned_is_marked() -> None:
    """Every item stands whole in its row; the rest of a row is zeros, of which none is learned."""
    batch = objective(data=ONLY, params={}).batch(2)
    for index in range(4):
        at = 0
        for ids in pieces(batch, index):
            marked = next((i for i in ITEMS if plain(i) == ids), None)
            answers = batch["answers"][index, max(0, at - 1) : at - 1 + len(ids)].tolist()
            if marked is None:
                assert set(ids) == {0}
                assert not any(answers)
            else:
                assert answers[-len(ids) + 1 :] == (marked[1:] < 0).tolist()
            at += len(ids)


def test_each_epoch_has_every_item_once() -> None:
    """An item that waits for a row in which it fits comes a little later, and none is lost."""
    sft = objective(data=ONLY, params={})
    rows = (ids for step in range(60) for r in range(4) for ids in pieces(sft.batch(step), r))
    counts = Counter(ids[0] for ids in rows if any(ids))
    assert set(counts) == set(range(10, 50))
    assert max(counts.values()) - min(counts.values()) <= 2
    assert sum(counts.values()) > 10 * len(ITEMS)
    assert len(ITEMS) > WAITING


def test_streams_are_read_by_their_shares() -> None:
    """Text is 30 % of the tokens that are read, up to one window; it leaves no row half empty."""
    sft = objective()
    every = [ids for step in range(40) for r in range(4) for ids in pieces(sft.batch(step), r)]
    text = sum(len(ids) for ids in every if ids[0] >= 50)
    chats = sum(len(ids) for ids in every if 10 <= ids[0] < 50)
    assert text / (text + chats) == pytest.approx(0.3, abs=41 / (text + chats) + 0.01)
    assert min(len(ids) for ids in every if ids[0] >= 50) >= SHORTEST


def test_the_rows_of_a_step_follow_from_recipe_and_step() -> None:
    first, second = objective(), objective()
    first.batch(0)
    assert torch.equal(first.batch(5)["tokens"], second.batch(5)["tokens"])
    assert torch.equal(first.batch(1)["tokens"], second.batch(1)["tokens"])
    assert not torch.equal(second.batch(5)["tokens"], second.batch(6)["tokens"])
    assert not torch.equal(second.batch(5)["tokens"], objective(seed=8).batch(5)["tokens"])


def test_the_loss_is_that_of_transformers_however_a_step_is_cut() -> None:
    """Item by item with labels of −100, as trainers do it; the mean is over all tokens to learn."""
    sft = objective(data=ONLY, params={})
    batch, module = sft.batch(2), modules.build(model()).eval()
    total, count = 0.0, 0
    for index in range(4):
        for ids in pieces(batch, index):
            marked = next((i for i in ITEMS if plain(i) == ids), None)
            if marked is not None:
                labels = torch.tensor(
                    [[t if x < 0 else -100 for t, x in zip(ids, marked, strict=True)]]
                )
                size = int((marked < 0).sum())
                total += module(input_ids=torch.tensor([ids]), labels=labels).loss.item() * size
                count += size
    assert sft.loss(batch).item() == pytest.approx(total / count, rel=1e-5)
    parts = [{n: t[i : i + 2] for n, t in batch.items()} for i in (0, 2)]
    assert sum(sft.loss(part).item() for part in parts) / 2 == pytest.approx(total / count, rel=1e-5)


@pytest.mark.parametrize(
    "of",
    [
        lambda size: Gemma2ForCausalLM(Gemma2Config(**size, head_dim=8, final_logit_softcapping=3.0)),
        lambda size: CohereForCausalLM(CohereConfig(**size, logit_scale=0.3)),
        lambda size: GPT2LMHeadModel(
            GPT2Config(**GPT2, n_embd=16, n_layer=1, n_head=2, n_positions=32)
        ),
        lambda size: OPTForCausalLM(
            OPTConfig(**GPT2, hidden_size=16, ffn_dim=32, num_hidden_layers=1, num_attention_heads=2)
        ),
        lambda size: titans_toys.module(),
    ],
    ids=["bounded", "scaled", "gpt2", "decoder-within", "embeddings-only"],
)
def test_logits_of_chosen_places_are_those_of_the_whole(of: Any, monkeypatch: Any) -> None:
    """Losses and gradients are equal, with a head that bounds or scales, and in several parts.

    So they are of a model that calls a part of its base, and of one whose base takes embeddings.
    """
    monkeypatch.setattr(token_losses, "PLACES", 5)
    size = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    size |= {"num_attention_heads": 2, "num_key_value_heads": 2, "pad_token_id": 0}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        module = of(size | {"bos_token_id": 1, "eos_token_id": 2}).eval()
        ids, places = torch.randint(3, 64, (2, 13)), torch.rand(2, 12) < 0.6
    targets = ids[:, 1:][places]
    whole = module(input_ids=ids[:, :-1], use_cache=False).logits[places].float()
    losses = torch.nn.functional.cross_entropy(whole, targets, reduction="none")
    losses.sum().backward()
    gradients = {name: p.grad.clone() for name, p in module.named_parameters()}
    module.zero_grad()
    chosen = token_losses.token_losses(module, {"input_ids": ids[:, :-1]}, places, targets)
    chosen.sum().backward()
    assert len(targets) > 5
    torch.testing.assert_close(chosen, losses)
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], msg=name)
    assert "forward" not in vars(module.base_model)


@pytest.mark.parametrize("context", [8, 12, 14, 15, 20])
def test_every_row_has_an_item_in_short_windows_too(context: int) -> None:
    """None of a step's rows is empty, so that each step has something to learn."""
    short = {"chats": pack_items([item(n, ([1], [2, 3])) for n in range(10, 20)])}
    digests = {name: stream_digest(ids) for name, ids in short.items()}
    whole = training(data=ONLY, params={}, context=context)
    sft = Sft(whole.model_copy(update={"data_digests": digests}), modules.build(model()), short, {})
    assert all(sft.batch(step)["answers"].any(1).all() for step in range(6))


def test_a_model_whose_items_see_each_other_is_refused() -> None:
    """States of a Mamba go over the ends of items; attention of Qwen2 does not."""
    check_apart(modules.build(model()).eval())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        module = MambaForCausalLM(MambaConfig(vocab_size=64, hidden_size=16, num_hidden_layers=1))
    with pytest.raises(ConfigError, match="lets the examples of a row see each other"):
        check_apart(module.eval())


def carried_out(whole: Train, cuts: tuple[int, ...] = ()) -> Snapshot:
    start, optimiser, snapshot = model(), None, None
    for first, last in itertools.pairwise((whole.first, *cuts, whole.upto)):
        snapshot = segment(whole, start, optimiser, STREAMS, first, last)
        start, optimiser = Tensors(start.config, snapshot.weights), snapshot.optimiser
    assert snapshot is not None
    return snapshot


def test_a_training_that_is_cut_after_every_step_gives_the_same_bits() -> None:
    whole = training(accumulation=2)
    assert bits(carried_out(whole)) == bits(carried_out(whole, tuple(range(1, whole.steps))))


def test_what_cannot_be_trained_on_is_refused() -> None:
    with pytest.raises(DataError, match=r"of chats has 16 tokens: a window of 12 takes 1 to 13"):
        objective(context=12, data=ONLY, params={})
    with pytest.raises(ConfigError, match="lacks the data prose"):
        Sft(training(), modules.build(model()), {"chats": STREAMS["chats"]}, {})
    with pytest.raises(ConfigError, match="reads the models"):
        Sft(training(), modules.build(model()), STREAMS, {"teacher": model()})
    other = {**STREAMS, "chats": pack_items(ITEMS[:3])}
    with pytest.raises(SourceChangedError, match="chats"):
        Sft(training(), modules.build(model()), other, {})
    short = {**STREAMS, "prose": STREAMS["prose"][:20]}
    digests = {name: stream_digest(ids) for name, ids in short.items()}
    with pytest.raises(DataError, match=r"'prose' has 20 tokens: a window needs at least 41"):
        Sft(training().model_copy(update={"data_digests": digests}), modules.build(model()), short, {})
