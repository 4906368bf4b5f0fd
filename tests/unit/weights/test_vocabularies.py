"""Vocabularies are compared token by token, whatever form tokenizer.json has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_forge.weights.folders.vocabularies import Difference, added_differences, difference


def tokenizer(folder: Path, vocabulary: Any, **more: Any) -> Path:
    """Write a tokenizer.json; return the folder."""
    folder.mkdir()
    said = {"model": {"vocab": vocabulary}, **more}
    (folder / "tokenizer.json").write_text(json.dumps(said), "utf-8")
    return folder


def bpe(*tokens: str) -> dict[str, int]:
    return {token: number for number, token in enumerate(tokens)}


def test_equal_vocabularies_do_not_differ(tmp_path: Path) -> None:
    """Order in the file, added tokens and other settings are no difference."""
    one = tokenizer(tmp_path / "one", bpe("a", "b", "c"))
    turned = dict(reversed(bpe("a", "b", "c").items()))
    added = [{"id": 3, "content": "<pad>"}]
    two = tokenizer(tmp_path / "two", turned, added_tokens=added, padding={"length": 4})
    assert difference(one, two) is difference(one, one) is None


def test_numbers_that_both_have_are_compared(tmp_path: Path) -> None:
    one = tokenizer(tmp_path / "one", bpe("a", "b", "c", "d"))
    two = tokenizer(tmp_path / "two", bpe("a", "c", "b"))
    found = difference(one, two)
    assert found == Difference(3, 2, 1, ("b", "c"))
    assert found.foreign
    words = found.told("x", "y")
    assert (
        words
        == "x and y have other tokenizers: 2 of 3 numbers stand for other tokens, 1 for 'b' and 'c'"
    )
    few = tokenizer(tmp_path / "few", bpe("a", "b", "c", "e"))
    assert difference(one, few) == Difference(4, 1, 3, ("d", "e"))
    assert not Difference(4, 1, 3, ("d", "e")).foreign


def test_a_unigram_vocabulary_is_a_list_with_scores(tmp_path: Path) -> None:
    one = tokenizer(tmp_path / "one", [["a", 0.0], ["b", -1.0]])
    two = tokenizer(tmp_path / "two", [["a", -3.0], ["b", -2.0]])
    other = tokenizer(tmp_path / "other", bpe("b", "a"))
    assert difference(one, two) is None
    assert difference(one, other) == Difference(2, 2, 0, ("a", "b"))


@pytest.mark.parametrize("vocabulary", [None, 7, "a", [], {}, [7], [[]], {"a": "b"}, {"a": None}])
def test_a_vocabulary_of_another_form_is_not_known(tmp_path: Path, vocabulary: Any) -> None:
    one = tokenizer(tmp_path / "one", bpe("a", "b"))
    assert difference(one, tokenizer(tmp_path / "two", vocabulary)) is None


def test_a_folder_without_a_tokenizer_or_with_a_broken_one_is_not_known(tmp_path: Path) -> None:
    one, broken = tokenizer(tmp_path / "one", bpe("a")), tmp_path / "broken"
    broken.mkdir()
    assert difference(one, broken) is None
    (broken / "tokenizer.json").write_text("{")
    assert difference(broken, one) is None


def added(**tokens: int) -> list[dict[str, Any]]:
    return [{"id": number, "content": token} for token, number in tokens.items()]


def test_one_number_for_two_added_tokens_is_found_among_all_models(tmp_path: Path) -> None:
    """The first model has nothing there: two others took the same number, each for its own token."""
    plain = bpe("a", "b")
    models = [
        ("base", tokenizer(tmp_path / "base", plain, added_tokens=added(a=0))),
        ("one", tokenizer(tmp_path / "one", plain, added_tokens=added(start=2, end=3))),
        ("two", tokenizer(tmp_path / "two", plain, added_tokens=added(think=2, end=3))),
        ("same", tokenizer(tmp_path / "same", plain, added_tokens=added(start=2))),
    ]
    (found,) = added_differences(models)
    assert found == (("one", "two"), 1, 2, ("start", "think"))
    assert found.told() == ("one and two have other added tokens: number 2 is 'start' and 'think'")


def test_an_added_token_in_place_of_a_plain_one_is_found(tmp_path: Path) -> None:
    """Many fine-tunings take the numbers of reserved tokens; plain tokens are compared elsewhere."""
    one = tokenizer(tmp_path / "one", bpe("a", "reserved", "c"))
    two = tokenizer(tmp_path / "two", bpe("a", "reserved", "d"), added_tokens=added(tool=1))
    assert added_differences([("one", one), ("two", two)]) == [
        (("one", "two"), 1, 1, ("reserved", "tool"))
    ]
    odd = tokenizer(tmp_path / "odd", None, added_tokens=[7, {"id": "1", "content": "x"}, {}])
    assert added_differences([("odd", odd), ("one", one), ("none", tmp_path)]) == []
