"""Measuring a tiny model: every token once, the same numbers as transformers alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from evomerge import checkpoints, sketch
from evomerge.build import Weights
from evomerge.corpus.documents import SLICES
from evomerge.diversity import decode, distance
from evomerge.errors import DataError, SourceError
from evomerge.fitness import accuracy, layers, packing, perplexity, speed
from evomerge.fitness.cost import cost
from evomerge.fitness.data import Question, Text
from evomerge.fitness.evaluate import evaluate
from evomerge.fitness.outcomes import Draw
from evomerge.fitness.packing import Asked, Packed
from evomerge.fitness.resident import ResidentModel
from tests import models
from tests.evomerge import toys

CONTEXT = 32


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tied base and two sources."""
    place = tmp_path_factory.mktemp("family")
    models.family(place, count=2)
    return place


@pytest.fixture(scope="module")
def weights(folder: Path) -> Weights:
    """The base's tensors."""
    return checkpoints.open_checkpoint(folder / "base").tensors()


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    """The byte-level BPE of the tiny models."""
    return models.tokenizer()


@pytest.fixture
def resident(folder: Path, weights: Weights) -> ResidentModel:
    """The base, loaded."""
    model = ResidentModel(folder / "base", "cpu", tied=True)
    model.load(weights)
    return model


def windows(count: int, length: int) -> list[np.ndarray]:
    """Random token ids."""
    rng = np.random.default_rng(3)
    return [rng.integers(1, 320, length) for _ in range(count)]


def texts(*contents: str, domain: str = "d") -> list[Text]:
    """Texts of the test slice."""
    return [
        Text(id=f"{domain}{i}", domain=domain, slice="test", text=text)
        for i, text in enumerate(contents)
    ]


def question(answer: int = 0, **changes: Any) -> Question:
    """A question of two choices."""
    fields = {"id": "q", "domain": "d", "slice": "test", "prompt": "2 + 2 =", "answer": answer}
    return Question.model_validate({**fields, "choices": (" 4", " 55"), **changes})


# ---- packing -------------------------------------------------------------------------------


def test_packing_accounts_for_every_token(tokenizer: PreTrainedTokenizerFast):
    """The windows joined are the texts' tokens, an end after each; all but each first are scored."""
    contents = models.texts()[:4]
    packed = packing.pack(texts(*contents), tokenizer, CONTEXT)["test"]["d"]
    stream: list[int] = []
    for content in contents:
        stream += [*tokenizer.encode(content, add_special_tokens=False), tokenizer.eos_token_id]
    joined = np.concatenate(packed.windows).tolist()
    # A last window of a single token would predict nothing and is dropped.
    assert joined == stream[: len(stream) - (len(stream) % CONTEXT == 1)]
    assert all(len(w) == CONTEXT for w in packed.windows[:-1])
    assert packed.bytes == sum(len(c.encode()) for c in contents)
    predicted = sum(len(w) - 1 for w in packed.windows)
    assert predicted == len(joined) - len(packed.windows)
    assert packed.pool().windows == len(packed.windows)


def test_a_last_window_of_one_token_is_dropped(tokenizer: PreTrainedTokenizerFast):
    """One token has nobody to predict it."""
    stream = len(tokenizer.encode("abc def", add_special_tokens=False)) + 1
    packed = packing.pack(texts("abc def"), tokenizer, stream - 1)["test"]["d"]
    assert [len(w) for w in packed.windows] == [stream - 1]


def test_every_slice_and_domain_is_packed_apart(tokenizer: PreTrainedTokenizerFast):
    """A token of one domain must never be context of another."""
    items = [*texts("some words", domain="a"), *texts("other words", domain="b"), question()]
    found = packing.pack(items, tokenizer, CONTEXT)
    assert set(found) == set(SLICES)
    assert sorted(found["test"]) == ["a", "b", "d"]
    assert not found["train"]
    assert found["test"]["d"].pool() == Packed(questions=[object()]).pool()  # pyright: ignore


