"""Generations of a search over mixtures: breeding, measuring, survival; and its objectives. Pure.

The arm `mixtures` is NSGA-II (Deb et al. 2002) over models and experts, `models` over models alone.
`random` begins with the same mixtures as `mixtures`, then draws points uniformly; the same selection
keeps the same number of them. The `elite` best always survive. All arms measure equally many mixtures,
on the same windows.

Objectives are relative to the given model on the same windows, to be maximised: for every domain −(bits
per byte over the given model's), the neutral one among them (drift), and −(share of the parts that it
has).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from agent_forge.phases.experts import recipes
from agent_forge.phases.experts.recipes import Arm, Factors, GenerationBred, Scored, Scoring
from agent_forge.phases.experts.search import techniques
from agent_forge.phases.experts.search.techniques import MixtureSpace
from agent_forge.phases.experts.settings import ExpertsConfig
from agent_forge.search import pareto
from agent_forge.search.hypervolume import hypervolume
from agent_forge.search.pareto import Draws, Survivor
from agent_forge.studies.events import Observed
from agent_forge.studies.run import Ask, Note, Script

#: Mixtures of a task.
CHUNK = 10
#: Attempts to breed a mixture that the generation and its parents do not have.
TRIES = 8
ARMS = MIXTURES, RANDOM, MODELS = "mixtures", "random", "models"


@dataclass(frozen=True)
class Search:
    """A run's search over mixtures in one arm."""

    config: ExpertsConfig
    #: Key → what is recorded of the run.
    answers: Mapping[str, Any]
    arm: Arm
    space: MixtureSpace
    #: The given model on the windows of the search.
    given: Observed

    def script(self) -> Script:
        """Yield the steps of the generations that have not ended: breed, measure, end."""
        number = len(self.ended)
        while self.size(number):
            yield Note(f"bred/{self.arm}/{number}", partial(self.breed, number))
            yield Ask({task.key: task for task in self.tasks(number)})
            yield Note(f"ended/{self.arm}/{number}", partial(self.end, number))
            number += 1

    def bred(self, number: int) -> GenerationBred:
        """Return the event of generation `number` with its mixtures."""
        return self.answers[f"bred/{self.arm}/{number}"]

    @property
    def ended(self) -> list[recipes.GenerationEnded]:
        """The events of the generations that have ended, in order."""
        generations: list[recipes.GenerationEnded] = []
        while (event := self.answers.get(f"ended/{self.arm}/{len(generations)}")) is not None:
            generations.append(event)
        return generations

    @property
    def survivors(self) -> tuple[str, ...]:
        """Ids ("NUMBER/SLOT") of the newest generation's survivors, in order of selection."""
        return self.ended[-1].survivors if self.ended else ()

    def size(self, number: int) -> int:
        """Return the number of mixtures of a generation; 0 for one after the last."""
        left = self.config.evaluations - number * self.config.population
        return max(0, min(self.config.population, left))

    def tasks(self, number: int) -> list[Scoring]:
        """Return the list of tasks that measure a generation, at most 10 mixtures each."""
        size = self.size(number)
        return [Scoring(self.arm, number, at, min(at + CHUNK, size)) for at in range(0, size, CHUNK)]

    # ---- what was measured -----------------------------------------------------------------

    def factors(self, id_: str) -> Factors:
        """Return the factors of the mixture "NUMBER/SLOT"."""
        number, _, slot = id_.partition("/")
        return self.bred(int(number)).mixtures[int(slot)]

    def items(self, id_: str) -> Items:
        """Return domain → recorded Σ −log p of the windows, for the mixture "NUMBER/SLOT"."""
        number, _, slot = id_.partition("/")
        first = int(slot) // CHUNK * CHUNK
        event = self.answers[Scoring(self.arm, int(number), first, 0).key]
        assert isinstance(event, Scored)
        return event.items[int(slot) - first]

    def points(self, ids: Iterable[str]) -> dict[str, tuple[float, ...]]:
        """Return id → objectives, of those mixtures that were measured on all windows."""
        return {
            id_: objectives(self.items(id_), self.factors(id_), self.given)
            for id_ in ids
            if whole(self.items(id_), self.given)
        }

    def _before(self, number: int) -> tuple[str, ...]:
        """Return the ids of the previous generation's survivors; empty before the first."""
        return self.answers[f"ended/{self.arm}/{number - 1}"].survivors if number else ()

    def bar(self, number: int) -> StopLimit:
        """Return the `StopLimit` of a generation, set by the given model and the previous survivors."""
        config, unit_ratios = self.config, dict.fromkeys(sorted(self.given.items), 1.0)
        probed = [ratios(self.items(id_), self.given, config.probe) for id_ in self._before(number)]
        return StopLimit((unit_ratios, *probed), config.margin, config.probe)

    def wrong_scores(self, task: Scoring, event: Scored) -> str | None:
        """Return why an event does not answer the task; None if it does. For the audit."""
        if (event.arm, event.number, event.first) != (task.arm, task.number, task.first):
            return "other mixtures were measured than those that were asked for"
        if len(event.items) != task.last - task.first:
            return "it has another number of mixtures than was asked for"
        bar = self.bar(task.number)
        reasons = (self._wrong_items(bar, items) for items in event.items if items)
        return next((reason for reason in reasons if reason), None)

    def _wrong_items(self, bar: StopLimit, items: Items) -> str | None:
        """Return why a mixture's scores are impossible on these windows; None if they are valid."""
        counts = {domain: len(windows) for domain, windows in self.given.items.items()}
        least = {domain: min(bar.probe, count) for domain, count in counts.items()}
        if set(items) != set(counts):
            return "a mixture was measured on other domains than the given model"
        if any(len(items[domain]) < count for domain, count in least.items()):
            return "a mixture was measured on too few windows"
        measured = whole(items, self.given)
        if not measured and all(len(items[domain]) != count for domain, count in least.items()):
            return "a mixture was measured on another number of windows than was asked for"
        # If the probe is the whole, a mixture that is given up has no less.
        if least != counts and bar.gives_up(items, self.given) == measured:
            return "a mixture was given up, or was not, against the rule"
        return None

    # ---- what follows ----------------------------------------------------------------------

    def breed(self, number: int) -> GenerationBred:
        """Return the `generation_bred` event with the mixtures of generation `number`."""
        key, size = (self.config.seed, "experts", self.arm), self.size(number)
        if number == 0:
            first = (self.config.seed, "experts", MIXTURES if self.arm == RANDOM else self.arm)
            mixtures = techniques.first(self.space, size, self.config.scale, *first)
        elif self.arm == RANDOM:
            mixtures = [self._drawn(*key, number, slot) for slot in range(size)]
        else:
            mixtures = self._children(number, size)
        return GenerationBred(arm=self.arm, number=number, mixtures=tuple(mixtures))

    def _drawn(self, *key: str | int) -> Factors:
        """Return the factors of a mixture drawn uniformly, by key."""
        draws = Draws(*key, count=max(1, self.space.free))
        return self.space.factors([draws.uniform() for _ in range(self.space.free)])

    def _children(self, number: int, size: int) -> list[Factors]:
        """Return `size` children of the survivors, if possible all different."""
        parents = self._kept(self.points(self._before(number)))
        if not parents:
            return [self._drawn(self.config.seed, self.arm, number, slot) for slot in range(size)]
        mixtures = {self.factors(parent.id) for parent in parents}
        children: list[Factors] = []
        for slot in range(size):
            child: Factors = ()
            for attempt in range(TRIES):
                key = (self.config.seed, "experts", self.arm, number, slot, attempt)
                child = self._child(parents, Draws(*key, count=16 + 5 * self.space.free))
                if child not in mixtures:
                    break
            mixtures.add(child)
            children.append(child)
        return children

    def _child(self, parents: list[Survivor], draws: Draws) -> Factors:
        """Return a child's factors: binary tournaments, simulated crossover, polynomial mutation."""
        a, b = (self.space.point(self.factors(pareto.tournament(parents, draws))) for _ in range(2))
        return self.space.factors(pareto.polynomial(pareto.binary(a, b, draws), draws))

    def _kept(self, points: Mapping[str, tuple[float, ...]]) -> list[Survivor]:
        """Return the list of `Survivor`s, at most `population`, in order of selection.

        If no mixture beats another in every objective, crowding alone decides, and in the end the
        mixtures with the best means would be lost. So the `elite` best of them stay, at the heads of
        their fronts.
        """
        ratios_by_id = {id_: ratios(self.items(id_), self.given) for id_ in points}
        elite = set(preferred(self.config, ratios_by_id)[: self.config.elite])
        every = [
            survivor._replace(crowding=math.inf) if survivor.id in elite else survivor
            for survivor in ranked(points)
        ]
        survivors = sorted(every, key=lambda survivor: survivor.id not in elite)[
            : self.config.population
        ]
        return sorted(survivors, key=lambda survivor: (survivor.front, -survivor.crowding, survivor.id))

    def finalists(self) -> list[str]:
        """Return the ids of a finished search's candidates, the best first.

        Each differs from those before it by more than `apart` in a factor: the best of a long search
        are nearly one mixture, and fail together on other windows.
        """
        config = self.config
        points = self.points(self.survivors)
        finalist_ids: list[str] = []
        for id_ in preferred(
            config, {mixture_id: ratios(self.items(mixture_id), self.given) for mixture_id in points}
        ):
            if all(
                _differ(self.factors(id_), self.factors(finalist), config.apart)
                for finalist in finalist_ids
            ):
                finalist_ids.append(id_)
        return finalist_ids[: config.finalists]

    def end(self, number: int) -> recipes.GenerationEnded:
        """Return the `generation_ended` event of a generation that is measured."""
        ids = [f"{number}/{slot}" for slot in range(self.size(number))]
        points = self.points((*self._before(number), *ids))
        survivors = self._kept(points)
        best = [
            points[survivor.id]
            for survivor in survivors
            if survivor.front == 0 and hopeful(points[survivor.id])
        ]
        return recipes.GenerationEnded(
            arm=self.arm,
            number=number,
            survivors=tuple(survivor.id for survivor in survivors),
            front=len(best),
            hypervolume=volume(best, self.space.parts),
            stopped=sum(id_ not in points for id_ in ids),
            evaluations=sum(self.size(n) for n in range(number + 1)),
        )


