"""Snapshots of runs that have ended without a result.

Those of cancelled runs are removed: no process continues them. Those of failed runs stay for a retry,
and are marked: they are the first to go when the cache is over its budget. A fork may continue from the
snapshots of its parent. The shared store has no budget: a failed run's snapshots stay there until the
run is retried.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from agent_forge.events import EventsError, EventStore
from agent_forge.runs import kinds
from agent_forge.runs.errors import ForgeError
from agent_forge.runs.history import repository
from agent_forge.runs.history.children import delegated
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.state import State
from agent_forge.runs.lists import queries
from agent_forge.studies.making import making, shared_snapshots
from agent_forge.weights.storage.weight_cache import ENDED, Artifacts

if TYPE_CHECKING:
    from agent_forge.weights.storage.artifact_store import Vault

log = logging.getLogger(__name__)

#: Statuses of runs that are active, or may become active.
LIVING = frozenset({"submitted", "running", "paused"})
#: Most runs that are looked at for one name: the run and its forks.
MOST = 1000


def sweep(store: EventStore, artifacts: Path) -> None:
    """Remove or mark the snapshots whose runs have all ended; leave those of unknown runs."""
    for folder, names in making.noted(artifacts):
        status_sets = [_statuses(store, name) for name in names]
        statuses = set().union(*status_sets)
        if not all(status_sets) or statuses & LIVING:
            continue
        if statuses == {"cancelled"}:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            (folder / ENDED).touch()


def _statuses(store: EventStore, run: str) -> set[str]:
    """Return the statuses of a run and its forks; empty if the log has no such run."""
    rows, _ = queries.page(store, MOST, text=run)
    return {row["status"] for row in rows if run in (row["run"], row["parent"])}


def cancelled(store: EventStore, home: Home, state: State) -> None:
    """Remove the snapshots of a run just cancelled, and of its children, here and in the shared store.

    `state` is the run's, before or after the cancellation. A failure only leads to a warning.
    """
    sweep(store, home.artifacts)
    try:
        vault = Artifacts.of(home).vault
        for run_state in (state, *_children(store, state)) if vault is not None else ():
            unshare(store, run_state, vault)
    except (ForgeError, EventsError) as error:
        log.warning("snapshots may stay in the shared store: %s", error)


def unshare(store: EventStore, state: State, vault: Vault | None) -> None:
    """Remove a run's snapshots from the shared store; leave those that a relative needs.

    A relative is a fork of the run, its parent, or another fork of the parent, if it is or may become
    active. Raises ForgeError, EventsError if a relative cannot be read.
    """
    names = kinds.of(state.kind).storage.stored(state)
    if vault is None or not names:
        return
    for run in _relatives(store, state.run):
        relative = repository.load(store, run)
        names -= kinds.of(relative.kind).storage.stored(relative)
    shared_snapshots.clear(vault, names)


def _children(store: EventStore, state: State) -> list[State]:
    """Return the states of the runs that are tasks of a run and were cancelled."""
    children = [repository.load(store, run) for run in delegated(store, state).values()]
    return [child for child in children if child.cancelled is not None]


def _relatives(store: EventStore, run: str) -> list[str]:
    """Return the names of the relatives of a run that are active, or may be after a retry."""
    rows, _ = queries.page(store, MOST, text=run)
    family = {run} | {row["parent"] for row in rows if row["run"] == run and row["parent"]}
    for name in family - {run}:
        rows += queries.page(store, MOST, text=name)[0]
    return sorted(
        {
            row["run"]
            for row in rows
            if row["run"] != run
            and family & {row["run"], row["parent"]}
            and row["status"] in LIVING | {"failed"}
        }
    )
