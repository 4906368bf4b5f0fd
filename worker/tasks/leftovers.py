"""Snapshots of runs that have ended without a result.

Those of cancelled runs are removed: no process goes on with them. Those of failed runs stay for a
retry, and are marked: they are the first to go when the cache is over its budget. A fork may go on
with the snapshots of its parent.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from events import EventStore
from runs.lists import queries
from weights.making import snapshot_notes
from weights.storage.weight_cache import ENDED

#: Statuses of runs that go on, or may.
LIVING = frozenset({"submitted", "running", "paused"})
#: Most runs that are looked at for one name: the run and its forks.
MOST = 1000


def sweep(store: EventStore, artifacts: Path) -> None:
    """Remove or mark the snapshots whose runs have all ended; leave those of unknown runs."""
    for folder, names in snapshot_notes.noted(artifacts):
        found = [_statuses(store, name) for name in names]
        statuses = set().union(*found)
        if not all(found) or statuses & LIVING:
            continue
        if statuses == {"cancelled"}:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            (folder / ENDED).touch()


def _statuses(store: EventStore, run: str) -> set[str]:
    """Return the statuses of a run and its forks; empty if the log has no such run."""
    rows, _ = queries.page(store, MOST, text=run)
    return {row["status"] for row in rows if run in (row["run"], row["parent"])}
