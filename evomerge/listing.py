"""Questions to the projections. They catch up with the log first."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select

from events import EventStore, projection
from events.projection import catch_up
from evomerge.projections import RUNS, Runs


def runs(store: EventStore, limit: int | None = None) -> tuple[list[dict[str, Any]], int]:
    """(the newest runs, the number of all). Raises ProjectionError."""
    catch_up(store, Runs())
    query = select(RUNS).order_by(RUNS.c.first.desc()).limit(limit)
    with store.database.reading() as connection:
        rows = [dict(row._mapping) for row in connection.execute(query)]
        total = connection.execute(select(func.count()).select_from(RUNS)).scalar() or 0
    return rows, total


def position(store: EventStore) -> int:
    """Where in the log the list of runs was made from, once it has caught up."""
    catch_up(store, Runs())
    return projection.position(store, Runs())


def queue(store: EventStore, limit: int | None = None) -> list[dict[str, Any]]:
    """The runs that have not ended: those with the highest priority first, then the oldest."""
    catch_up(store, Runs())
    waiting = select(RUNS).where(RUNS.c.ended.is_(None))
    query = waiting.order_by(RUNS.c.priority.desc(), RUNS.c.first).limit(limit)
    return [dict(row._mapping) for row in store.database.rows(query)]
