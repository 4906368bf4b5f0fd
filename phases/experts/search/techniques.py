"""The space of mixtures, and the ten techniques that make the first ones, each at ten scales. Pure.

A mixture has a factor for each further model and each expert. A point in [0, 1]ⁿ has a gene for each of
these parts. A part whose factor is small is left out, so that a search can find mixtures of few parts.

The pool of a search has up to 100 mixtures, technique by technique at the scales s, 2 s, … 10 s. Those
of parts that a run lacks, and those that another technique gave already, are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from agent_forge.phases.experts.recipes import Factors
from agent_forge.search import pareto
from agent_forge.search.gene import Gene
from agent_forge.search.pareto import Draws
from agent_forge.weights import randomness

#: Scales of a technique.
SCALES = 10
#: Standard deviation of the genes of a perturbed copy, if the pool is too small.
SPREAD = 0.1

#: Number of the scale from 0, numbers of models and of experts → shares of the parts; None: not to be.
Shares = Callable[[int, int, int], list[float] | None]


def _one(number: int, count: int) -> list[float]:
    return [float(place == number % count) for place in range(count)]


def one_expert(number: int, models: int, experts: int) -> list[float] | None:
    """Return the factors of a single expert, the next at each scale; None without experts."""
    return [*[0.0] * models, *_one(number, experts)] if experts else None


def all_experts(number: int, models: int, experts: int) -> list[float] | None:
    """Return the factors of the mean of all experts; None with fewer than two."""
    return [*[0.0] * models, *[1 / experts] * experts] if experts > 1 else None


def sum_of_experts(number: int, models: int, experts: int) -> list[float] | None:
    """Return the factors of the sum of all experts; None with fewer than two."""
    return [*[0.0] * models, *[1.0] * experts] if experts > 1 else None


def two_experts(number: int, models: int, experts: int) -> list[float] | None:
    """Return the factors of half an expert and half of the next; None with fewer than three."""
    if experts < 3:
        return None
    both = zip(_one(number, experts), _one(number + 1, experts), strict=True)
    return [*[0.0] * models, *[(a + b) / 2 for a, b in both]]


def all_but_one_expert(number: int, models: int, experts: int) -> list[float] | None:
    """Return the factors of the sum of all experts but one; None with fewer than two."""
    if experts < 2:
        return None
    return [*[0.0] * models, *[1.0 - x for x in _one(number, experts)]]


def one_model(number: int, models: int, experts: int) -> list[float] | None:
    """Return the factors of a single model's task vector; None without models."""
    return [*_one(number, models), *[0.0] * experts] if models else None


def all_models(number: int, models: int, experts: int) -> list[float] | None:
    """Return the factors of the mean of the models' task vectors; None with fewer than two."""
    return [*[1 / models] * models, *[0.0] * experts] if models > 1 else None


def sum_of_models(number: int, models: int, experts: int) -> list[float] | None:
    """Return the factors of the sum of task vectors (task arithmetic); None below two models."""
    return [*[1.0] * models, *[0.0] * experts] if models > 1 else None


def models_and_experts(number: int, models: int, experts: int) -> list[float] | None:
    """Return the factors of half the models' mean and half the experts'; None without either."""
    if not models or not experts:
        return None
    return [*[0.5 / models] * models, *[0.5 / experts] * experts]


def models_and_one_expert(number: int, models: int, experts: int) -> list[float] | None:
    """Return the factors of the models' mean and a third of one expert; None without either."""
    if not models or not experts:
        return None
    return [*[1 / models] * models, *[x / 3 for x in _one(number, experts)]]


#: Name → technique.
TECHNIQUES: Mapping[str, Shares] = {
    "one expert": one_expert,
    "mean of experts": all_experts,
    "sum of experts": sum_of_experts,
    "two experts": two_experts,
    "all experts but one": all_but_one_expert,
    "one model": one_model,
    "mean of models": all_models,
    "sum of models": sum_of_models,
    "models and experts": models_and_experts,
    "models and one expert": models_and_one_expert,
}


def pool(space: MixtureSpace, scale: float) -> list[Factors]:
    """Return the distinct mixtures of all techniques at all scales, without the empty one."""
    mixtures: dict[Factors, None] = {}
    experts = 0 if space.bare else len(space.experts)
    for technique in TECHNIQUES.values():
        for number in range(SCALES):
            shares = technique(number, space.models, experts)
            if shares is not None:
                size = scale * (number + 1)
                mixtures.setdefault(space.snapped([_bounded(size * share) for share in shares]))
    return [factors for factors in mixtures if any(factors)]


def _bounded(factor: float) -> float:
    return min(1.5, max(-0.5, factor))


def first(space: MixtureSpace, count: int, scale: float, *key: str | int) -> list[Factors]:
    """Return `count` mixtures for the first generation, drawn from the pool without replacement.

    If the pool is too small, perturbed copies of its mixtures follow.
    """
    every = pool(space, scale)
    order = randomness.permutation(len(every), *key, "pool").tolist()
    mixtures = [every[place] for place in order[:count]]
    for number in range(count - len(mixtures)):
        draws = Draws(*key, "copy", number, count=max(64, space.free))
        point = space.point(every[order[number % len(every)]])
        mixtures.append(space.factors(pareto.gaussian(point, SPREAD, draws)))
    return mixtures


#: Bounds of a factor: as those of a source's weight in a merge.
BOUNDS = (-0.5, 1.5)
#: A factor below this, by magnitude, is 0.
SMALL = 0.05


@dataclass(frozen=True)
class MixtureSpace:
    """The space of mixtures of `models` further models and of the `experts`, by domain."""

    models: int
    experts: tuple[str, ...]
    #: True if mixtures have no experts: their factors stay 0.
    bare: bool = False

    @property
    def parts(self) -> int:
        """The number of factors."""
        return self.models + len(self.experts)

    @property
    def free(self) -> int:
        """The number of factors that the search changes; they come first."""
        return self.models if self.bare else self.parts

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parts in the order of factors: "model N", then the experts' domains."""
        return (*(f"model {n + 1}" for n in range(self.models)), *self.experts)

    @cached_property
    def genes(self) -> tuple[Gene, ...]:
        """The genes of a point, one for each factor that the search changes."""
        return tuple(Gene(name, None, *BOUNDS, 0.0) for name in self.names[: self.free])

    def factors(self, point: Sequence[float]) -> Factors:
        """Return the factors of the mixture at a point in [0, 1]ⁿ, n = `free`."""
        values = [gene.value(x) for gene, x in zip(self.genes, point, strict=True)]
        return self.snapped(values)

    def snapped(self, values: Sequence[float]) -> Factors:
        """Return factors for all parts: small values become 0, and parts not searched are 0."""
        factors = [0.0 if abs(value) < SMALL else round(value, 6) for value in values]
        return (*factors, *[0.0] * (self.parts - len(factors)))

    def point(self, factors: Factors) -> list[float]:
        """Return the point in [0, 1]ⁿ, n = `free`, at which a mixture's factors lie."""
        return [gene.place(f) for gene, f in zip(self.genes, factors[: self.free], strict=True)]