def _differ(mixture: Factors, other: Factors, apart: float) -> bool:
    """Return True if two mixtures differ by more than `apart` in a factor, or if `apart` is 0."""
    return not apart or max(abs(a - b) for a, b in zip(mixture, other, strict=True)) > apart


def ranked(points: Mapping[str, tuple[float, ...]]) -> list[Survivor]:
    """Return mixtures in order of selection: those that are hopeful in every domain come first.

    Without this order, mixtures at the ends of the front, most of them useless, crowd out the rest if
    there are many objectives (Deb et al. 2002, section VI: constrained domination).
    """
    inside = {id_: point for id_, point in points.items() if hopeful(point)}
    survivors = pareto.survivors(inside)
    after = 1 + max((survivor.front for survivor in survivors), default=-1)
    rest = pareto.survivors({id_: p for id_, p in points.items() if id_ not in inside})
    return [*survivors, *(survivor._replace(front=survivor.front + after) for survivor in rest)]


def spaces(models: int, experts: tuple[str, ...]) -> Mapping[Arm, MixtureSpace]:
    """Return arm → the space that it searches; empty without parts."""
    every = MixtureSpace(models, experts)
    if not every.parts:
        return {}
    spaces_by_arm: dict[Arm, MixtureSpace] = {MIXTURES: every, RANDOM: every}
    if models and experts:
        spaces_by_arm[MODELS] = MixtureSpace(models, experts, bare=True)
    return spaces_by_arm


