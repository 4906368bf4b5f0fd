"""Runs that came in an archive only as the past of a fork.

Their rows are the archive's, with nothing behind them, so that another archive may bring the rest.
Such a run waits: a stream of its own notes the event at which it ends here, and while that is its
newest event, no worker carries it on. A user who asks something of it takes it over first
(`imported`).
"""

from __future__ import annotations

from events import Context, Event, EventStore, New, Registry, UnknownEventError

REGISTRY = Registry()

STREAM = "pasts"


@REGISTRY.event
class PastImported(Event):
    """An archive brought the beginning of a run, as the past of a fork."""

    type = "past_imported"

    run: str
    #: Hash of the last event of the run that came.
    head: str


def note(store: EventStore, run: str, head: str, context: Context) -> None:
    """Record that the run, if it ends at `head`, is a past only. To be done before its rows come."""
    new = New(PastImported(run=run, head=head), f"{STREAM}/{run}/{head}")
    store.append(STREAM, None, [new], context)


def heads(store: EventStore) -> frozenset[str]:
    """Return the hashes of events at which the history of a run ends that is a past only."""
    found = set()
    for row in store.iterate(STREAM):
        try:
            event = REGISTRY.load(row)
        except UnknownEventError:
            continue
        if isinstance(event, PastImported):
            found.add(event.head)
    return frozenset(found)
