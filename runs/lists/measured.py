"""Measurements of a model across the runs of a log, with intervals where a run has the items."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from agent_forge.events import EventStore
from agent_forge.runs import kinds
from agent_forge.runs.errors import ForgeError
from agent_forge.runs.event_types import Measurement
from agent_forge.runs.kinds.state import State
from agent_forge.runs.lists import model_registry

#: Runs that are read for one model at most, the newest: each is folded whole.
MOST_RUNS = 50


class RunFigures(NamedTuple):
    """Measurements of a model in one run."""

    run: str
    kind: str
    #: True if the run made the model, False if the model was given to it.
    made: bool
    #: Without those that an earlier run has measured with equal results.
    measurements: tuple[Measurement, ...]
    #: Number of the measurements that are left out.
    again: int = 0


#: Returns the measurements of a run by its whole name; it may use a cached answer.
Read = Callable[[str], RunFigures]


class ModelFigures(NamedTuple):
    """Measurements of a model in the runs of a log: the run that made it, then the newest first."""

    runs: tuple[RunFigures, ...]
    #: All runs that made the model or were given it; more than `runs` if there are very many.
    total: int


def of_digest(store: EventStore, digest: str, read: Read) -> ModelFigures:
    """Return ModelFigures: by run, at most 50, what was measured of these weights, each result once."""
    names = model_registry.runs_of(store, digest)
    runs: list[RunFigures] = []
    for name in names[:MOST_RUNS]:
        with suppress(ForgeError):  # of a newer version, or a fork whose past is gone
            runs.append(read(name))
    earlier, results = set[Measurement](), list[RunFigures]()
    for run in sorted(runs, key=lambda run: not run.made):
        fresh = tuple(figure for figure in run.measurements if figure not in earlier)
        earlier.update(fresh)
        again = len(run.measurements) - len(fresh)
        results.append(run._replace(measurements=fresh, again=again))
    return ModelFigures(tuple(results), len(names))


def of_state(state: State, digest: str) -> RunFigures:
    """Return one run's measurements of the model with these weights, and if the run made it."""
    kind = kinds.of(state.kind)
    was_made = kind.models.recipe_id(state, digest) is not None
    return RunFigures(state.run, state.kind, was_made, tuple(kind.models.measurements(state, digest)))