#: Domain → Σ −log p of its windows.
Items = Mapping[str, Sequence[float]]

#: A domain's ratio beyond which a point adds nothing to the hypervolume.
WORST = 1.05
#: Objectives that a hypervolume is computed of.
MOST = 5


def ratios(items: Items, base: Observed, windows: int | None = None) -> dict[str, float]:
    """Return domain → −log p over the given model's, on the first `windows` of both; None: on all."""
    return {
        domain: math.fsum(items[domain][:windows]) / math.fsum(base.items[domain][:windows])
        for domain in sorted(base.items)
    }


def whole(items: Items, base: Observed) -> bool:
    """Return True if a mixture was measured on all windows, with finite numbers."""
    return all(len(items.get(domain, ())) == len(losses) for domain, losses in base.items.items())


def objectives(items: Items, factors: Factors, base: Observed) -> tuple[float, ...]:
    """Return −ratio of each domain, and last −(share of parts used), of a mixture."""
    used = sum(factor != 0.0 for factor in factors) / len(factors)
    return (*(-ratio for ratio in ratios(items, base).values()), -used)


def mean(config: ExpertsConfig, shares: Mapping[str, float]) -> float:
    """Return the mean share over all domains but the neutral one."""
    domain_shares = [value for domain, value in shares.items() if domain != config.neutral]
    return math.fsum(domain_shares) / len(domain_shares)


def preferred(config: ExpertsConfig, shares_by_name: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the names of models, the best first: those within the limit of drift, by mean ratio.

    `shares_by_name` has their ratios by domain. If none is within the limit, all are sorted by their
    loss on neutral text.
    """
    lost = {name: shares.get(config.neutral, 1.0) for name, shares in shares_by_name.items()}
    within = [name for name in shares_by_name if lost[name] <= 1 + config.drift]
    if not within:
        return sorted(shares_by_name, key=lambda name: (lost[name], name))
    return sorted(within, key=lambda name: (mean(config, shares_by_name[name]), name))


def hopeful(point: Sequence[float]) -> bool:
    """Return True if a mixture's ratio is below `WORST` in every domain."""
    return min(point[:-1]) > -WORST


def volume(points: Sequence[Sequence[float]], parts: int) -> float:
    """Return the hypervolume that objectives of mixtures of `parts` parts dominate.

    With more than `MOST` objectives it is that of three: the domains' mean, the worst domain, and cost.
    """
    if points and len(points[0]) > MOST:
        points = [(math.fsum(p[:-1]) / len(p[:-1]), min(p[:-1]), p[-1]) for p in points]
    size = len(points[0]) if points else 1
    return hypervolume(points, (*[-WORST] * (size - 1), -1.0 - 1.0 / parts))


@dataclass(frozen=True)
class StopLimit:
    """A limit on a mixture's first windows, set by earlier models, at which it is given up."""

    #: For each of them: domain → −log p over the given model's.
    models: tuple[Mapping[str, float], ...]
    margin: float
    probe: int

    def gives_up(self, items: Items, base: Observed) -> bool:
        """Return True if one of the models is better by the margin in every domain."""
        shares = ratios(items, base, self.probe)
        return any(
            all(shares[domain] > value * (1 + self.margin) for domain, value in model.items())
            for model in self.models
        )
