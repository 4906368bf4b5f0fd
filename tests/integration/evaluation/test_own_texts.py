"""Texts of generated tasks: the same each time, and no prompt in two slices."""

from __future__ import annotations

from agent_forge.evaluation import task_families
from agent_forge.evaluation.data.builtin import corpus as builtin_corpus
from agent_forge.evaluation.training_text import own_texts


def test_a_prompt_is_in_one_slice_only() -> None:
    """Text to measure on must not stand in the training."""
    texts = own_texts.corpus(0, 60_000, ("memory", "reasoning"))
    assert texts == own_texts.corpus(0, 60_000, ("memory", "reasoning"))
    assert texts != own_texts.corpus(1, 60_000, ("memory", "reasoning"))
    for domain, split in texts.items():
        every = [document.text for documents in split.values() for document in documents]
        assert len(every) == len(set(every))
        assert all(split.values()), domain
        assert 60_000 <= sum(map(len, every)) < 62_000
        for text in every:
            prompt, _, answer = text.partition(" = ")
            family = {
                "recall": "recall",
                "chain": "chain",
                "add": "addition",
                "subtract": "subtraction",
                "sort": "sort-digits",
                "close": "brackets",
            }[prompt.split()[0]]
            assert task_families.find(family).answer(f"{prompt} =") == answer


def test_all_levels_of_recall_occur() -> None:
    """Short distances are what gets a training off its plateau."""
    split = own_texts.corpus(0, 60_000, ("memory",))["memory"]
    lengths = {len(d.text.split(" : ")[1].split()) for ds in split.values() for d in ds}
    assert lengths == {4, 8, 16, 32, 64, 96, 128, 160, 192, 256}


def test_built_in_domains_are_the_corpus_own() -> None:
    found = own_texts.corpus(0, 50_000, ("math", "memory", "data"))
    assert list(found) == ["math", "memory", "data"]
    own = builtin_corpus.corpus(0, 50_000, ("math",))["math"]
    assert found["math"] == own


def test_general_text_is_prose_and_code_in_turn() -> None:
    split = own_texts.corpus(0, 200_000, ("general",))["general"]
    names = [d.name for documents in split.values() for d in documents]
    kinds = [name.partition("/")[0] for name in names]
    assert kinds.count("prose") == kinds.count("code") > 3
    assert len(names) == len(set(names))
