"""Items become windows and questions of token ids, every token in its place."""

from __future__ import annotations

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from evomerge.corpus.documents import SLICES
from evomerge.errors import DataError
from evomerge.fitness import packing
from evomerge.fitness.packing import Packed
from tests import models
from tests.evomerge.toys import question, texts

CONTEXT = 32


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    """The byte-level BPE of the tiny models."""
    return models.tokenizer()


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
