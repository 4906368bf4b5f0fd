"""Invented worlds whose best merge is known, to test searches without models.

A model's ability is a function of its weights on the sources' task vectors, group by group:

    θ_d(W) = Σ_g c_g · (1 − Σ_s h_s (W_gs − W*_gs)²/3) · gain_d − ripples

θ_d is the ability in a domain; W* is the best sum of task vectors. Items have difficulties b
(Rasch's model). A question is right with probability σ(θ − b), by a number drawn for this model and
this item. A window's nats a token are b − θ/4 with little noise. The effect of a merging technique
on W is modelled: dropping adds noise that grows with p / (1 − p). Trimming reduces strength and, if
sources interfere, some of the interference. Three landscapes:

    smooth      windows; all groups have the same best weights: finding λ is most of the task
    choices     questions only (noisy); every group has best weights of its own
    crossed     windows and questions; sources interfere unless trimmed, and ripples mislead
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from agent_forge.evaluation.data.outcomes import DomainOutcomes, Draws, Outcomes, Pool
from agent_forge.evaluation.data.slices import SLICES, Slice
from agent_forge.evomerge.recipes import tensor_groups
from agent_forge.evomerge.recipes.recipe import Flow, Grouped, Merge, Mutate, Pipeline, Recipe, Source
from agent_forge.evomerge.run import events
from agent_forge.evomerge.search.strategy import SourceFamily
from agent_forge.runs import keys
from agent_forge.weights.cost import Cost

DEPTHS, BLOCKS, COUNT = 4, 12, 3
GROUPS = tensor_groups.count(DEPTHS)
DOMAINS = ("a", "b", "c")
NAMES = ("base", "one", "two", "three")
SOURCES = tuple(Source(digest=keys.key("landscape", n).to_bytes(16, "big").hex() * 2) for n in NAMES)
#: Tokens in a window.
TOKENS = 100


@dataclass(frozen=True)
class Effect:
    """Effect of a recipe: weights on task vectors by group [GROUPS, COUNT], noise and trimming."""

    weights: NDArray[np.float64]
    noise: float = 0.0
    trimmed: float = 0.0


@dataclass
class Landscape:
    """One of the three landscapes, with an optimum of its own for every seed."""

    name: str
    seed: int = 0
    _effects: dict[str, Effect] = field(default_factory=dict)

    @property
    def family(self) -> SourceFamily:
        """Base and three sources."""
        return SourceFamily(tuple(s.id for s in SOURCES[1:]), SOURCES[0].id, BLOCKS)

    @property
    def settings(self) -> dict[str, object]:
        """Sizes of draws and weights of the fitness."""
        accuracy = {"smooth": 0.0, "choices": 1.0, "crossed": 0.5}[self.name]
        weights = {"perplexity": 1.0 - accuracy, "accuracy": accuracy, "speed": 0.0, "memory": 0.0}
        windows = 1 if self.name == "choices" else 12
        return {
            "search_windows": windows,
            "search_questions": 0 if self.name == "smooth" else 16,
            "search_problems": 0,
            "fitness_weights": weights,
        }

    @property
    def pools(self) -> dict[Slice, dict[str, Pool]]:
        """Slice → domain → pool of items."""
        sizes = {"train": (8, 0), "search": (36, 48), "selection": (24, 32), "test": (400, 1500)}
        found: dict[Slice, dict[str, Pool]] = {}
        for slice_ in SLICES:
            windows, questions = sizes[slice_]
            pool = Pool(
                windows=1 if self.name == "choices" else windows,
                questions=0 if self.name == "smooth" else questions,
            )
            found[slice_] = dict.fromkeys(DOMAINS, pool)
        return found

    @property
    def started(self) -> events.Started:
        """The event of a run's start."""
        return self._started

    @cached_property
    def _started(self) -> events.Started:
        records = [
            events.SourceRecord(
                name=n, recipe_id=s.id, digest=s.digest, parameters=1, sketch=self.sketch(s, {})
            )
            for n, s in zip(NAMES, SOURCES, strict=True)
        ]
        words = ("device", "dtype", "attention", "machine", "torch", "transformers", "numpy")
        return events.Started.model_validate(
            {
                "sources": records[1:],
                "base": records[0],
                "tied": True,
                "blocks": BLOCKS,
                "cost": Cost(flops_per_token=1.0, bytes=1.0),
                "context": TOKENS,
                "data_digest": "0" * 64,
                "pools": self.pools,
                "warnings": (),
                "strategy": "elite-loser@1",
                "profile": {**dict.fromkeys(words, "x"), "threads": 1, "batch_tokens": 1},
            }
        )

    # ---- the truth ------------------------------------------------------------------------

    @cached_property
    def best(self) -> NDArray[np.float64]:
        """The weights of the best sum of task vectors, [GROUPS, COUNT]."""
        rng = keys.generator("landscape", self.name, self.seed)
        common = rng.uniform(0.35, 0.75, COUNT)
        own = {"smooth": 0.0, "choices": 0.25, "crossed": 0.15}[self.name]
        return common + own * rng.uniform(-1, 1, (GROUPS, COUNT))

    @property
    def optimum(self) -> Grouped:
        """The best sum of task vectors as a recipe."""
        params = tuple({"weights": [float(w) for w in row]} for row in self.best)
        return Grouped(
            method="task_arithmetic",
            inputs=self.family.sources,
            base=self.family.base,
            depths=DEPTHS,
            params=params,
        )

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """Share of each group in the ability, [GROUPS]."""
        rng = keys.generator("landscape", "shares", self.name, self.seed)
        drawn = rng.uniform(0.3, 1.0, GROUPS)
        return drawn / drawn.sum()

    def abilities(self, effect: Effect) -> dict[str, float]:
        """Return domain → ability; each domain depends most on one source's weights."""
        away = (effect.weights - self.best) ** 2
        found = {}
        for d, domain in enumerate(DOMAINS):
            steep = np.array([2.2 if s == d else 1.1 for s in range(COUNT)])
            loss = float((self.shares * (away @ steep)).sum())
            if self.name == "crossed":
                pairs = effect.weights.prod(axis=1)
                loss += (1 - effect.trimmed) * 0.6 * float((self.shares * np.abs(pairs)).sum())
                loss += 0.02 * float((1 - np.cos(9 * (effect.weights - self.best))).mean())
            found[domain] = 3.0 * (1 - loss - effect.noise)
        return found

    def outcomes(
        self, recipe: Recipe, known: Mapping[str, Recipe], draws: Draws, slice_: Slice
    ) -> Outcomes:
        """Return the outcomes of a recipe's model on these items."""
        able = self.abilities(self.effect(recipe, known))
        return {d: self._domain(recipe.id, d, able[d], draw, slice_) for d, draw in draws.items()}

    def _domain(self, id_: str, domain: str, able: float, draw, slice_: Slice) -> DomainOutcomes:
        pool = self.pools[slice_][domain]
        items = keys.generator("items", self.name, self.seed, slice_, domain)
        hard, hard2 = items.normal(1.0, 0.3, pool.windows), items.normal(1.0, 1.2, pool.questions)
        luck = keys.generator("luck", self.seed, id_, slice_, domain)
        loud, drawn = luck.normal(0, 0.01, pool.windows), luck.uniform(0, 1, pool.questions)
        windows, questions = np.array(draw.windows, int), np.array(draw.questions, int)
        rates = (3.0 + hard - able / 4 + loud)[windows]
        chances = 0.25 + 0.75 / (1 + np.exp(-(able - hard2[questions])))
        count = len(windows)
        return DomainOutcomes(
            nll=tuple(float(r) for r in TOKENS * rates),
            tokens=(TOKENS,) * count,
            hits=(0,) * count,
            bytes=(3 * TOKENS,) * count,
            right=tuple(int(r) for r in drawn[questions] < chances),
            chance=(0.25,) * len(questions),
        )

    # ---- effects of recipes ---------------------------------------------------------------

    def effect(self, recipe: Recipe, known: Mapping[str, Recipe]) -> Effect:
        """Return the effect of a recipe; computed once."""
        id_ = recipe.id
        if id_ not in self._effects:
            self._effects[id_] = self._effect(recipe, known)
        return self._effects[id_]

    def _effect(self, recipe: Recipe, known: Mapping[str, Recipe]) -> Effect:
        if isinstance(recipe, Source):
            place = [s.id for s in SOURCES].index(recipe.id)
            row = [1.0 if place == k + 1 else 0.0 for k in range(COUNT)]
            return Effect(np.tile(row, (GROUPS, 1)))
        if isinstance(recipe, Mutate):
            below = self.effect(recipe.pipeline or known[recipe.parent], known)
            noise = recipe.noise.sigma**2 * 0.05 if recipe.noise else 0.0
            return Effect(below.weights, below.noise + noise, below.trimmed)
        if isinstance(recipe, Flow):
            raise TypeError("the invented landscapes have no layers to take a path through")
        inputs = [self.effect(known[i], known) for i in recipe.inputs]
        rows = [_turned(recipe, g) for g in range(GROUPS)]
        weights = np.array(
            [
                sum(w * e.weights[g] for w, e in zip(row[0], inputs, strict=True))
                for g, row in enumerate(rows)
            ]
        )
        noise = float(np.mean([row[1] for row in rows])) + 0.5 * max(e.noise for e in inputs)
        trimmed = float(np.mean([row[2] for row in rows]))
        if isinstance(recipe, Pipeline) and recipe.genes.layers:
            for block, choice in enumerate(recipe.genes.layers):
                if choice:
                    first = 3 * (block * DEPTHS // BLOCKS)
                    share = DEPTHS / BLOCKS
                    weights[first : first + 3] += share * (
                        inputs[choice - 1].weights[first : first + 3] - weights[first : first + 3]
                    )
        return Effect(weights, noise, max(trimmed, max(e.trimmed for e in inputs) / 2))

    def sketch(self, recipe: Recipe, known: Mapping[str, Recipe]) -> str:
        """Return the weights themselves as the sketch: base64 of little-endian float32."""
        zero = recipe.id == SOURCES[0].id
        flat = np.zeros(GROUPS * COUNT) if zero else self.effect(recipe, known).weights.ravel()
        return base64.b64encode(flat.astype("<f4").tobytes()).decode()

    def gains(self, recipe: Recipe, known: Mapping[str, Recipe]) -> tuple[tuple[float, ...], ...]:
        """Return [block][input]: nats a token by which the input's block is better."""
        assert isinstance(recipe, Pipeline)
        own = self._mean(self.effect(recipe, known))
        table = []
        for block in range(BLOCKS):
            row = []
            for choice in range(len(recipe.inputs)):
                layers = tuple(choice + 1 if b == block else 0 for b in range(BLOCKS))
                genes = recipe.genes.model_copy(update={"layers": layers})
                swapped = recipe.model_copy(update={"genes": genes})
                row.append((self._mean(self.effect(swapped, known)) - own) / 4)
            table.append(tuple(row))
        return tuple(table)

    def _mean(self, effect: Effect) -> float:
        able = self.abilities(effect)
        return math.fsum(able.values()) / len(able)


def _turned(recipe: Merge | Pipeline | Grouped, group: int) -> tuple[list[float], float, float]:
    """Return (weights of the inputs, noise, trimming) of a recipe in one group."""
    count = len(recipe.inputs)
    if isinstance(recipe, Pipeline):
        given = {**recipe.genes.model_dump(), "name": recipe.name}
        technique = "stages"
    elif isinstance(recipe, Grouped):
        depths = recipe.depths
        place = tensor_groups.nearest(group, DEPTHS, depths)
        given, technique = dict(recipe.params[place]), recipe.method
        given = {**given["genes"], "name": given["name"]} if technique == "stages" else given
    else:
        given, technique = dict(recipe.params), recipe.method
    weights = list(given.get("weights") or [1.0] * count)
    scale, name = float(given.get("scale") or 1.0), str(given.get("name", technique))
    total = sum(map(abs, weights)) or 1.0
    density, drop = float(given.get("density", 1.0)), float(np.mean(given.get("drop", 0.0)))
    noise = 0.01 * drop / (1 - drop) if "dare" in name else 0.0
    trimmed = 1 - density if "ties" in name or given.get("vote") else 0.0
    if "slerp" in name:
        weights, left = [], 1.0
        ts = given.get("ts") or [1 / (k + 1) for k in range(1, count)]
        for t in reversed(list(ts)):
            weights.insert(0, left * t)
            left *= 1 - t
        weights.insert(0, left)
    elif name in ("linear", "stages") or name.startswith("linear"):
        weights = [w / total for w in weights]
    elif given.get("normalise", technique == "dare"):
        shares = [w / total for w in weights]
        kept = 1.0 - max(drop, 1 - density)
        weights = [s + (1 - s) * (1 - kept) * 0.5 for s in shares] if trimmed else shares
    if "ties" in name and technique != "dare":
        weights = [w * (1 - (1 - density) ** 2) for w in weights]
    return [scale * w for w in weights], noise, trimmed
