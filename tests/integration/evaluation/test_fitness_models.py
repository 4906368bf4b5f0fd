"""Measuring a tiny model: every token once, the same numbers as transformers alone."""

from __future__ import annotations

import gc
import itertools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    Gemma2Config,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
)

from agent_forge.evaluation import autotune
from agent_forge.evaluation.backends import backend, local_backend
from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data import packing
from agent_forge.evaluation.data.outcomes import Draw
from agent_forge.evaluation.data.packing import ItemPack, PackedQuestion
from agent_forge.evaluation.evaluate import Judge, evaluate
from agent_forge.evaluation.measures import perplexity
from agent_forge.evomerge.config import parse
from agent_forge.evomerge.merging import layer_fitness
from agent_forge.evomerge.merging.builder import Weights
from agent_forge.evomerge.recipes import tensor_groups
from agent_forge.evomerge.tasks.context import follow
from agent_forge.runs.errors import SourceError
from agent_forge.weights.folders import checkpoint
from benchmarks.evomerge.taylor import taylor_gains
from testing.models import toy_models
from testing.models.toy_tensors import question, texts

CONTEXT = 32


def windows(count: int, length: int) -> list[np.ndarray]:
    """Random token ids."""
    rng = np.random.default_rng(3)
    return [rng.integers(1, 320, length) for _ in range(count)]


# ---- windows -------------------------------------------------------------------------------


def test_window_scores_are_those_of_transformers_alone(folder: Path, resident: ResidentModel):
    """Σ −log p from the library's own loss (a mean over n − 1 tokens), and hits from its argmax."""
    alone: Any = AutoModelForCausalLM.from_pretrained(folder / "base").eval()
    drawn = [*windows(5, CONTEXT), *windows(2, 7)]
    nll, tokens, hits = perplexity.score_windows(resident, drawn)
    assert tokens == [len(w) - 1 for w in drawn]
    for i, window in enumerate(drawn):
        ids = torch.from_numpy(window)[None]
        with torch.no_grad():
            out = alone(input_ids=ids, labels=ids)
        assert nll[i] == pytest.approx(float(out.loss) * (len(window) - 1), rel=1e-5)
        assert hits[i] == int((out.logits[0, :-1].argmax(-1) == ids[0, 1:]).sum())


def test_batching_does_not_matter(resident: ResidentModel):
    """One by one or together: within rounding of float32 sums."""
    drawn = windows(6, CONTEXT)
    together, _, _ = perplexity.score_windows(resident, drawn)
    alone = [perplexity.score_windows(resident, [w])[0][0] for w in drawn]
    assert together == pytest.approx(alone, rel=1e-6)


def test_batches_hold_every_window_once_and_one_length_each():
    """At most 4,096 tokens: 128 windows of 32; fewer where the vocabulary is large."""
    drawn = [np.zeros(n, np.int64) for n in (32, 7, 32, 7, 32)]

    def rows(length: int) -> int:
        return backend.rows_per_batch(length, 320)

    assert list(backend.batches(drawn, rows)) == [(32, [0, 2, 4]), (7, [1, 3])]
    assert list(backend.batches(drawn, rows, pad=4)) == [(32, [0, 2, 4]), (8, [1, 3])]
    assert list(backend.batches(drawn, rows, pad=48)) == [(48, [0, 1, 2, 3, 4])]
    assert list(backend.batches(drawn, rows, pad=48, limit=33)) == [(33, [0, 1, 2, 3, 4])]
    assert rows(32) == 128
    assert backend.rows_per_batch(32, 320, 64) == 2
    # 2²⁴ logits / 2¹⁸ tokens of vocabulary = 64 tokens = two windows of 32, and never none.
    assert backend.rows_per_batch(32, 1 << 18) == 2
    assert backend.rows_per_batch(100_000, 320) == 1
    assert [len(b) for _, b in backend.batches([drawn[0]] * 300, rows)] == [128, 128, 44]


