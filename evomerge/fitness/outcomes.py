"""What one evaluation saw, item by item. Pure: no torch."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from evomerge import randomness


class DomainOutcomes(BaseModel):
    """One domain: lists run over windows, and over questions, in their fixed order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: Σ −log p of a window's predicted tokens, nats.
    nll: tuple[float, ...]
    #: Predicted tokens of a window.
    tokens: tuple[int, ...]
    #: Predicted tokens that were the most likely one.
    hits: tuple[int, ...]
    #: 1 where the right choice was the most likely, else 0.
    right: tuple[int, ...] = ()
    #: 1 / number of choices.
    chance: tuple[float, ...] = ()

    def pick(self, windows: Sequence[int], questions: Sequence[int]) -> DomainOutcomes:
        """The outcomes of some windows and questions."""
        return DomainOutcomes(
            nll=tuple(self.nll[i] for i in windows),
            tokens=tuple(self.tokens[i] for i in windows),
            hits=tuple(self.hits[i] for i in windows),
            right=tuple(self.right[i] for i in questions),
            chance=tuple(self.chance[i] for i in questions),
        )


#: Domain → outcomes.
Outcomes = dict[str, DomainOutcomes]


class Draw(BaseModel):
    """Which windows and questions of a domain are scored; indices into the slice, ascending."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    windows: tuple[int, ...]
    questions: tuple[int, ...]


Draws = dict[str, Draw]


class Pool(BaseModel):
    """How many windows and questions a slice has in a domain."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    windows: int
    questions: int


def whole(pools: Mapping[str, Pool]) -> Draws:
    """Everything."""
    return {
        domain: Draw(windows=tuple(range(p.windows)), questions=tuple(range(p.questions)))
        for domain, p in sorted(pools.items())
    }


def draw(pools: Mapping[str, Pool], windows: int, questions: int, *key: str | int) -> Draws:
    """At most so many windows and questions of every domain, drawn by key without replacement."""
    result: Draws = {}
    for domain, pool in sorted(pools.items()):
        order = randomness.permutation(pool.windows, *key, domain, "windows")
        asked = randomness.permutation(pool.questions, *key, domain, "questions")
        result[domain] = Draw(
            windows=tuple(sorted(int(i) for i in order[:windows])),
            questions=tuple(sorted(int(i) for i in asked[:questions])),
        )
    return result


def pick(outcomes: Outcomes, draws: Draws) -> Outcomes:
    """The part of a whole slice's outcomes that a draw scores."""
    return {d: outcomes[d].pick(draws[d].windows, draws[d].questions) for d in sorted(draws)}


def draw_digest(draws: Draws) -> str:
    """A short name of a draw, for the log."""
    text = "".join(f"{d}{draws[d].model_dump_json()}" for d in sorted(draws))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
