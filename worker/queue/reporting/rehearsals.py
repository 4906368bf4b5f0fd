"""Task counts of runs, computed in the background; a run's progress is measured by them."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor

from agent_forge.runs import kinds
from agent_forge.runs.kinds.state import State

log = logging.getLogger(__name__)

#: Runs whose count is kept.
KEPT = 64


class Rehearsals:
    """A cache of each run's task count, computed once in a thread of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Future[object]] = OrderedDict()
        self._thread = ThreadPoolExecutor(1, "rehearsal")

    def of(self, state: State) -> object:
        """Return the run's task count; None while it is computed, from now on, or if it is unknown."""
        kind = kinds.of(state.kind)
        if not kind.view.rehearsable(state):
            return None
        with self._lock:
            future = self._known.pop(state.run, None)
            if future is None:
                # The rehearsal reads what never changes again once a run has started.
                future = self._thread.submit(kind.view.rehearse, _frozen(state))
            self._known[state.run] = future
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        if not future.done():
            return None
        if error := future.exception():
            log.warning("run %s cannot be rehearsed: %s", state.run, error)
            return None
        return future.result()

    def close(self, wait: bool = False) -> None:
        """End the thread; with `wait` after the counts that were begun."""
        self._thread.shutdown(wait=wait, cancel_futures=not wait)


def _frozen(state: State) -> State:
    return type(state)(run=state.run, submitted=state.submitted, started=state.started)
