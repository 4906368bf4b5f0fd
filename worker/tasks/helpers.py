"""Processes that carry out a run beside the terminal's own, each with its share of the cores.

    python -m worker.tasks.helpers RUN     works on RUN until it has ended, or until stdin ends

Any of them may be killed: the others do its tasks.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from agent_forge.events import EventsError
from agent_forge.runs.errors import ForgeError
from agent_forge.runs.home import Home, threads
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.tasks.runner import WorkerProcess

log = logging.getLogger(__name__)

#: Seconds that a helper may take to end after its run has ended or stopped here; then it is killed.
PATIENCE = 10.0


@contextmanager
def beside(home: Home, run: str, count: int) -> Iterator[None]:
    """Wrap a block: `count` further processes carry out the run meanwhile. Raises ConfigError."""
    places = {"FORGE_HOME": str(home.folder), "FORGE_DATABASE_URL": home.url or ""}
    share = {"FORGE_THREADS": str(threads())} if count else {}
    command = [sys.executable, "-m", "agent_forge.worker.tasks.helpers", run]
    helpers: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            helper = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env={**os.environ, **places, **share},
                start_new_session=True,  # Ctrl-C is the terminal's: stdin ends for them then
            )
            helpers.append(helper)
        yield
    finally:
        _end(helpers)


def _end(helpers: Sequence[subprocess.Popen[bytes]]) -> None:
    """Let helpers end after their current tasks; kill those that take longer than `PATIENCE`."""
    for helper in helpers:
        assert helper.stdin is not None
        helper.stdin.close()
    until = time.monotonic() + PATIENCE
    for helper in helpers:
        try:
            helper.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            helper.kill()
            helper.wait()


def main() -> int:
    """Carry out a run until it has ended; return 0, or 1 if this process cannot."""
    home, stopped = Home.default(), threading.Event()

    def listen() -> None:
        sys.stdin.read()
        stopped.set()

    threading.Thread(target=listen, daemon=True).start()
    try:
        with closing(home.open_store()) as store:
            WorkerProcess(store, Artifacts.of(home), stop=stopped.is_set).run(sys.argv[1])
    except (ForgeError, EventsError) as error:  # the process at the terminal says what is wrong
        log.debug("a helper of run %s ends", sys.argv[1], exc_info=error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
