"""Multiple-choice items made from held-out documents.

For code and data the right answer is the line that really follows, the wrong answers are lines from
elsewhere in the same domain and slice. For arithmetic the right answer is the result, the wrong
answers are near misses.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from typing import Any

from evaluation.data.slices import Document

#: Characters of text before the question.
CONTEXT = 100
CHOICES = 4
_EQUATION = re.compile(r"^(\d+ [-+*/] \d+) = (\d+)$")


def continuation(documents: Sequence[Document], count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield up to `count` items that ask: which line comes next?"""
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


def equations(documents: Sequence[Document], count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield up to `count` items that ask: what is the result?"""
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
) -> dict[str, Any]:
    choices = [right, *wrong]
    r.shuffle(choices)
    answer = choices.index(right)
    return {
        "id": name,
        "domain": domain,
        "prompt": prompt,
        "choices": choices,
        "answer": answer,
    }
