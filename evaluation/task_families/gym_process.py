"""Process that makes and scores items of reasoning-gym: questions in JSON, a line each, and answers.

It imports nothing of this project. Questions:

    {"levels": NAME}                                             steps of the longest attribute
    {"make": {name, level, seed, first, count}}                  [question, answer] or null of each item
    {"right": {name, level, seed, number, reply}}                true if the reply has the full score
"""

from __future__ import annotations

import json
import os
import sys
from functools import lru_cache
from typing import Any

#: Score from which an answer is right.
FULL = 1.0


@lru_cache(maxsize=64)
def data_set(name: str, level: int, seed: int, size: int) -> Any:
    """Return the data set (of reasoning-gym) at a level. Items do not depend on its size."""
    from reasoning_gym.factory import create_curriculum, create_dataset  # pyright: ignore

    curriculum = create_curriculum(name)
    for attribute, definition in curriculum.attributes.items():
        curriculum.set_attr_level(attribute, min(level, len(definition.levels)) - 1)
    config = curriculum.generate_configuration({"seed": seed, "size": size})
    return create_dataset(name, **vars(config))


def levels(name: str) -> int:
    """Return the number of steps of the longest attribute. Raises ValueError without a curriculum."""
    from reasoning_gym.factory import CURRICULA, DATASETS, create_curriculum  # pyright: ignore

    if name not in DATASETS:
        raise ValueError("there is no such data set")
    if name not in CURRICULA:
        raise ValueError("the data set has no levels")
    return max(len(definition.levels) for definition in create_curriculum(name).attributes.values())


def score(dataset: Any, answer: str, entry: dict[str, object]) -> float:
    """Return the score, 0 to 1, of an answer by the data set's verifier; 0 if the verifier fails."""
    try:
        return float(dataset.score_answer(answer, entry))
    except Exception:  # some verifiers fail on an answer that they cannot read
        return 0.0


def make(name: str, level: int, seed: int, first: int, count: int) -> list[list[str] | None]:
    """Return [question, answer] of each item; None for an item whose own answer is not right."""
    dataset = data_set(name, level, seed, first + count)
    pairs: list[list[str] | None] = []
    for number in range(first, first + count):
        entry = dataset[number]
        question, answer = entry["question"], entry["answer"]
        valid = isinstance(answer, str) and answer.strip() and score(dataset, answer, entry) >= FULL
        pairs.append([question.strip(), answer.strip()] if valid else None)
    return pairs


def right(name: str, level: int, seed: int, number: int, reply: str) -> bool:
    """Return True if a reply has the full score."""
    dataset = data_set(name, level, seed, number + 1)
    return score(dataset, reply, dataset[number]) >= FULL


def answered(question: dict[str, Any]) -> dict[str, object]:
    """Return {"answer": …} to a question, or {"error": …} in words."""
    (what, arguments), *_ = question.items()
    try:
        if what == "levels":
            return {"answer": levels(arguments)}
        return {"answer": make(**arguments) if what == "make" else right(**arguments)}
    except Exception as error:  # any error of a generator is told, and the process goes on
        return {"error": f"{type(error).__name__}: {error}"[:300]}


def main() -> None:
    """Answer questions until the input ends. What the package prints goes to standard error."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        number, question = json.loads(line)
        out.write(json.dumps([number, answered(question)]) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
