"""Appending to the log: who acts, facts at the version they were decided at, the run list.

No torch.
"""

from __future__ import annotations

import getpass
import logging
import os

from sqlalchemy.exc import SQLAlchemyError

from events import ConcurrencyError, Context, EventsError, EventStore, New, failpoints
from events.projection import catch_up
from evomerge.reports.projections import Runs
from evomerge.run.repository import stream
from evomerge.run.state import RunState
from runs.errors import ForgeError
from runs.system.plain_text import check

log = logging.getLogger(__name__)


def actor() -> str:
    """Who is acting: FORGE_USER or the account's name."""
    try:
        return check(
            os.environ.get("FORGE_USER") or getpass.getuser(), "FORGE_USER, the user's name,"
        )
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"


def project(store: EventStore) -> None:
    """Bring the run list up to date; a failure there is no failure of the run."""
    try:
        catch_up(store, Runs())
    except (EventsError, ForgeError, SQLAlchemyError) as error:
        log.warning("the run list is not up to date: %s", error)


#: After these the run list is brought up to date; whoever reads it does so anyway.
PROJECTED = frozenset(
    {"submitted", "forked", "generation_completed", "completed", "failed", "cancelled"}
)


def append_facts(store: EventStore, state: RunState, new: list[New], context: Context) -> None:
    """Append facts at the version that they were decided at; nothing where somebody was first.

    Raises ForgeError where they are recorded already and the state does not know it: it would go on
    for ever.
    """
    failpoints.hit("facts-decided")
    try:
        done = store.append(stream(state.run), state.version, new, context)
    except ConcurrencyError:
        return  # fold and decide again
    if not done.fresh and done.rows[-1].version <= state.version:
        known = ", ".join(row.key for row in done.rows)
        raise ForgeError(f"run {state.run} cannot go on: {known} is recorded already.")
    failpoints.hit("facts-appended")
