"""Items become windows and questions of token ids, every token in its place."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from agent_forge.evaluation.data import packing
from agent_forge.evaluation.data.items import Problem, from_rows
from agent_forge.evaluation.data.outcomes import Pool
from agent_forge.evaluation.data.slices import SLICES
from agent_forge.runs.errors import DataError
from testing.models import toy_models
from testing.models.toy_tensors import question, texts

CONTEXT = 32


def test_packing_accounts_for_every_token(tokenizer: PreTrainedTokenizerFast):
    """The windows joined are the texts' tokens, an end after each; all but each first are scored."""
    contents = toy_models.texts()[:4]
    packed = packing.pack(texts(*contents), tokenizer, CONTEXT)["test"]["d"]
    stream: list[int] = []
    for content in contents:
        stream += [*tokenizer.encode(content, add_special_tokens=False), tokenizer.eos_token_id]
    joined = np.concatenate(packed.windows).tolist()
    # A last window of a single token would predict nothing and is dropped.
    assert joined == stream[: len(stream) - (len(stream) % CONTEXT == 1)]
    assert all(len(w) == CONTEXT for w in packed.windows[:-1])
    assert len(packed.bytes) == len(packed.windows)
    predicted = sum(len(w) - 1 for w in packed.windows)
    assert predicted == len(joined) - len(packed.windows)
    assert packed.pool().windows == len(packed.windows)


@pytest.mark.parametrize("text", ["plain words", "naïve café", "a 🦔 in the 庭", "é" * 40, " \n\t "])
def test_a_token_has_the_bytes_that_it_stands_for(tokenizer: PreTrainedTokenizerFast, text: str):
    """Together those of the text; a window's first token is not predicted, the end has none."""
    ids = tokenizer.encode(text, add_special_tokens=False)
    (whole,) = packing.pack(texts(text), tokenizer, 1000)["test"]["d"].bytes
    opening = len(tokenizer.decode(ids[:1]).replace("\ufffd", "").encode())
    if opening:  # else the text begins with a part of a character, which stands for all of it
        assert whole == len(text.encode()) - opening
    # With a letter before it nothing of the text is a window's first token.
    (all_of_it,) = packing.pack(texts("|" + text), tokenizer, 1000)["test"]["d"].bytes
    assert all_of_it == len(text.encode())


def test_a_window_knows_its_texts(tokenizer: PreTrainedTokenizerFast):
    """So that a score can be traced to what was read."""
    packed = packing.pack(texts("some words", "more words", "last"), tokenizer, 1000)["test"]["d"]
    ids = [t.id for t in texts("some words", "more words", "last")]
    assert packed.texts == [(ids[0], ids[2])]
    short = packing.pack(texts("some words", "more words", "last"), tokenizer, 3)["test"]["d"]
    assert [ends[0] for ends in short.texts] == sorted(ends[0] for ends in short.texts)
    assert len(short.texts) == len(short.windows)


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
    assert found["test"]["d"].pool() == Pool(windows=0, questions=1)


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


def test_a_choice_that_is_no_token_is_named(tokenizer: PreTrainedTokenizerFast):
    """Its log-likelihood would be that of nothing: 0, the best there is."""

    class Stripping:
        """A tokenizer that drops blanks."""

        bos_token_id = eos_token_id = 0
        unk_token_id = None

        def encode(self, text: str, **_: object) -> list[int]:
            return [ord(c) for c in text if not c.isspace()]

    with pytest.raises(DataError, match=r"question 'q': choice ' ' is no token"):
        packing.pack([question(choices=(" 4", " "))], Stripping(), 16)


def test_text_that_the_tokenizer_does_not_know_is_refused():
    """A model is easily right about the token that stands for everything unknown."""
    words = Tokenizer(WordLevel({"<end>": 0, "some": 1, "words": 2, "<unk>": 3}, unk_token="<unk>"))
    words.pre_tokenizer = Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    narrow = PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unk>", eos_token="<end>", bos_token="<end>"
    )
    packing.pack(texts("some words"), narrow, 16)
    with pytest.raises(DataError, match=r"item 'd0': the tokenizer does not know 33% of it"):
        packing.pack(texts("some wörter words"), narrow, 16)
    with pytest.raises(DataError, match=r"item 'q': the tokenizer does not know"):
        packing.pack([question(prompt="other")], narrow, 16)


@pytest.mark.parametrize("normalise", ["bytes", "tokens", "none", "mutual"])
def test_choices_are_divided_by_what_was_asked_for(tokenizer: PreTrainedTokenizerFast, normalise: str):
    """Mutual information needs each choice a second time, after the start token alone."""
    choices = (" 4", " fifty-five")
    row = {
        "id": "q",
        "domain": "d",
        "slice": "test",
        "prompt": "2 + 2 =",
        "choices": choices,
        "answer": 0,
        "normalise": normalise,
    }
    (asked,) = packing.pack(from_rows([row]), tokenizer, 64)["test"]["d"].questions
    encoded = [tokenizer.encode(c, add_special_tokens=False) for c in choices]
    expected = {"bytes": [2, 11], "tokens": [len(e) for e in encoded], "none": [1, 1], "mutual": [1, 1]}
    assert list(asked.sizes) == expected[normalise]
    assert len(asked.sequences) == len(asked.starts) == (4 if normalise == "mutual" else 2)
    for ids, choice in zip(asked.sequences[2:], encoded, strict=False):
        assert ids.tolist() == [tokenizer.bos_token_id, *choice]


def problem(id_: str, grade: int = 0, **fields: object) -> dict[str, object]:
    """A row of a data file."""
    check = {"kind": "exact", "answer": "x"}
    return {
        "id": id_,
        "domain": "d",
        "slice": "test",
        "prompt": "say x",
        "check": check,
        "grade": grade,
        **fields,
    }


def test_problems_are_sorted_by_grade_and_counted(tokenizer: PreTrainedTokenizerFast):
    """Draws take from every grade by its share."""
    rows = [problem("c", 0), problem("a", 2), problem("b", 2), problem("d", 1)]
    packed = packing.pack(from_rows(rows), tokenizer, 512)["test"]["d"]
    assert [p.problem.id for p in packed.problems] == ["c", "d", "a", "b"]
    assert packed.pool() == Pool(windows=0, questions=0, problems=4, problem_grades=(1, 1, 2))
    assert isinstance(packed.problems[0].problem, Problem)


def test_a_problem_that_does_not_fit_is_named(tokenizer: PreTrainedTokenizerFast):
    """A prompt that is cut is another task: refused, unlike a question's."""
    size = len(tokenizer.encode("say x", add_special_tokens=False))
    packing.pack(from_rows([problem("p", max_tokens=20)]), tokenizer, 20 + size)
    with pytest.raises(
        DataError, match=rf"problem 'p': its prompt has {size} tokens .* raise `context`"
    ):
        packing.pack(from_rows([problem("p", max_tokens=20)]), tokenizer, 19 + size)
