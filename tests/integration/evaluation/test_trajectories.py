"""Sampled trajectories: keyed draws of the right distribution, contexts, and what is kept of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.trajectories import contexts, kept, sampling
from agent_forge.evaluation.trajectories.contexts import Beginnings
from agent_forge.evaluation.trajectories.sampled import SampleReplies, validate_answer
from agent_forge.runs.errors import ConfigError, SourceChangedError
from agent_forge.weights import randomness
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.training.models import modules
from agent_forge.weights.training.models.modules import TEACHER
from agent_forge.weights.training.objectives.bake import BakeObjective
from agent_forge.weights.training.windows import BAKED, Ids, Trajectory
from testing.models import toy_baking, toy_models, toy_training

TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def resident() -> ResidentModel:
    return ResidentModel.from_module(modules.build(toy_training.model()))


def beginnings(count: int = 9) -> list[Ids]:
    return [
        (np.arange(2 + number % 5, dtype=np.int32) * (number + 3)) % toy_training.VOCABULARY
        for number in range(count)
    ]


def lists(found: list[Ids]) -> list[list[int]]:
    return [one.tolist() for one in found]


def test_replies_depend_on_key_and_place_and_not_on_their_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The toy's forward pass rounds differently in batches of another size; no draw is that close."""
    whole = lists(sampling.sample(resident(), beginnings(), 6, (), "k", 1))
    assert whole == lists(sampling.sample(resident(), beginnings(), 6, (), "k", 1))
    assert whole != lists(sampling.sample(resident(), beginnings(), 6, (), "k", 2))
    assert whole[:4] == lists(sampling.sample(resident(), beginnings()[:4], 6, (), "k", 1))
    monkeypatch.setattr(sampling, "ROWS", 1)
    assert whole == lists(sampling.sample(resident(), beginnings(), 6, (), "k", 1))
    shorter = lists(sampling.sample(resident(), beginnings(), 3, (), "k", 1))
    assert shorter == [reply[:3] for reply in whole]


def test_a_reply_is_drawn_token_by_token_as_a_slow_reference_draws() -> None:
    """Without cache and padding: softmax, cumulative sums, the first that passes the random number."""
    model, one = resident(), beginnings()[4]
    found = sampling.sample(model, beginnings(), 6, (), "k", 1)[4].tolist()
    places, said = randomness.uniform(6, "k", 1, "reply", 4), one.tolist()
    for place in places:
        p = model.logits(torch.tensor([said]))[0, -1].double().softmax(-1).tolist()
        total, token = 0.0, -1
        while total <= place:
            token += 1
            total += p[token]
        said.append(token)
    assert found == said[len(one) :]


def test_a_greedy_reply_has_the_likeliest_tokens_and_ends_like_a_sampled_one() -> None:
    model, one = resident(), beginnings()[4]
    found = lists(sampling.greedy(model, beginnings(), 6, ()))
    said = one.tolist()
    for _ in range(6):
        said.append(int(model.logits(torch.tensor([said]))[0, -1].argmax()))
    assert found[4] == said[len(one) :]
    end = found[4][1]
    cut = lists(sampling.greedy(model, beginnings(), 6, (end,)))[4]
    assert cut == found[4][: found[4].index(end) + 1]


def test_draws_have_the_frequencies_of_the_distribution() -> None:
    """P = (½, ⅓, 0, ⅙): of 6,000 draws the counts are within five standard deviations."""
    p = np.array([1 / 2, 1 / 3, 0, 1 / 6])
    scores = torch.tensor(p).log().float().repeat(6000, 1)
    draw = sampling.Drawing(randomness.uniform(6000, "test")[:, None], 0)
    token = draw(torch.zeros(6000, 0, dtype=torch.int64), scores).argmax(-1)
    counts = np.bincount(token.numpy(), minlength=4)
    assert counts[2] == 0
    assert (np.abs(counts - 6000 * p) <= 5 * np.sqrt(6000 * p * (1 - p))).all()


def test_a_reply_ends_with_its_first_end_token() -> None:
    free = lists(sampling.sample(resident(), beginnings(), 6, (), "k", 1))
    end = free[0][2]
    found = lists(sampling.sample(resident(), beginnings(), 6, (end,), "k", 1))
    for reply, whole in zip(found, free, strict=True):
        cut = whole.index(end) + 1 if end in whole else len(whole)
        assert reply == whole[:cut]
    assert len(found[0]) < len(free[0])


def test_the_divergence_is_zero_of_a_model_from_itself_and_that_of_the_objective_else() -> None:
    known = toy_baking.trajectories(BAKED)
    same = [Trajectory(0, one.plain, one.plain, one.reply) for one in known]
    assert sampling.along(resident(), resident(), same) == [0.0] * len(same)
    found = sampling.along(resident(), resident(), known)
    assert min(found) > 0
    # The objective's loss of one step: 4 of the 6 trajectories, parent and trained model the same.
    whole = toy_baking.recipe({"neutral": 0.0, "others": 0.0})
    given = {TEACHER: toy_training.model()}
    objective = BakeObjective(whole, modules.build(toy_training.model()), toy_baking.streams(), given)
    batch = objective.batch(0)
    numbers = batch[BAKED].tolist()
    mean = sum(found[n] for n in numbers) / sum(len(known[n].reply) for n in numbers)
    assert objective.loss(batch).item() == pytest.approx(mean, rel=1e-4)


