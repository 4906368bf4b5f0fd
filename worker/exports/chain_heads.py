"""Chain heads that are stored outside of a run's own stream; they reveal a truncated log.

The run list stores each run's last event, a fork the event that it branched at, and a check of a run
(`forge verify`) the last event that it saw. SQLite stores the last position that it ever gave out.
Model cards, reports and archives carry a head.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress

from sqlalchemy import func, select, text

from agent_forge.events import Envelope, EventStore
from agent_forge.events.projection import PROJECTIONS
from agent_forge.events.store import EVENTS
from agent_forge.runs.history.audit import Anchor, Finding
from agent_forge.runs.lists import checks
from agent_forge.runs.lists.projections import RUNS
from agent_forge.runs.record.events import Forked
from agent_forge.runs.streams import run_of


def anchors(store: EventStore, run: str) -> list[Anchor]:
    """Return a list of Anchors: chain heads of a run's own stream that are stored elsewhere.

    Read them before the run's rows: the log only grows, so the rows must reach each anchor.
    """
    return [*_listed(store, run), *_forked(store, run), *_checked(store, run)]


def given(run: str, rows: Sequence[Envelope], head: str) -> Anchor:
    """Return the anchor of a chain head that the user gives.

    If no row of the run's own stream has this head, the anchor is one place beyond the end.
    """
    run_rows = [row for row in rows if run_of(row.stream) == run]
    place = next((row.version for row in run_rows if row.hash == head), len(run_rows) + 1)
    return Anchor(place, head, "the head that was given")


def _listed(store: EventStore, run: str) -> Iterator[Anchor]:
    with store.database.reading() as connection:
        if not connection.dialect.has_table(connection, RUNS.name):
            return
        query = select(RUNS.c.version, RUNS.c.head).where(RUNS.c.run == run)
        for version, head in connection.execute(query):
            yield Anchor(version, head, "the run list")


def _forked(store: EventStore, run: str) -> Iterator[Anchor]:
    query = select(EVENTS.c.data).where(
        EVENTS.c.type == Forked.type,
        text("version = 1"),
        EVENTS.c.data.contains(f'"parent":"{run}"', autoescape=True),
    )
    for (data,) in store.database.rows(query):
        with suppress(ValueError, LookupError, TypeError):  # damaged: verifying the fork reports it
            fork = json.loads(data)
            yield Anchor(int(fork["version"]), fork["head"], f"its fork {fork['run']}")


def _checked(store: EventStore, run: str) -> Iterator[Anchor]:
    """Yield the anchor of the newest check that found the run's history intact, if there is one."""
    for check in reversed(list(checks.of_run(store, run))):
        if check.event.outcome != "broken" and check.event.head:
            where = f"the check of {check.at[:16].replace('T', ' ')}"
            yield Anchor(check.event.version, check.event.head, where)
            return


def lost(store: EventStore) -> Iterator[Finding]:
    """Yield a finding if the log as a whole has lost events from its end."""
    with store.database.reading() as connection:
        ever, projected_position = store.database.last_position(connection), 0
        if connection.dialect.has_table(connection, PROJECTIONS.name):
            projected_position = (
                connection.execute(select(func.max(PROJECTIONS.c.position))).scalar() or 0
            )
        last = connection.execute(select(func.max(EVENTS.c.position))).scalar() or 0
    if last < max(ever or 0, projected_position):
        yield Finding(
            "error",
            "chain",
            f"the log's last event has position {last}, but there was one at "
            f"{max(ever or 0, projected_position)}: "
            "events are gone from its end, of this run or of others",
        )