def test_a_question_keeps_the_end_of_its_prompt(tokenizer: PreTrainedTokenizerFast):
    """Prompt and choice fill the context exactly; the choice is never cut."""
    asked = packing.pack([question(prompt="x" * 500 + " 2 + 2 =")], tokenizer, 16)
    (found,) = asked["test"]["d"].questions
    prompt = tokenizer.encode("x" * 500 + " 2 + 2 =", add_special_tokens=False)
    for ids, start, size, choice in zip(
        found.sequences, found.starts, found.sizes, (" 4", " 55"), strict=True
    ):
        encoded = tokenizer.encode(choice, add_special_tokens=False)
        assert len(ids) == 16
        assert ids[start:].tolist() == encoded
        assert ids[:start].tolist() == prompt[-(16 - len(encoded)) :]
        assert size == len(choice.encode())


def test_an_empty_prompt_becomes_the_first_token(tokenizer: PreTrainedTokenizerFast):
    """A choice needs something that predicts its first token."""
    (asked,) = packing.pack([question(prompt="")], tokenizer, 16)["test"]["d"].questions
    assert asked.starts == (1, 1)
    assert asked.sequences[0][0] == tokenizer.bos_token_id


def test_a_choice_longer_than_the_context_is_named(tokenizer: PreTrainedTokenizerFast):
    """It cannot be scored whole."""
    long = question(choices=(" 4", " never" * 40))
    with pytest.raises(DataError, match=r"question 'q': a choice has \d+ tokens.*context is 16"):
        packing.pack([long], tokenizer, 16)


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
    assert list(perplexity.batches(drawn, 320)) == [[0, 2, 4], [1, 3]]
    assert perplexity.rows_per_batch(32, 320) == 128
    # 2²⁶ logits / 2²⁰ tokens of vocabulary = 64 tokens = two windows of 32, and never none.
    assert perplexity.rows_per_batch(32, 1 << 20) == 2
    assert perplexity.rows_per_batch(100_000, 320) == 1
    assert [len(b) for b in perplexity.batches([drawn[0]] * 300, 320)] == [128, 128, 44]


# ---- questions -----------------------------------------------------------------------------


def likely(resident: ResidentModel, prompt: list[int]) -> tuple[int, int]:
    """(most likely, least likely) next token."""
    logits = resident.logits(torch.tensor([prompt]))[0, -1]
    return int(logits.argmax()), int(logits.argmin())


def asked(prompt: list[int], choices: list[list[int]], answer: int) -> Asked:
    """A question of token ids; every choice as many bytes as tokens."""
    sequences = tuple(np.asarray([*prompt, *c], np.int64) for c in choices)
    return Asked(sequences, (len(prompt),) * len(choices), tuple(map(len, choices)), answer)


@pytest.mark.parametrize("length", [1, 5, 14, 15, 16, 30])
def test_a_planted_right_answer_wins(resident: ResidentModel, length: int):
    """The model's own favourite is right, its least liked is wrong; at all padded lengths."""
    prompt = windows(1, length)[0].tolist()
    best, worst = likely(resident, prompt)
    planted = asked(prompt, [[worst], [best]], 1)
    assert accuracy.score_questions(resident, [planted]) == [1]
    assert accuracy.score_questions(resident, [replace(planted, answer=0)]) == [0]


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
        assert accuracy.score_questions(resident, [given]) == [1]


def test_neighbours_and_padding_do_not_change_a_question(resident: ResidentModel):
    """Questions of many lengths, together and alone."""
    many = []
    for n in range(1, 20):
        prompt = windows(n, n)[-1].tolist()
        best, worst = likely(resident, prompt)
        many.append(asked(prompt, [[best], [worst], [best, worst]], n % 3))
    alone = [accuracy.score_questions(resident, [q])[0] for q in many]
    assert accuracy.score_questions(resident, many) == alone
    assert 0 < sum(alone) < len(alone)


