"""The built-in corpus: domains of text in four slices, and multiple-choice items of held-out documents.

Items have the project's JSONL format. For code and data the right answer is the line that really
follows; the wrong answers are lines from elsewhere in the same domain and slice. For arithmetic the
right answer is the result; the wrong answers are near misses.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_forge.evaluation.data.builtin import (
    arithmetic,
    modular_chains,
    phrase_grammar,
    records,
    shipped_text,
)
from agent_forge.evaluation.data.slices import TRAINING_SHARES, Document, Slice

#: Domain names in their fixed order.
DOMAINS = ("code", "math", "data")
#: Every domain that has text.
KNOWN = (*DOMAINS, "prose", "multilingual", "chains")

#: Domains of text that is shipped.
SHIPPED = ("code", "prose")
#: Domain → its documents, of text that a seed generates.
GENERATED = {
    "math": arithmetic.documents,
    "data": records.documents,
    "multilingual": phrase_grammar.documents,
    "chains": modular_chains.documents,
}
#: Characters of held-out text per domain and slice, so that domains weigh alike.
HELD_OUT: Mapping[Slice, int] = {
    "train": 40_000,
    "search": 80_000,
    "selection": 48_000,
    "test": 100_000,
}

#: Multiple-choice items per domain and slice. The test slice's number decides how wide its
#: intervals are; few models are asked its items, so there can be many.
QUESTIONS: Mapping[Slice, int] = {"search": 60, "selection": 60, "test": 400}

#: Characters of text per domain that items of a run without data are taken from.
CHARACTERS = 4_000_000
#: Up to `FULL_UP_TO` parameters a run without data is measured on all items. Beyond, the share of
#: items falls as a forward pass grows, but never below `LEAST`.
FULL_UP_TO, LEAST = 4_000_000, 1 / 8


def documents(domain: str, characters: int, seed: int) -> Iterator[Document]:
    """Yield the documents of a domain in their order until `characters` characters are reached."""
    if domain in SHIPPED:
        return shipped_text.documents(domain, characters)
    return GENERATED[domain](characters, seed)


def corpus(
    seed: int, characters: int, domains: Sequence[str] = DOMAINS
) -> dict[str, dict[Slice, list[Document]]]:
    """Return {domain: {slice: documents}}, about `characters` of text per domain, split by file."""
    result: dict[str, dict[Slice, list[Document]]] = {}
    for domain in domains:
        split: dict[Slice, list[Document]] = {s: [] for s in TRAINING_SHARES}
        for document in documents(domain, characters, seed):
            split[document.slice()].append(document)
        result[domain] = split
    return result


def default(parameters: int) -> Iterator[dict[str, object]]:
    """Yield the items (rows) of a run without data of its own: fewer for models with more parameters.

    The number of items depends on `parameters` alone: no clock and no machine decides it, so a run
    that is resumed elsewhere has the same items.
    """
    return items(corpus(0, CHARACTERS), 0, share(parameters))


def share(parameters: int) -> float:
    """Return the share of all items, 1/8 to 1, on which models of `parameters` are measured."""
    return min(1.0, max(LEAST, FULL_UP_TO / parameters))


def items(
    texts: Mapping[str, Mapping[Slice, list[Document]]], seed: int, part: float = 1.0
) -> Iterator[dict[str, Any]]:
    """Yield items of all domains and slices: text up to `HELD_OUT` characters, then the questions.

    `part` is the share of text and of questions to yield.
    """
    for domain, split in texts.items():
        for slice_, documents in split.items():
            for document in held_out(documents, round(HELD_OUT[slice_] * part)):
                name = f"{domain}/{document.name}"
                yield {"id": name, "domain": domain, "slice": slice_, "text": document.text}
            if slice_ in QUESTIONS and documents:
                ask = equations if domain == "math" else continuation
                for item in ask(documents, round(QUESTIONS[slice_] * part), seed):
                    yield {**item, "id": f"{domain}/{slice_}/{item['id']}", "slice": slice_}


def held_out(documents: Iterable[Document], characters: int) -> Iterator[Document]:
    """Yield documents until they have `characters` characters; the last is cut, to 200 at least."""
    for document in documents:
        if characters <= 0:
            return
        text = document.text[: max(characters, 200)]
        characters -= len(text)
        yield replace(document, text=text)


def write(folder: Path, texts: Mapping[str, Mapping[Slice, list[Document]]], seed: int) -> None:
    """Write the items to `folder`, one JSONL file a domain."""
    folder.mkdir(parents=True, exist_ok=True)
    rows: dict[str, list[str]] = {domain: [] for domain in texts}
    for item in items(texts, seed):
        rows[item["domain"]].append(json.dumps(item, ensure_ascii=False))
    for domain, lines in rows.items():
        (folder / f"{domain}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")


#: Characters of text before the question.
CONTEXT = 100
CHOICES = 4
_EQUATION = re.compile(r"^(\d+ [-+*/] \d+) = (\d+)$")


def continuation(documents: Sequence[Document], count: int, seed: int) -> Iterator[dict[str, object]]:
    """Yield up to `count` multiple-choice items (rows) that ask: which line comes next?"""
    r = random.Random(f"continuation/{seed}/{documents[0].domain}")
    lines = sorted({line for d in documents for line in d.text.splitlines() if _askable(line)})
    for number in range(count):
        document = documents[number % len(documents)]
        rows = document.text.splitlines()
        places = [i for i in range(3, len(rows)) if _askable(rows[i])]
        if not places:
            continue
        place = r.choice(places)
        wrong = r.sample([line for line in lines if line != rows[place]], CHOICES - 1)
        prompt = ("\n".join(rows[:place]) + "\n")[-CONTEXT:]
        yield _item(f"next-line-{number:04d}", document.domain, prompt, rows[place], wrong, r)


def equations(documents: Sequence[Document], count: int, seed: int) -> Iterator[dict[str, object]]:
    """Yield up to `count` multiple-choice items (rows) that ask: what is the result?"""
    r = random.Random(f"equations/{seed}")
    matches = [
        (document, i, match)
        for document in documents
        for i, line in enumerate(document.text.splitlines())
        if (match := _EQUATION.match(line))
    ]
    for number, (document, i, match) in enumerate(r.sample(matches, min(count, len(matches)))):
        rows = document.text.splitlines()[:i]
        prompt = ("\n".join([*rows, f"{match[1]} ="]))[-CONTEXT:]
        right = int(match[2])
        near = sorted({right + d for d in (-10, -2, -1, 1, 2, 10) if right + d >= 0})
        wrong = [f" {n}" for n in r.sample(near, CHOICES - 1)]
        yield _item(f"equation-{number:04d}", document.domain, prompt, f" {right}", wrong, r)


def _askable(line: str) -> bool:
    return 8 <= len(line.strip()) <= 80


def _item(
    name: str, domain: str, prompt: str, right: str, wrong: list[str], r: random.Random
) -> dict[str, object]:
    choices = [right, *wrong]
    r.shuffle(choices)
    answer = choices.index(right)
    return {"id": name, "domain": domain, "prompt": prompt, "choices": choices, "answer": answer}
