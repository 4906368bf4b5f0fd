"""Outcomes of one evaluation, item by item, and draws of the items to score.

Pure: no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent_forge.runs.event_types import EventPart
from agent_forge.weights import randomness


class DomainOutcomes(EventPart):
    """The outcomes of one domain: lists over windows, questions and problems, in fixed order."""

    #: Σ −log p of a window's predicted tokens, nats.
    nll: tuple[float, ...]
    #: Predicted tokens of a window.
    tokens: tuple[int, ...]
    #: Predicted tokens that were the most likely one.
    hits: tuple[int, ...]
    #: 1 if the right choice was the most likely, else 0.
    right: tuple[int, ...] = ()
    #: 1 / number of choices.
    chance: tuple[float, ...] = ()
    #: UTF-8 bytes of a window's predicted tokens; empty in older logs, which did not record them.
    bytes: tuple[int, ...] = ()
    #: The score of the reply to a problem, 0 to 1.
    solved: tuple[float, ...] = ()
    #: Id of a problem whose verifier failed → why. The problem counts 0.
    unscored: dict[str, str] = {}

    def pick(self, draw: Draw) -> DomainOutcomes:
        """Return the DomainOutcomes of the items in the draw."""
        return DomainOutcomes(
            nll=tuple(self.nll[i] for i in draw.windows),
            tokens=tuple(self.tokens[i] for i in draw.windows),
            hits=tuple(self.hits[i] for i in draw.windows),
            right=tuple(self.right[i] for i in draw.questions),
            chance=tuple(self.chance[i] for i in draw.questions),
            bytes=tuple(self.bytes[i] for i in draw.windows) if self.bytes else (),
            solved=tuple(self.solved[i] for i in draw.problems),
            unscored=self.unscored,
        )


#: Domain → outcomes.
Outcomes = dict[str, DomainOutcomes]


class Draw(EventPart):
    """The items of a domain to score, as indices into the slice, ascending."""

    windows: tuple[int, ...]
    questions: tuple[int, ...]
    problems: tuple[int, ...] = ()


Draws = dict[str, Draw]


class Pool(EventPart):
    """The numbers of windows, questions and problems that a slice has in a domain."""

    windows: int
    questions: int
    problems: int = 0
    #: The number of questions, and of problems, in each grade, in the order of grades, which is the
    #: order of the items; empty: all are of one grade.
    question_grades: tuple[int, ...] = ()
    problem_grades: tuple[int, ...] = ()


class Sizes(EventPart):
    """The most windows, questions and problems to draw from a domain."""

    windows: int
    questions: int
    problems: int = 0


def whole(pools: Mapping[str, Pool]) -> Draws:
    """Return {domain: a draw of all its items}."""
    return {
        domain: Draw(
            windows=tuple(range(p.windows)),
            questions=tuple(range(p.questions)),
            problems=tuple(range(p.problems)),
        )
        for domain, p in sorted(pools.items())
    }


def draw(pools: Mapping[str, Pool], sizes: Sizes, *key: str | int) -> Draws:
    """Return {domain: items drawn by key}, without replacement, from each grade its share."""
    result: Draws = {}
    for domain, p in sorted(pools.items()):
        domain_key = (*key, domain)
        result[domain] = Draw(
            windows=_drawn((p.windows,), sizes.windows, *domain_key, "windows"),
            questions=_drawn(
                p.question_grades or (p.questions,), sizes.questions, *domain_key, "questions"
            ),
            problems=_drawn(p.problem_grades or (p.problems,), sizes.problems, *domain_key, "problems"),
        )
    return result


def _drawn(strata: Sequence[int], count: int, *key: str | int) -> tuple[int, ...]:
    """Return `count` drawn indices, or all, ascending, into the items of all strata, in proportion."""
    places: list[int] = []
    first = 0
    for number, (size, share) in enumerate(zip(strata, shares(strata, count), strict=True)):
        stratum_key = key if len(strata) == 1 else (*key, number)
        order = randomness.permutation(size, *stratum_key)
        places += [first + int(i) for i in order[:share]]
        first += size
    return tuple(sorted(places))


def shares(strata: Sequence[int], count: int) -> list[int]:
    """Return a list of each stratum's part of `count`, capped at their sum, by largest remainder."""
    total = sum(strata)
    count = min(count, total)
    if not total:
        return [0] * len(strata)
    result = [count * size // total for size in strata]
    rest = sorted(range(len(strata)), key=lambda i: (-(count * strata[i] % total), i))
    for i in rest[: count - sum(result)]:
        result[i] += 1
    return result


def pick(outcomes: Outcomes, draws: Draws) -> Outcomes:
    """Return {domain: the part of a whole slice's outcomes that its draw scores}."""
    return {d: outcomes[d].pick(draws[d]) for d in sorted(draws)}


def joined(blocks: Sequence[Draws]) -> Draws:
    """Return {domain: one draw with the windows of all blocks, ascending, and nothing else}."""
    return {
        domain: Draw(
            windows=tuple(sorted(i for block in blocks for i in block[domain].windows)), questions=()
        )
        for domain in blocks[0]
    }


def narrowed(outcomes: Outcomes, draws: Draws, scored: Draws) -> Outcomes:
    """Return {domain: a draw's outcomes about the windows of `scored`, without questions}."""
    result: Outcomes = {}
    for domain in sorted(draws):
        windows = set(scored[domain].windows)
        places = tuple(n for n, i in enumerate(draws[domain].windows) if i in windows)
        result[domain] = outcomes[domain].pick(Draw(windows=places, questions=()))
    return result
