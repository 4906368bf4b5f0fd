"""Outcomes item by item, with names; and two models' beside each other. Pure: no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from evaluation.data.outcomes import DomainOutcomes, Draw, Draws, Outcomes
from evomerge.fitness.paired_bootstrap import WINDOW_ROUNDING

Kind = Literal["window", "question", "problem"]
KINDS: tuple[Kind, ...] = ("window", "question", "problem")

#: Domain → kind → names of all items of the slice, in their order.
Names = Mapping[str, Mapping[Kind, Sequence[str]]]


@dataclass(frozen=True)
class Item:
    """What one item of a slice said of a model: the more the better."""

    domain: str
    kind: Kind
    name: str
    #: A window's mean log p a token in nats; 0 or 1 for a question; 0 to 1 for a problem.
    value: float


@dataclass(frozen=True)
class Contest:
    """One item, two models."""

    domain: str
    kind: Kind
    name: str
    mine: float
    theirs: float
    #: A difference up to here is rounding.
    rounding: float = WINDOW_ROUNDING["float32"]

    @property
    def lead(self) -> float:
        """How much better the first is."""
        return self.mine - self.theirs

    @property
    def alike(self) -> bool:
        """Return True if what difference there is may be rounding."""
        return abs(self.lead) <= self.rounding


def itemise(outcomes: Outcomes, draws: Draws, names: Names | None) -> list[Item]:
    """Every item that was scored, domain by domain; without names they are numbered."""
    result: list[Item] = []
    for domain in sorted(outcomes):
        for kind, places, values in _values(outcomes[domain], draws[domain]):
            for place, value in zip(places, values, strict=True):
                name = f"{kind} {place}" if names is None else names[domain][kind][place]
                result.append(Item(domain, kind, name, value))
    return result


def _values(seen: DomainOutcomes, draw: Draw) -> list[tuple[Kind, Sequence[int], Sequence[float]]]:
    rates = [-nll / tokens for nll, tokens in zip(seen.nll, seen.tokens, strict=True)]
    return [
        ("window", draw.windows, rates),
        ("question", draw.questions, list(map(float, seen.right))),
        ("problem", draw.problems, seen.solved),
    ]


def contest(
    mine: Sequence[Item], theirs: Sequence[Item], computed_in: str = "float32"
) -> list[Contest]:
    """Return the same items of two models, in their order.

    `computed_in`: what evaluation computed in, as for `compare.rounding`.
    """
    bound = WINDOW_ROUNDING.get(computed_in, WINDOW_ROUNDING["bfloat16"])
    return [
        Contest(a.domain, a.kind, a.name, a.value, b.value, bound)
        for a, b in zip(mine, theirs, strict=True)
    ]


@dataclass(frozen=True)
class Tally:
    """Of one domain and kind: how many the first won, lost, and had alike."""

    domain: str
    kind: Kind
    won: int
    lost: int
    alike: int


def tally(contests: Sequence[Contest]) -> list[Tally]:
    """Domain by domain, kind by kind."""
    result = []
    for domain in sorted({c.domain for c in contests}):
        for kind in KINDS:
            own = [c for c in contests if c.domain == domain and c.kind == kind]
            apart = [c.lead for c in own if not c.alike]
            if own:
                won, lost = sum(x > 0 for x in apart), sum(x < 0 for x in apart)
                result.append(Tally(domain, kind, won, lost, len(own) - won - lost))
    return result
