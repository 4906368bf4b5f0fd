"""Text of the program's own to train on: the built-in corpus, and texts of generated tasks.

    reasoning   tasks that need steps, with their answers
    memory      pairs, filler of 4 to 256 symbols, and a key whose value is asked
    general     prose and code in turn

A task is a function of its family, level, seed and number (`evaluation.task_families`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import chain, count

from evaluation import task_families
from evaluation.data.builtin import corpus as builtin_corpus
from evaluation.data.builtin import help_prose, stdlib_code
from evaluation.data.slices import TRAINING_SHARES, Document, Slice
from evaluation.task_families import LEVELS

#: Domain → families of its tasks.
TASKS = {
    "reasoning": ("chain", "addition", "subtraction", "sort-digits", "brackets"),
    "memory": ("recall",),
}
#: Domains that are made here.
MADE = (*TASKS, "general")
#: Every domain that has text.
KNOWN = (*builtin_corpus.KNOWN, *MADE)

Split = dict[Slice, list[Document]]


def corpus(seed: int, characters: int, domains: Sequence[str]) -> dict[str, Split]:
    """Return about `characters` of text per domain: domain → slice → documents."""
    known = builtin_corpus.corpus(seed, characters, [d for d in domains if d not in MADE])
    made = {domain: _split(domain, seed, characters) for domain in domains if domain in MADE}
    return {domain: {**known, **made}[domain] for domain in domains}


def _split(domain: str, seed: int, characters: int) -> Split:
    """Return the documents of a domain that is made here, by slice."""
    found: Split = {slice_: [] for slice_ in TRAINING_SHARES}
    every = _mixed(characters) if domain == "general" else _tasks(domain, seed, characters)
    for document in every:
        found[document.slice()].append(document)
    return found


def _tasks(domain: str, seed: int, characters: int) -> Iterator[Document]:
    """Yield tasks with their answers, each a document, of all families and levels in turn.

    A document has its name from the prompt, so that a prompt is in one slice only; none comes twice.
    """
    families, made, seen = TASKS[domain], 0, set[str]()
    for number in count():
        family = families[number % len(families)]
        item = task_families.item(family, 1 + number // len(families) % LEVELS, seed, number)
        if made >= characters:
            return
        if item is None or item.prompt in seen:
            continue
        seen.add(item.prompt)
        text = f"{item.prompt} {item.answer}"
        made += len(text)
        yield Document(f"{family}/{sha256(item.prompt.encode()).hexdigest()[:16]}", domain, text)


def _mixed(characters: int) -> Iterator[Document]:
    """Yield prose and code in turn, half of the characters of each, until one of them ends."""
    half = characters // 2
    pairs = zip(help_prose.documents(half), stdlib_code.documents(half), strict=False)
    for document in chain.from_iterable(pairs):
        yield replace(document, domain="general", name=f"{document.domain}/{document.name}")
