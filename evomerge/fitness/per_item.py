"""Outcomes item by item, with names, of one model and of two models side by side.

Pure: no torch.
"""

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
    """A model's result on one item of a slice; higher is better."""

    domain: str
    kind: Kind
    name: str
    #: A window's mean log p per token in nats; 0 or 1 for a question; 0 to 1 for a problem.
    value: float


@dataclass(frozen=True)
class Contest:
    """The results of two models on one item: `mine` of the first, `theirs` of the second."""

    domain: str
    kind: Kind
    name: str
    mine: float
    theirs: float
    #: The largest difference that counts as rounding.
    rounding: float = WINDOW_ROUNDING["float32"]

    @property
    def lead(self) -> float:
        """The first model's result minus the second's."""
        return self.mine - self.theirs

    @property
    def alike(self) -> bool:
        """True if the difference may be rounding."""
        return abs(self.lead) <= self.rounding


def itemise(outcomes: Outcomes, draws: Draws, names: Names | None) -> list[Item]:
    """Return every item that was scored, domain by domain; without `names` items are numbered."""
    result: list[Item] = []
    for domain in sorted(outcomes):
        for kind, places, values in _values(outcomes[domain], draws[domain]):
            for place, value in zip(places, values, strict=True):
                name = f"{kind} {place}" if names is None else names[domain][kind][place]
                result.append(Item(domain, kind, name, value))
    return result


def _values(
    outcome: DomainOutcomes, draw: Draw
) -> list[tuple[Kind, Sequence[int], Sequence[float]]]:
    rates = [-nll / tokens for nll, tokens in zip(outcome.nll, outcome.tokens, strict=True)]
    return [
        ("window", draw.windows, rates),
        ("question", draw.questions, list(map(float, outcome.right))),
        ("problem", draw.problems, outcome.solved),
    ]


def contest(
    first_items: Sequence[Item], second_items: Sequence[Item], computed_in: str = "float32"
) -> list[Contest]:
    """Pair the same items of two models, in their order.

    `computed_in` is the dtype that evaluation computed in, as in `paired_bootstrap.rounding`.
    """
    bound = WINDOW_ROUNDING.get(computed_in, WINDOW_ROUNDING["bfloat16"])
    return [
        Contest(a.domain, a.kind, a.name, a.value, b.value, bound)
        for a, b in zip(first_items, second_items, strict=True)
    ]


@dataclass(frozen=True)
class Tally:
    """Numbers of items that the first model won, lost and tied, in one domain and kind."""

    domain: str
    kind: Kind
    won: int
    lost: int
    alike: int


def tally(contests: Sequence[Contest]) -> list[Tally]:
    """Count wins, losses and ties, domain by domain and kind by kind."""
    result = []
    for domain in sorted({c.domain for c in contests}):
        for kind in KINDS:
            group = [c for c in contests if c.domain == domain and c.kind == kind]
            apart = [c.lead for c in group if not c.alike]
            if group:
                won, lost = sum(x > 0 for x in apart), sum(x < 0 for x in apart)
                result.append(Tally(domain, kind, won, lost, len(group) - won - lost))
    return result
