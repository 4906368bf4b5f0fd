"""Runs that came in an archive only as the past of a fork.

This log has the archive's rows of such a run and nothing behind them, so that another archive may
bring the rest. Such a run waits: a separate stream notes the event at which the run ends here, and
while that event is the run's newest, no worker continues the run. A user who asks something of the
run takes it over first (`imported`).
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
    #: Hash of the run's last event that came.
    head: str


def note(store: EventStore, run: str, head: str, context: Context) -> None:
    """Record that the run, if it ends at `head`, is only a past; call this before its rows come."""
    new = New(PastImported(run=run, head=head), f"{STREAM}/{run}/{head}")
    store.append(STREAM, None, [new], context)


def heads(store: EventStore) -> frozenset[str]:
    """Return the hashes of the last events of the runs that are only a past."""
    hashes = set()
    for row in store.iterate(STREAM):
        try:
            event = REGISTRY.load(row)
        except UnknownEventError:
            continue
        if isinstance(event, PastImported):
            hashes.add(event.head)
    return frozenset(hashes)