def test_a_tie_goes_to_the_earlier_choice_and_nan_wins_nothing(
    resident: ResidentModel, weights: Weights
):
    """Two equal choices; and a broken model answers no question right."""
    prompt = windows(1, 5)[0].tolist()
    same = asked(prompt, [[7], [7]], 0)
    assert accuracy.score_questions(resident, [same, replace(same, answer=1)]) == [1, 0]
    broken = {n: torch.full_like(t, float("nan")) for n, t in weights.items()}
    resident.load(broken)
    assert accuracy.score_questions(resident, [same, replace(same, answer=1)]) == [0, 0]


def test_no_questions_are_no_answers(resident: ResidentModel):
    """Domains without questions exist."""
    assert accuracy.score_questions(resident, []) == []


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
    source = checkpoints.open_checkpoint(folder / "source0").tensors()
    drawn = windows(2, CONTEXT)
    scores = []
    for model in (weights, source, weights):
        resident.load(model)
        scores.append(perplexity.score_windows(resident, drawn)[0])
    assert scores[0] == scores[2]
    assert scores[0] != scores[1]


def test_a_tied_model_untied_scores_the_same(folder: Path, weights: Weights):
    """The head is a copy of the embedding, and then it is the head that is read."""
    tied = ResidentModel(folder / "base", "cpu", tied=True)
    tied.load(weights)
    loose = ResidentModel(folder / "base", "cpu", tied=False)
    own = checkpoints.untied(weights)
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
    items = [*texts(*models.texts()[:2]), question(1), *texts("few words here", domain="a")]
    data = packing.pack(items, tokenizer, CONTEXT)["test"]
    draws = {"d": Draw(windows=(1, 3), questions=(0,)), "a": Draw(windows=(0,), questions=())}
    found = evaluate(model, weights, data, draws)
    assert list(found) == ["a", "d"]
    nll, tokens, hits = perplexity.score_windows(model, [data["d"].windows[i] for i in (1, 3)])
    assert found["d"].nll == tuple(nll)
    assert found["d"].tokens == tuple(tokens)
    assert found["d"].hits == tuple(hits)
    assert found["d"].chance == (0.5,)
    assert found["d"].right in ((0,), (1,))
    assert found["a"].right == ()


def test_measured_speed_is_positive_and_has_no_gpu_memory(resident: ResidentModel):
    """Reported, never decided by; on a CPU the peak cannot be measured."""
    found = speed.measure(resident, 8, repetitions=2, batch=2)
    assert found.tokens_per_second > 0
    assert found.latency_seconds > 0
    assert found.spread >= 0
    assert found.peak_bytes is None


# ---- cost ----------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
def test_cost_is_the_hand_count(tied: bool):
    """The tiny Qwen2: 16 wide, 3 blocks, 2 heads of 8, 1 key-value head, 32 inner, 320 tokens.

    A block's matrices: q 16·16, k 8·16, v 8·16, o 16·16 = 768; gate, up, down 3·32·16 = 1536;
    2304. Biases q 16, k 8, v 8 and two norms of 16: 64. Final norm 16.
    Products: 3·2304 + head 320·16 = 12,032 whether tied or not.
    Operations: 2·12,032 + attention 4·3 blocks·10 tokens·2 heads·8 = 24,064 + 1,920 = 25,984.
    Stored: 3·2368 + 16 + 5120 = 12,240, and 5,120 more where untied.
    Bytes at 4 an element: stored + cache 2·3·10·1·8 = 480 + widest 320.
    """
    config = models.config(tie_word_embeddings=tied)
    from transformers import Qwen2ForCausalLM

    with torch.device("meta"):
        module = Qwen2ForCausalLM(config)
    shapes = {n: tuple(p.shape) for n, p in module.named_parameters()}
    assert ("lm_head.weight" in shapes) is not tied
    found = cost(shapes, 4, config, 10)
    assert found.flops_per_token == 25_984
    assert found.bytes == 4 * (12_240 + (0 if tied else 5_120) + 480 + 320)


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
    assert layers.choose(gains) == expected


