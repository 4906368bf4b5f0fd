"""Generations as rows: one table of columns, from which every screen and file chooses. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agent_forge.events.envelope import Plain
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.state import RunState


@dataclass(frozen=True)
class ClosedGeneration:
    """A closed generation of a run."""

    state: RunState
    number: int

    @property
    def closed(self) -> events.GenerationCompleted:
        """The event that closed the generation."""
        return self.state.generations[self.number]

    def scores(self) -> list[float]:
        """Return its candidates' scores on its own draw, best first; None is left out."""
        return [score for score in self.closed.scores if score is not None]

    def champion(self) -> events.ChampionChanged | None:
        """Return the event that made the champion of the generation's end; None without one."""
        before = [c for c in self.state.champions if c.generation <= self.number]
        return before[-1] if before else None

    def components(self) -> dict[str, float]:
        """Return {component: normalised value} of the champion on selection; {} without one."""
        champion = self.champion()
        key = (champion.recipe_id, "selection", None) if champion else None
        fitness = self.state.fitness(key) if key else None
        return dict(fitness.normalised) if fitness else {}


def _mean(scores: Sequence[float]) -> float | None:
    return math.fsum(scores) / len(scores) if scores else None


#: Column → its value. Best, mean and spread are on the generation's own draw of the search slice, the
#: champion on the selection slice; evaluations, items and seconds are what the run had spent.
COLUMNS: Mapping[str, Callable[[ClosedGeneration], object]] = {
    "generation": lambda g: g.number,
    "best": lambda g: max(g.scores(), default=None),
    "mean": lambda g: _mean(g.scores()),
    "median": lambda g: statistics.median(g.scores()) if g.scores() else None,
    "champion": lambda g: c.score if (c := g.champion()) else None,
    "champion_id": lambda g: c.recipe_id if (c := g.champion()) else None,
    "diversity": lambda g: g.state.diversities[g.number].diversity,
    "level": lambda g: g.state.diversities[g.number].level,
    "spread": lambda g: statistics.stdev(g.scores()) if len(g.scores()) > 1 else None,
    "changed": lambda g: g.number in {c.generation for c in g.state.champions},
    "components": ClosedGeneration.components,
    "evaluations": lambda g: g.state.closed[g.number].evaluations,
    "items": lambda g: g.state.closed[g.number].items,
    "device_seconds": lambda g: g.state.closed[g.number].device,
    "wall_seconds": lambda g: g.state.closed[g.number].wall,
}

#: Columns of a curve, of the page, of the Parquet table.
CURVES = ("generation", "best", "mean", "champion", "champion_id", "diversity", "level")
PAGE = (*CURVES, "spread", "changed", "components")
SPENT = (*CURVES, "evaluations", "items", "device_seconds", "wall_seconds")


def row(state: RunState, number: int, columns: Sequence[str] = CURVES) -> Plain:
    """Return a closed generation's row, {column: value}, in the columns' order."""
    generation = ClosedGeneration(state, number)
    return {name: COLUMNS[name](generation) for name in columns}


def rows(state: RunState, columns: Sequence[str] = CURVES) -> list[Plain]:
    """Return the rows, {column: value}, of all closed generations, oldest first."""
    return [row(state, number, columns) for number in sorted(state.generations)]
