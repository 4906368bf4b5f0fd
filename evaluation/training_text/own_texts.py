"""Text of the program's own to train on: the built-in corpus, and texts of generated tasks.

    reasoning   tasks that need steps, with their answers
    memory      pairs, filler of 4 to 256 symbols, and a key whose value is asked
    general     prose and code in turn

A task is a function of its family, level, seed and number (`evaluation.task_families`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import chain, count

from agent_forge.evaluation import task_families
from agent_forge.evaluation.data.builtin import corpus as builtin_corpus
from agent_forge.evaluation.data.builtin import shipped_text
from agent_forge.evaluation.data.slices import TRAINING_SHARES, Document, Slice, check_split
from agent_forge.evaluation.task_families import LEVELS

#: Domain → families of its tasks.
TASKS = {
    "reasoning": ("chain", "addition", "subtraction", "sort-digits", "brackets"),
    "memory": ("recall",),
}
#: Domains that are made here.
MADE = (*TASKS, "general")
#: Every domain that has text.
KNOWN = (*builtin_corpus.KNOWN, *MADE)

#: Times the characters of a setting that are tried, to say how many are enough.
FACTORS = (2, 4, 8, 16)

Split = dict[Slice, list[Document]]


def corpus(seed: int, characters: int, domains: Sequence[str]) -> dict[str, Split]:
    """Return about `characters` of text per domain: {domain: {slice: documents}}."""
    return {domain: _split(documents(domain, seed, characters)) for domain in domains}


def documents(domain: str, seed: int, characters: int) -> Iterator[Document]:
    """Yield the documents of a domain until about `characters` characters are reached."""
    if domain not in MADE:
        return builtin_corpus.documents(domain, characters, seed)
    return _mixed(characters) if domain == "general" else _tasks(domain, seed, characters)


def check(seed: int, characters: int, domains: Sequence[str]) -> None:
    """Raise DataError if a domain has no text in a slice: with few characters some have none.

    Text is read until every slice has some, so that the check takes milliseconds.
    """
    for domain in domains:
        split = _first(domain, seed, characters)
        if all(split.values()):
            continue
        more = (characters * factor for factor in FACTORS)
        enough = next((n for n in more if all(_first(domain, seed, n).values())), None)
        remedy = f"set characters to {enough} or more" if enough else "leave the domain out"
        check_split(domain, split, f"It is built-in text: {remedy}.")


def _first(domain: str, seed: int, characters: int) -> Split:
    """Return {slice: documents} of a domain, up to the document with which every slice has some."""
    split: Split = {slice_: [] for slice_ in TRAINING_SHARES}
    for document in documents(domain, seed, characters):
        split[document.slice()].append(document)
        if all(split.values()):
            break
    return split


def _split(every: Iterable[Document]) -> Split:
    """Return {slice: list of the documents that fall into it}."""
    split: Split = {slice_: [] for slice_ in TRAINING_SHARES}
    for document in every:
        split[document.slice()].append(document)
    return split


def _tasks(domain: str, seed: int, characters: int) -> Iterator[Document]:
    """Yield documents, each a task with its answer, of all families and levels in turn.

    The prompt decides the document's name, so it is in one slice only; no prompt comes twice.
    """
    families, length, prompts = TASKS[domain], 0, set[str]()
    for number in count():
        family = families[number % len(families)]
        item = task_families.item(family, 1 + number // len(families) % LEVELS, seed, number)
        if length >= characters:
            return
        if item is None or item.prompt in prompts:
            continue
        prompts.add(item.prompt)
        text = f"{item.prompt} {item.answer}"
        length += len(text)
        yield Document(f"{family}/{sha256(item.prompt.encode()).hexdigest()[:16]}", domain, text)


def _mixed(characters: int) -> Iterator[Document]:
    """Yield documents of prose and code in turn, half of the characters each, until one ends."""
    half = characters // 2
    prose, code = (shipped_text.documents(domain, half) for domain in ("prose", "code"))
    pairs = zip(prose, code, strict=False)
    for document in chain.from_iterable(pairs):
        yield replace(document, domain="general", name=f"{document.domain}/{document.name}")
