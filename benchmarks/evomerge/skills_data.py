"""Three tasks of letters: their words, texts to train on, and problems that a program checks.

A text is `shift k e z > l f a .`. A problem is the same without its answer: `shift k e z >`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from agent_forge.evaluation.data.builtin import shipped_text
from agent_forge.evaluation.data.slices import TRAINING_SHARES
from agent_forge.runs import keys

#: Domain of the ordinary text.
PROSE = "prose"
#: Characters of prose that are written.
CHARACTERS = 700_000
#: Letters that words are made of.
LETTERS = ascii_lowercase[:12]
#: Letters of the shortest and of the longest word.
LENGTHS = (3, 6)
#: Tokens that a reply may have: twice the longest word, and the end.
REPLY = 2 * LENGTHS[1] + 2
#: Slice → texts of a task, and slice → problems of a task.
TEXTS = {"train": 40_000, "search": 200, "selection": 150, "test": 200}
PROBLEMS = {"search": 160, "selection": 160, "test": 160}


def _shift(letters: list[str]) -> list[str]:
    return [LETTERS[(LETTERS.index(letter) + 1) % len(LETTERS)] for letter in letters]


def _double(letters: list[str]) -> list[str]:
    return [letter for letter in letters for _ in range(2)]


def _reverse(letters: list[str]) -> list[str]:
    return letters[::-1]


#: Task → the letters of the answer from those of the word.
TASKS: Mapping[str, Callable[[list[str]], list[str]]] = {
    "shift": _shift,
    "double": _double,
    "reverse": _reverse,
}


def words(task: str, seed: int, count: int) -> list[list[str]]:
    """Return `count` different words of random letters."""
    draw = keys.generator(seed, "skills", task)
    drawn: dict[str, list[str]] = {}
    while len(drawn) < count:
        size = int(draw.integers(LENGTHS[0], LENGTHS[1] + 1))
        letters = [LETTERS[index] for index in draw.integers(0, len(LETTERS), size)]
        drawn.setdefault("".join(letters), letters)
    return list(drawn.values())


def task_rows(task: str, seed: int) -> list[dict[str, Any]]:
    """Return the texts and problems of a task as rows of a file; no word is in two of them."""
    places = [(slice_, False) for slice_, count in TEXTS.items() for _ in range(count)]
    places += [(slice_, True) for slice_, count in PROBLEMS.items() for _ in range(count)]
    rows: list[dict[str, Any]] = []
    for (slice_, asks), letters in zip(places, words(task, seed, len(places)), strict=True):
        prompt, answer = f"{task} {' '.join(letters)} >", " ".join(TASKS[task](letters))
        row: dict[str, Any] = {"id": f"{task}/{''.join(letters)}", "slice": slice_}
        if asks:
            check = {"kind": "exact", "answer": answer}
            row |= {"prompt": prompt, "check": check, "stop": [" ."], "max_tokens": REPLY}
        else:
            row["text"] = f"{prompt} {answer} ."
        rows.append(row)
    return rows


def prose_rows(seed: int) -> list[dict[str, Any]]:
    """Return the program's own prose as rows of a file, in slices that depend on the seed."""
    names, shares = list(TRAINING_SHARES), list(TRAINING_SHARES.values())
    return [
        {
            "id": f"{PROSE}/{document.name}",
            "slice": str(keys.generator(seed, "skills", PROSE, document.name).choice(names, p=shares)),
            "text": document.text,
        }
        for document in shipped_text.documents("prose", CHARACTERS)
    ]


def write(folder: Path, seed: int) -> None:
    """Write a file for each task and one of prose; each is a domain of `forge cognate --data`."""
    folder.mkdir(parents=True, exist_ok=True)
    domains = {PROSE: prose_rows(seed)} | {task: task_rows(task, seed) for task in TASKS}
    for domain, rows in domains.items():
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{domain}.jsonl").write_text(lines, "utf-8")