def test_swap_gains_are_losses_saved(
    folder: Path, resident: ResidentModel, weights: Weights, tokenizer: PreTrainedTokenizerFast
):
    """gains[b][i] = loss before − loss with input i's block b; a model's own block gains 0."""
    data = packing.pack(texts(*models.texts()[:2]), tokenizer, CONTEXT)["test"]
    source = checkpoints.open_checkpoint(folder / "source1").tensors()
    broken = {n: torch.full_like(t, float("nan")) for n, t in weights.items()}
    gains = layers.swap_gains(resident, weights, [weights, source, broken], data)
    assert [len(row) for row in gains] == [3, 3, 3]
    assert [row[0] for row in gains] == [0.0, 0.0, 0.0]
    assert [row[2] for row in gains] == [-1e300] * 3
    swapped = {n: source[n] if ".layers.1." in n else t for n, t in weights.items()}
    before = layers.calibration_loss(resident, weights, data)
    after = layers.calibration_loss(resident, swapped, data)
    assert gains[1][1] == before - after
    assert after != before


def test_calibration_reads_the_first_windows_of_every_domain(
    resident: ResidentModel, weights: Weights
):
    """At most eight each, domains weigh alike, and a domain without text does not count."""
    many, few = windows(12, CONTEXT), windows(2, 9)
    data = {"a": Packed(windows=many), "b": Packed(windows=few), "c": Packed()}
    rates = []
    for chosen in (many[:8], few):
        nll, tokens, _ = perplexity.score_windows(resident, chosen)
        rates.append(sum(nll) / sum(tokens))
    found = layers.calibration_loss(resident, weights, data)
    assert found == pytest.approx(sum(rates) / 2, rel=1e-12)


# ---- sketches ------------------------------------------------------------------------------


def test_sketched_distances_are_close_to_the_true_ones():
    """One pair errs by √(2/256) = 9 %; the mean of 12 pairs must be within 30 %, and is far closer."""
    base = toys.weights("origin", SKETCHED)
    found = []
    for number in range(12):
        a, b = (toys.weights(f"{number}-{x}", SKETCHED) for x in "ab")
        estimated = distance(sketch.sketch(a, base), sketch.sketch(b, base))
        found.append(estimated / toys.distance(a, b))
    assert np.mean(found) == pytest.approx(1.0, abs=0.3)
    assert all(0.6 < ratio < 1.4 for ratio in found)


#: One tensor is longer than a block of the sketch, none is a multiple of a bucket count.
SKETCHED = {"a": (70, 1001), "b": (333,), "c": (1,)}


def test_a_sketch_does_not_depend_on_threads_or_order():
    """It is recorded in the log and decides about reseeding."""
    base, model = toys.weights("origin", SKETCHED), toys.weights("model", SKETCHED)
    wanted = sketch.sketch(model, base)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            assert sketch.sketch(model, base) == wanted
    finally:
        torch.set_num_threads(before)


def test_a_sketch_is_linear_and_zero_for_the_base():
    """Twice the task vector, twice the sketch; the base's own is nothing."""
    base, model = toys.weights("origin", SKETCHED), toys.weights("model", SKETCHED)
    assert not decode(sketch.sketch(base, base)).any()
    doubled = {n: base[n] + 2 * (model[n] - base[n]) for n in base}
    once, twice = decode(sketch.sketch(model, base)), decode(sketch.sketch(doubled, base))
    assert np.allclose(twice, 2 * once, atol=1e-2)
    assert len(once) == sketch.SIZE


def test_integers_are_not_sketched():
    """Position ids are no weights."""
    base = {"a": torch.zeros(4), "ids": torch.arange(4)}
    model = {"a": torch.ones(4), "ids": torch.arange(4) + 100}
    assert sketch.sketch(model, base) == sketch.sketch({**model, "ids": base["ids"]}, base)
