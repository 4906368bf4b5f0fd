"""Measurements of a model across the runs of a log, with intervals where a run has the items."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from events import EventStore
from runs import kinds
from runs.errors import ForgeError
from runs.event_types import Measurement
from runs.lists import model_registry

#: Opens the state of a run by its whole name; the state may not be kept.
Opened = Callable[[str], AbstractContextManager[Any]]
#: Runs that are read for one model at most, the newest: each is folded whole.
MOST_RUNS = 50


class InRun(NamedTuple):
    """Measurements of a model in one run."""

    run: str
    kind: str
    #: True if the run made the model, False if the model was given to it.
    made: bool
    measurements: tuple[Measurement, ...]


class Across(NamedTuple):
    """Measurements of a model in the runs of a log, the newest run first."""

    runs: tuple[InRun, ...]
    #: All runs that made the model or were given it; more than `runs` if there are very many.
    total: int


def of_digest(store: EventStore, digest: str, opened: Opened) -> Across:
    """Return what runs measured of the model with these weights."""
    names = model_registry.runs_of(store, digest)
    found = [_in_run(opened, name, digest) for name in names[:MOST_RUNS]]
    return Across(tuple(one for one in found if one is not None), len(names))


def _in_run(opened: Opened, run: str, digest: str) -> InRun | None:
    """Return what a run measured of the model; None for a run that cannot be read."""
    try:
        with opened(run) as state:
            kind = kinds.of(state.kind)
            made = kind.made(state, digest) is not None
            return InRun(run, state.kind, made, tuple(kind.measurements(state, digest)))
    except ForgeError:
        return None  # of a newer version, or a fork whose past is gone: see `forge verify`