@given(st.lists(st.integers(1, 60), max_size=9), st.integers(1, 5), st.booleans())
def test_batches_of_several_lengths_are_the_cheapest_of_all_cuts(
    lengths: list[int], most: int, padded: bool
) -> None:
    """Against all ways to cut the sequences in order of length; the cost is that of the docstring."""
    drawn = [np.zeros(n, np.int64) for n in lengths]
    pad = {"pad": 16, "limit": 50} if padded else {}
    mixed = list(backend.mixed_batches(drawn, lambda length: max(1, 60 * most // length), **pad))
    assert sorted(place for _, places in mixed for place in places) == list(range(len(drawn)))
    for length, places in mixed:
        longest = max(lengths[place] for place in places)
        assert length == (max(longest, min(-(-longest // 16) * 16, 50)) if padded else longest)
        assert len(places) == 1 or len(places) * length <= 60 * most
    order = sorted(lengths, reverse=True)
    widths = [max(n, min(-(-n // 16) * 16, 50)) if padded else n for n in order]
    costs = []
    for cuts in itertools.product((False, True), repeat=max(0, len(order) - 1)):
        starts = [0, *(place + 1 for place, cut in enumerate(cuts) if cut), len(order)]
        parts = [(widths[a], b - a) for a, b in itertools.pairwise(starts) if b > a]
        if all(count == 1 or width * count <= 60 * most for width, count in parts):
            costs.append(sum(backend.PASS + width * count for width, count in parts))
    assert sum(backend.PASS + width * len(places) for width, places in mixed) == min(costs)


# ---- continuations ----------------------------------------------------------------------------


SIZES: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 32,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
OTHER: dict[str, Any] = {
    "vocab_size": 320,
    "n_embd": 16,
    "hidden_size": 16,
    "n_layer": 3,
    "n_head": 2,
    "n_positions": 128,
    "bos_token_id": 0,
    "eos_token_id": 0,
}


@pytest.mark.parametrize(
    ("config", "once"),
    [
        (Qwen2Config(**SIZES), True),
        (LlamaConfig(**SIZES), True),
        (MistralConfig(**SIZES, sliding_window=24), True),  # prompts are longer
        (Gemma2Config(**SIZES, head_dim=8, sliding_window=20), True),
        (GPT2Config(**OTHER), True),  # learned positions
        (BloomConfig(**OTHER), False),  # takes no positions
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("together", [False, True])
def test_prompts_that_are_read_once_give_the_same(config: Any, once: bool, together: bool):
    """Against prompt and continuation in one sequence, alone, without padding or cache."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = ResidentModel.from_module(AutoModelForCausalLM.from_config(config))
    with torch.no_grad():
        for parameter in model.module.parameters():
            parameter.mul_(3)
    assert local_backend.shareable(model.module) is once
    model.together = together
    rng = np.random.default_rng(0)
    prompts = [rng.integers(1, 320, int(n)) for n in (1, 40, 7, 59, 16, 17, 126)]
    pairs = [(p, rng.integers(1, 320, length)) for p in prompts[:-1] for length in (1, 3, 1, 5, 3)]
    pairs += [
        (prompts[-1], rng.integers(1, 320, length)) for length in (1, 2)
    ]  # up to the last position
    pairs += [(prompts[0], pairs[0][1])]  # twice the same, and not beside each other
    found = model.continuations(pairs)
    for (prompt, after), losses in zip(pairs, found, strict=True):
        ((alone, _),) = model.losses([np.concatenate([prompt, after])])
        np.testing.assert_allclose(losses, alone[len(prompt) - 1 :], rtol=1e-4, atol=1e-5)
    model.batch_tokens = 64  # one or a few prompts a pass
    for losses, again in zip(found, model.continuations(pairs), strict=True):
        np.testing.assert_allclose(losses, again, rtol=1e-4, atol=1e-5)


def test_questions_take_few_passes_and_a_run_of_before_takes_its_own(monkeypatch) -> None:
    """Before, as many as there are lengths of prompts and continuations; `started` says which."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = ResidentModel.from_module(AutoModelForCausalLM.from_config(Qwen2Config(**SIZES)))
    shapes, forward = [], local_backend._forward

    def counted(model: Any, ids: torch.Tensor, *rest: Any) -> Any:
        shapes.append(tuple(ids.shape))
        return forward(model, ids, *rest)

    monkeypatch.setattr(local_backend, "_forward", counted)
    rng = np.random.default_rng(0)
    prompts = [rng.integers(1, 320, n) for n in (20, 40, 60)]
    pairs = [(p, rng.integers(1, 320, length)) for p in prompts for length in (2, 3, 5)]
    config, profile = parse({}), SimpleNamespace(evaluation="", compiled="", batch_tokens=1)
    for together, passes in (
        (True, [(3, 64), (9, 4)]),
        # each prompt of another length, and after each one every length of a continuation
        (False, [s for n in (64, 48, 32) for s in ((1, n), (1, 4), (1, 2), (1, 1))]),
    ):
        pinned = SimpleNamespace(profile=profile, context=128, together=together, many_replies=True)
        follow(model, config, pinned)
        shapes.clear()
        model.continuations(pairs)
        assert shapes == passes


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_last_position_by_its_index_gives_the_bits_of_the_slice(dtype: torch.dtype, monkeypatch):
    """Recorded runs were measured by the slice, for which torch copies the head once a prompt."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = AutoModelForCausalLM.from_config(Qwen2Config(**SIZES)).to(dtype)
    model = ResidentModel.from_module(module)
    rng = np.random.default_rng(0)
    pairs = [(rng.integers(1, 320, n), rng.integers(1, 320, 3)) for n in (1, 40, 7, 59, 16, 17)]
    found = model.continuations(pairs)
    monkeypatch.setattr(local_backend, "_last", lambda module, length: 1)
    for losses, again in zip(found, model.continuations(pairs), strict=True):
        np.testing.assert_array_equal(losses, again)


@pytest.mark.parametrize("name", ["cache", "past_key_values"])
def test_the_cache_is_passed_and_read_under_the_name_that_the_library_uses(name: str):
    """Transformers 5.24 renamed the argument; a wrong name would read every prompt again, unsaid."""

    class Recorded(torch.nn.Module):
        def __init__(self, module: Any) -> None:
            super().__init__()
            self.module, self.caches, self.config = module, list[Any](), module.config

        def read(self, cache: Any, **kwargs: Any) -> Any:
            self.caches.append(cache)
            own = local_backend.cache_name(self.module)
            out = self.module(**{own: cache}, **kwargs)
            return SimpleNamespace(logits=out.logits, **{name: getattr(out, own)})

    class New(Recorded):
        def forward(
            self, cache=None, attention_mask=None, position_ids=None, logits_to_keep=0, **kwargs
        ):
            asked = {"attention_mask": attention_mask, "position_ids": position_ids}
            return self.read(cache, logits_to_keep=logits_to_keep, **asked, **kwargs)

    class Old(Recorded):
        def forward(
            self,
            past_key_values=None,
            attention_mask=None,
            position_ids=None,
            logits_to_keep=0,
            **kwargs,
        ):
            asked = {"attention_mask": attention_mask, "position_ids": position_ids}
            return self.read(past_key_values, logits_to_keep=logits_to_keep, **asked, **kwargs)

    resident = ResidentModel.from_module(AutoModelForCausalLM.from_config(LlamaConfig(**SIZES)))
    pairs = [(np.arange(1, 9), np.arange(3, 6))]
    (expected,) = resident.continuations(pairs)
    resident.module = (New if name == "cache" else Old)(resident.module).eval()
    assert local_backend.shareable(resident.module)
    (found,) = resident.continuations(pairs)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert [cache is None for cache in resident.module.caches] == [True, False]


# ---- questions -----------------------------------------------------------------------------


def likely(resident: ResidentModel, prompt: list[int]) -> tuple[int, int]:
    """(most likely, least likely) next token."""
    logits = resident.logits(torch.tensor([prompt]))[0, -1]
    return int(logits.argmax()), int(logits.argmin())


def asked(prompt: list[int], choices: list[list[int]], answer: int) -> PackedQuestion:
    """A question of token ids; every choice as many bytes as tokens."""
    sequences = tuple(np.asarray([*prompt, *c], np.int64) for c in choices)
    return PackedQuestion(sequences, (len(prompt),) * len(choices), tuple(map(len, choices)), answer)


@pytest.mark.parametrize("length", [1, 5, 14, 15, 16, 30])
def test_a_planted_right_answer_wins(resident: ResidentModel, length: int):
    """The model's own favourite is right, its least liked is wrong; at all padded lengths."""
    prompt = windows(1, length)[0].tolist()
    best, worst = likely(resident, prompt)
    planted = asked(prompt, [[worst], [best]], 1)
    assert perplexity.score_questions(resident, [planted]) == [1]
    assert perplexity.score_questions(resident, [replace(planted, answer=0)]) == [0]


def test_choices_are_scored_by_their_log_likelihood_per_byte(resident: ResidentModel):
    """Against a plain computation; twice the bytes halve the score."""
    prompt = windows(1, 9)[0].tolist()
    first, second = windows(2, 3)[1].tolist(), windows(3, 4)[2].tolist()
    scores = []
    for choice in (first, second):
        ids = torch.tensor([[*prompt, *choice]])
        logs = torch.log_softmax(resident.logits(ids)[0, :-1].double(), -1)
        own = logs[range(len(prompt) - 1, len(ids[0]) - 1), choice].sum()
        scores.append(float(own))
    for sizes in ((3, 4), (3, 40), (30, 4)):
        normalised = [s / n for s, n in zip(scores, sizes, strict=True)]
        winner = normalised.index(max(normalised))
        given = replace(asked(prompt, [first, second], winner), sizes=sizes)
        assert perplexity.score_questions(resident, [given]) == [1]


def test_neighbours_and_padding_do_not_change_a_question(resident: ResidentModel):
    """Questions of many lengths, together and alone."""
    many = []
    for n in range(1, 20, 2):
        prompt = windows(n, n)[-1].tolist()
        best, worst = likely(resident, prompt)
        many.append(asked(prompt, [[best], [worst], [best, worst]], n % 3))
    alone = [perplexity.score_questions(resident, [q])[0] for q in many]
    assert perplexity.score_questions(resident, many) == alone
    assert 0 < sum(alone) < len(alone)


def test_a_tie_goes_to_the_earlier_choice_and_nan_wins_nothing(
    resident: ResidentModel, weights: Weights
):
    """Two equal choices; and a broken model answers no question right."""
    prompt = windows(1, 5)[0].tolist()
    same = asked(prompt, [[7], [7]], 0)
    assert perplexity.score_questions(resident, [same, replace(same, answer=1)]) == [1, 0]
    broken = {n: torch.full_like(t, float("nan")) for n, t in weights.items()}
    resident.load(broken)
    assert perplexity.score_questions(resident, [same, replace(same, answer=1)]) == [0, 0]


def test_no_questions_are_no_answers(resident: ResidentModel):
    """Domains without questions exist."""
    assert perplexity.score_questions(resident, []) == []


# ---- the resident model --------------------------------------------------------------------


def test_missing_and_unexpected_tensors_are_named(resident: ResidentModel, weights: Weights):
    """A folder whose config and tensors disagree would otherwise keep an old model's tensor."""
    name = "model.layers.1.mlp.up_proj.weight"
    with pytest.raises(SourceError, match=rf"missing \['{name}'\]"):
        resident.load({n: t for n, t in weights.items() if n != name})
    with pytest.raises(SourceError, match=r"unexpected \['model\.strange'\]"):
        resident.load({**weights, "model.strange": torch.ones(1)})


def test_loading_swaps_models_without_a_trace(folder: Path, weights: Weights):
    """Base, source, base again: the same bits as a fresh model."""
    resident = ResidentModel(folder / "base", "cpu", tied=True)
    source = checkpoint.open_checkpoint(folder / "source0").tensors()
    drawn = windows(2, CONTEXT)
    scores = []
    for model in (weights, source, weights):
        resident.load(model)
        scores.append(perplexity.score_windows(resident, drawn)[0])
    assert scores[0] == scores[2]
    assert scores[0] != scores[1]


def test_a_module_that_is_there_already_is_measured_as_it_stands(folder: Path, resident: ResidentModel):
    """The model that the phase before hands over, without a folder."""
    module = AutoModelForCausalLM.from_pretrained(folder / "base")
    around = ResidentModel.from_module(module)
    drawn = windows(2, CONTEXT)
    assert around.vocabulary == 320
    assert perplexity.score_windows(around, drawn)[0] == pytest.approx(
        perplexity.score_windows(resident, drawn)[0], rel=1e-6
    )


def test_a_tied_model_untied_scores_the_same(folder: Path, weights: Weights):
    """The head is a copy of the embedding, and then it is the head that is read."""
    tied = ResidentModel(folder / "base", "cpu", tied=True)
    tied.load(weights)
    loose = ResidentModel(folder / "base", "cpu", tied=False)
    own = checkpoint.untied(weights)
    loose.load(own)
    drawn = windows(2, CONTEXT)
    assert perplexity.score_windows(loose, drawn) == perplexity.score_windows(tied, drawn)
    loose.load({**own, "lm_head.weight": own["lm_head.weight"] * 2})
    assert perplexity.score_windows(loose, drawn) != perplexity.score_windows(tied, drawn)
    with pytest.raises(SourceError, match=r"missing \['lm_head\.weight'\]"):
        loose.load(weights)


def test_evaluating_gives_the_drawn_items_and_nothing_else(
    folder: Path, weights: Weights, tokenizer: PreTrainedTokenizerFast
):
    """Domains in order of name, windows and questions in the order of the draw."""
    model = ResidentModel(folder / "base", "cpu", tied=True)
    items = [*texts(*toy_models.texts()[:2]), question(1), *texts("few words here", domain="a")]
    data = packing.pack(items, tokenizer, CONTEXT)["test"]
    draws = {"d": Draw(windows=(1, 3), questions=(0,)), "a": Draw(windows=(0,), questions=())}
    model.load(weights)
    found = evaluate(model, data, draws, Judge(tokenizer)).outcomes
    assert list(found) == ["a", "d"]
    nll, tokens, hits = perplexity.score_windows(model, [data["d"].windows[i] for i in (1, 3)])
    assert found["d"].nll == tuple(nll)
    assert found["d"].tokens == tuple(tokens)
    assert found["d"].hits == tuple(hits)
    assert found["d"].chance == (0.5,)
    assert found["d"].right in ((0,), (1,))
    assert found["a"].right == ()


def test_measured_speed_is_positive_and_peak_memory_holds_the_logits(resident: ResidentModel):
    """Reported, never decided by. 256 x 32 tokens have 10.5 MB of logits over 320 tokens."""
    mine = ResidentModel.from_module(resident.module)
    mine.batch_tokens = 16
    found = autotune.measure(mine, 8, repetitions=2)
    assert found.tokens_per_second > 0
    assert found.latency_seconds > 0
    assert found.spread >= 0
    mine.batch_tokens = 256 * 32
    found = autotune.measure(mine, 32, repetitions=1)
    assert found.peak_bytes
    assert 10e6 < found.peak_bytes < 50e6
    assert found.peak_bytes == autotune.measure(mine, 32, repetitions=1).peak_bytes


@pytest.mark.slow
def test_garbage_that_goes_during_a_pass_hides_no_memory(
    resident: ResidentModel, monkeypatch: pytest.MonkeyPatch
):
    """Models of earlier work may be garbage that the collector has not reached yet."""
    mine = ResidentModel.from_module(resident.module)
    mine.batch_tokens = 256 * 32
    losses = mine.token_losses

    def collected_meanwhile(ids: torch.Tensor) -> torch.Tensor:
        """Collect garbage within the pass, and leave 64 MB for the next one."""
        gc.collect()
        found = losses(ids)
        left: list[Any] = [torch.ones(16 << 20)]
        left.append(left)  # a circle, which counting references does not free
        return found

    monkeypatch.setattr(mine, "token_losses", collected_meanwhile)
    found = autotune.measure(mine, 32, repetitions=1)
    assert found.peak_bytes
    assert found.peak_bytes > 10e6


@pytest.mark.slow
def test_speed_is_measured_in_the_batch_that_evaluation_uses(
    resident: ResidentModel, monkeypatch: pytest.MonkeyPatch
):
    """A device must have memory for it; beside a model of a smaller batch, in that one's."""
    shapes = []
    monkeypatch.setattr(
        ResidentModel, "token_losses", lambda self, ids: shapes.append(tuple(ids.shape))
    )
    wide, narrow = (ResidentModel.from_module(resident.module) for _ in range(2))
    wide.batch_tokens, narrow.batch_tokens = 96, 32
    autotune.measure(wide, 8, repetitions=1)
    assert set(shapes) == {(12, 8), (1, 8)}
    shapes.clear()
    autotune.paired([wide, narrow], 8, repetitions=1)
    assert set(shapes) == {(4, 8), (1, 8)}
    shapes.clear()
    autotune.measure(wide, 8, repetitions=1, most=5)  # no slice has more windows in a domain
    assert set(shapes) == {(5, 8), (1, 8)}


def test_models_are_timed_in_turns(resident: ResidentModel, monkeypatch: pytest.MonkeyPatch):
    """A moment that is busy for everybody does not change how they compare."""
    seconds = {0: 1.0, 1: 2.0}
    calls = []

    def timed(model: ResidentModel, ids: torch.Tensor) -> float:
        calls.append(which := int(model is other))
        return seconds[which] * (1 + len(calls) // 6)  # it gets busier

    other = ResidentModel.from_module(resident.module)
    monkeypatch.setattr(autotune, "_seconds", timed)
    monkeypatch.setattr(autotune, "_peak", lambda model, ids: None)
    first, second = autotune.paired([resident, other], 8, repetitions=3)
    assert calls == [0, 1] * 6
    assert (first.ratio, first.least, first.most) == (1.0, 1.0, 1.0)
    assert second.ratio == 0.5
    assert second.least == 0.25  # the sixth call was in a busier time
    assert second.most == 0.5


# ---- layer choice --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ([[0.1, 0.3], [0.2, 0.1], [0.4, 0.0]], (0, 0, 1)),  # one of three: the largest
        ([[-0.1, -0.2], [0.0, -1.0], [-3.0, -1.0]], (0, 0, 0)),  # nothing above zero
        ([[0.2, 0.2], [0.2, 0.2], [0.1, 0.0]], (1, 0, 0)),  # ties: earlier block, earlier input
        ([[1.0], [2.0]], (0, 0)),  # two blocks: a third of them is none
        ([[1.0, 2.0]] + [[0.0, 0.0]] * 4 + [[3.0, 0.5]], (2, 0, 0, 0, 0, 1)),  # two of six
        ([[1.0]] * 6, (1, 1, 0, 0, 0, 0)),
        ([[-1e300, 0.5], [-1e300, -1e300], [0.1, 0.2]], (2, 0, 0)),  # NaN swaps lose
        ([], ()),
    ],
)
def test_the_layers_with_the_largest_gains_are_taken(
    gains: list[list[float]], expected: tuple[int, ...]
):
    """At most a third, only where it helps; the rule is pure and part of the log."""
    assert tensor_groups.choose(gains) == expected


def test_swap_gains_are_losses_saved(
    folder: Path, resident: ResidentModel, weights: Weights, tokenizer: PreTrainedTokenizerFast
):
    """gains[b][i] = loss before − loss with input i's block b; a model's own block gains 0."""
    data = packing.pack(texts(*toy_models.texts()[:2]), tokenizer, CONTEXT)["test"]
    source = checkpoint.open_checkpoint(folder / "source1").tensors()
    broken = {n: torch.full_like(t, float("nan")) for n, t in weights.items()}
    gains = layer_fitness.swap_gains(resident, weights, [weights, source, broken], data)
    assert [len(row) for row in gains] == [3, 3, 3]
    assert [row[0] for row in gains] == [0.0, 0.0, 0.0]
    assert [row[2] for row in gains] == [-1e300] * 3
    swapped = {n: source[n] if ".layers.1." in n else t for n, t in weights.items()}
    before = perplexity.calibration_loss(resident, weights, data)
    after = perplexity.calibration_loss(resident, swapped, data)
    assert gains[1][1] == before - after
    assert after != before


def test_the_first_order_estimate_is_the_gain_of_a_small_step(
    folder: Path, resident: ResidentModel, weights: Weights, tokenizer: PreTrainedTokenizerFast
):
    """For a thousandth of the way to a source both are the same, up to the square of the step."""
    data = packing.pack(texts(*toy_models.texts()[:2]), tokenizer, CONTEXT)["test"]
    source = checkpoint.open_checkpoint(folder / "source1").tensors()
    near = {n: t + 1e-2 * (source[n] - t) for n, t in weights.items()}
    found = taylor_gains(resident, weights, [weights, near], data)
    measured = layer_fitness.swap_gains(resident, weights, [weights, near], data)
    assert [row[0] for row in found] == [0.0, 0.0, 0.0]
    largest = max(abs(row[1]) for row in measured)
    for a, b in zip(found, measured, strict=True):
        assert a[1] == pytest.approx(b[1], abs=0.15 * largest)


def test_calibration_reads_the_first_windows_of_every_domain(resident: ResidentModel, weights: Weights):
    """At most eight each, domains weigh alike, and a domain without text does not count."""
    many, few = windows(12, CONTEXT), windows(2, 9)
    data = {"a": ItemPack(windows=many), "b": ItemPack(windows=few), "c": ItemPack()}
    rates = []
    for chosen in (many[:8], few):
        nll, tokens, _ = perplexity.score_windows(resident, chosen)
        rates.append(sum(nll) / sum(tokens))
    found = perplexity.calibration_loss(resident, weights, data)
    assert found == pytest.approx(sum(rates) / 2, rel=1e-12)


# ---- other architectures -------------------------------------------------------------------


def other(place: Path, model: Any) -> ResidentModel:
    """A model of another architecture, saved, opened and loaded as a run would."""
    model.save_pretrained(place)
    opened = checkpoint.open_checkpoint(place)
    resident = ResidentModel(place, "cpu", opened.tied)
    resident.load(opened.tensors())
    return resident


def gpt2() -> Any:
    """Learned positions, 20 of them: no multiple of the padding."""
    config = GPT2Config(
        vocab_size=64, n_positions=20, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    return GPT2LMHeadModel(config).eval()


def test_windows_of_a_model_with_learned_positions_are_scored(tmp_path: Path):
    """Other names, biases, no rotary buffers: against the library's own loss."""
    model = gpt2()
    resident = other(tmp_path / "gpt2", model)
    ids = torch.arange(18)[None]
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0, :-1]
    expected = torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum")
    found, _, _ = perplexity.score_windows(resident, [ids[0].numpy()])
    assert found[0] == pytest.approx(float(expected), rel=1e-5)


def test_padding_stays_within_the_model_s_positions(tmp_path: Path):
    """A question of 18 tokens fits a context of 20; padding must not push it out."""
    resident = other(tmp_path / "gpt2", gpt2())
    prompt = list(range(17))
    assert perplexity.score_questions(resident, [asked(prompt, [[1], [2]], 0)]) in ([0], [1])