def test_documents_are_cut_into_pieces() -> None:
    stream = np.asarray([1, 2, 0, 0, 3, 4, 5, 6, 7, 8, 9, 0, 5], np.int32)
    found = list(contexts.documents(stream, 0))
    assert lists(found) == [[1, 2], [3, 4, 5, 6, 7, 8, 9], [5]]
    # Of 7 tokens in pieces of 4: the rest of 3 is at least half; of pieces of 5 the rest of 2 is not.
    assert lists(contexts.pieces(found, 4)) == [[1, 2], [3, 4, 5, 6], [7, 8, 9], [5]]
    assert lists(contexts.pieces(found, 5)) == [[1, 2], [3, 4, 5, 6, 7], [5]]


def test_contexts_come_from_the_domains_in_turn() -> None:
    pools = {
        name: [np.asarray([start + n], np.int32) for n in range(count)]
        for name, start, count in (("a", 0, 2), ("b", 100, 9))
    }
    found = [int(one[0]) for one in contexts.chosen(pools, 6, "key")]
    assert [n >= 100 for n in found] == [False, True, False, True, True, True]
    assert len(set(found)) == 6
    assert found == [int(one[0]) for one in contexts.chosen(pools, 6, "key")]
    assert found != [int(one[0]) for one in contexts.chosen(pools, 6, "other")]
    assert len(contexts.chosen(pools, 99, "key")) == 11  # all that there are


def test_a_prompt_stands_before_the_context_or_is_the_system_message() -> None:
    tokenizer: Any = toy_models.tokenizer()
    ids = np.asarray(tokenizer.encode("x = 1"), np.int32)
    bare = Beginnings(tokenizer, chat=False)
    assert bare.plain(ids).tolist() == ids.tolist()
    assert tokenizer.decode(bare.prompted(["Be ", "brief: "], ids)) == "Be brief: x = 1"
    assert bare.room(["Be brief: "]) == len(tokenizer.encode("Be brief: "))
    with pytest.raises(ConfigError, match="no chat template"):
        Beginnings(tokenizer, chat=True)
    tokenizer.chat_template = TEMPLATE
    chat = Beginnings(tokenizer, chat=True)
    assert tokenizer.decode(chat.plain(ids)) == "[user]x = 1[assistant]"
    said = "[system]Be\n\nbrief[user]x = 1[assistant]"
    assert tokenizer.decode(chat.prompted([" Be\n", "brief"], ids)) == said
    tokenizer.chat_template = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    )
    with pytest.raises(ConfigError, match=r"takes no system message \(TemplateError: no system\)"):
        Beginnings(tokenizer, chat=True)


def test_what_is_sampled_is_kept_and_sampled_again_when_it_is_lost(tmp_path: Path) -> None:
    task = SampleReplies("1" * 64, (BAKED,))
    written = {BAKED: list(toy_baking.trajectories(BAKED))}
    cache = Artifacts(tmp_path / "cache")
    event = kept.answered(task, cache, lambda: written)
    assert event.streams[BAKED].trajectories == toy_baking.COUNT
    assert event.streams[BAKED].tokens == 1 + 2 + 3 + 4 + 5 + 6
    assert event.streams[BAKED].digest == toy_baking.recipe().data_digests[BAKED]
    assert validate_answer(task, event) is None

    def never() -> Any:
        raise AssertionError("the cache has it")

    stored = kept.streams(event, Artifacts(tmp_path / "cache"), never)
    assert stored[BAKED].tolist() == toy_baking.streams()[BAKED].tolist()
    again = kept.streams(event, Artifacts(tmp_path / "empty"), lambda: written)
    assert again[BAKED].tolist() == stored[BAKED].tolist()
    fewer = {BAKED: written[BAKED][1:]}
    with pytest.raises(SourceChangedError, match="sampled again"):
        kept.streams(event, Artifacts(tmp_path / "other"), lambda: fewer)


def test_an_answer_to_another_task_is_noticed(tmp_path: Path) -> None:
    written = {BAKED: list(toy_baking.trajectories(BAKED))}
    event = kept.answered(SampleReplies("1" * 64, (BAKED,)), Artifacts(tmp_path), lambda: written)
    assert "another model" in str(validate_answer(SampleReplies("2" * 64, (BAKED,)), event))
    assert "other streams" in str(validate_answer(SampleReplies("1" * 64, (BAKED, "x")), event))
    kept_ = event.streams[BAKED].model_copy(update={"tokens": 1})
    silent = event.model_copy(update={"streams": {BAKED: kept_}})
    assert "no token" in str(validate_answer(SampleReplies("1" * 64, (BAKED,)), silent))
