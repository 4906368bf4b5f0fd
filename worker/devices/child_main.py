"""The process that uses a device: `python -m worker.devices.child_main`.

Its parent sends it tasks, one at a time.

One line of JSON on stdin is a task, {"run", "task", "lease", "fence", "owner"}; one line on stdout
reports how the task ended. The line {} asks to end the task after the piece under way, as a part.
The process imports torch once and keeps sources and model between tasks.
The process ends when its parent ends. It ignores signals, which are for the parent: a terminal's
Ctrl-C, a service's SIGTERM or Slurm's SIGUSR1 must not look like a death at a task.

Its logs are JSON lines, or text for a terminal, with run, task and position as fields.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import re
import signal
import sys
import threading
import time
from functools import partial
from typing import Literal, TextIO

import structlog

from agent_forge.runs.kinds.state import State
from agent_forge.runs.system import pace
from agent_forge.runs.system.durations import duration
from agent_forge.runs.system.plain_text import visible
from agent_forge.worker.devices.reading_process import Order
from agent_forge.worker.tasks.pieces import END_SOON

log = logging.getLogger("agent_forge.worker.devices.child_main")

#: Beginning of the names of loggers whose lines are shown from the given level on.
OURS = "agent_forge.worker"
#: Runs whose sources and model are kept in memory.
WARM = 2
#: Seconds between two words on the pace of a task.
SAY = 2.0
#: Seconds without a task after which the process gives the memory of models and weights back.
REST = 300.0


def _take_over_output() -> TextIO:
    """Return a stream to the parent in place of stdout; other output goes to stderr."""
    stream = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return stream


def _listen(tasks: queue.SimpleQueue[Order]) -> None:
    """Put the tasks from stdin into the queue, note an empty order; end the process with stdin."""
    for line in sys.stdin:
        if order := json.loads(line):
            tasks.put(order)
        else:
            END_SOON.set()
    os._exit(0)


class DeviceProcess:
    """The device's process after its imports: the log, the leases, the weight cache, run states."""

    def __init__(self) -> None:
        from agent_forge.events import Cause
        from agent_forge.runs.history.run_cache import RunCache
        from agent_forge.runs.home import Home
        from agent_forge.weights.storage.weight_cache import Artifacts
        from agent_forge.weights.threads import set_threads
        from agent_forge.worker.commands import leftovers
        from agent_forge.worker.queue.leases import Leases
        from agent_forge.worker.tasks.recorder import TaskExecutor

        set_threads()
        home = Home.default()
        self._store = home.open_store()
        self._leases = Leases(self._store.database)
        self._cache = Artifacts.of(home)
        leftovers.sweep(self._store, home.artifacts)
        self._runs = RunCache(self._store, WARM)
        actor = os.environ.get("FORGE_WORKER", "worker")
        #: The task under way in words, and what its run is called, for logs.
        self._what: dict[str, str] = {}
        self._hands = TaskExecutor(self._store, self._cache, Cause(actor=actor), self._refresh, WARM)

    def offer(self) -> dict[str, object]:
        """Return the device's entry for the device table: {"memory": bytes, "profile": text}."""
        import torch

        from agent_forge.evaluation.autotune import machine_profile

        device = os.environ.get("FORGE_DEVICE", "cpu")
        if device.startswith("cuda"):
            memory = torch.cuda.mem_get_info(0)[1]
        else:
            memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return {"memory": memory, "profile": machine_profile(device).of_machine}

    def _refresh(self, run: str) -> State:
        """Return the run's state, up to date; the states of the `WARM` latest runs are kept."""
        state, rows = self._runs.refresh(run)
        self._runs.shrink()
        self._hands.keep(state, rows)
        return state

    def do(self, order: Order) -> dict[str, object]:
        """Do a task; return a JSON report: how it ended, why, its seconds, cache hits and misses."""
        from agent_forge.events import EventsError
        from agent_forge.runs.errors import ConfigError, ForgeError
        from agent_forge.weights.devices import out_of_memory

        began, hits, misses = time.monotonic(), self._cache.hits, self._cache.misses
        outcome: dict[str, object] = {"why": ""}
        self._what = {}
        try:
            self._hands.last = {}
            outcome["ended"] = self._try(order)
            outcome |= self._hands.last
        except ConfigError as error:
            ended = "failed" if order["task"] == "start" else "refused"
            outcome |= {"ended": ended, "why": str(error)}
        except (ForgeError, EventsError) as error:
            outcome |= {"ended": "refused", "why": str(error)}
        except Exception as error:  # no fault of the task: it must not count as the task's death
            why = f"{type(error).__name__}: {error}"
            if out_of_memory(error):
                why = f"out of memory: {error}"
            else:  # a defect of this program
                log.exception("task %s", order["lease"])
            outcome |= {"ended": "refused", "why": why, "stale": True}
        if outcome["ended"] == "failed" and os.environ.get("FORGE_DEVICE", "").startswith("cuda"):
            outcome["stale"] = True  # an error on the device may have broken it for this process
        outcome |= {"seconds": time.monotonic() - began, **self._what}
        outcome["hits"], outcome["misses"] = self._cache.hits - hits, self._cache.misses - misses
        return outcome

    def _try(self, order: Order) -> str:
        from agent_forge.runs.kinds import wording
        from agent_forge.runs.kinds.decide import due
        from agent_forge.runs.lists import queries

        state = self._refresh(order["run"])
        task = next((t for t in due(state).tasks if t.key == order["task"]), None)
        if task is None:
            return "late"
        words = wording.task(state.kind, task.key, wording.names(state)) or task.key
        self._what = {"what": words, "run_name": queries.name(self._store, state.run)}

        def mine() -> bool:
            return self._leases.holds(order["lease"], order["fence"], order["owner"])

        return self._hands.do(state, task, mine)

    def next_task(self, tasks: queue.SimpleQueue[Order]) -> Order:
        """Return the next task; after `REST` seconds without one, free models and weights."""
        try:
            return tasks.get(timeout=REST)
        except queue.Empty:
            self._rest()
            return tasks.get()

    def _rest(self) -> None:
        import torch

        try:
            self._hands.release()
            torch.cuda.empty_cache()
        except Exception:
            log.exception("memory is not given back")


def main() -> None:
    """Report what the device offers, then do the parent's tasks until the parent ends."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"):
        signal.signal(signal.Signals[name], signal.SIG_IGN)

    set_up("json" if os.environ.get("FORGE_LOG") == "json" else "text")
    out = _take_over_output()
    tasks: queue.SimpleQueue[Order] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(tasks,), name="listener", daemon=True).start()

    import transformers  # noqa: F401  the import takes seconds: do it before the first task
    from transformers.utils import logging

    logging.disable_progress_bar()
    child = DeviceProcess()
    out.write(json.dumps({"offer": child.offer()}) + "\n")
    while True:
        order = child.next_task(tasks)
        with pace.repeated(partial(_say, out), SAY, "pace"):
            outcome = child.do(order)
        out.write(json.dumps(outcome) + "\n")


def _say(out: TextIO) -> None:
    """Write the task's pace, if known, to the parent."""
    if words := pace.words():
        out.write(json.dumps({"pace": words}) + "\n")


#: Fields of log records beside their message.
FIELDS = ("run", "run_name", "task", "what", "candidate", "position", "ended", "seconds", "why")

#: A digest; people need its first twelve digits.
DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")


def set_up(form: Literal["json", "text"], level: int = logging.INFO) -> None:
    """Send log records to stderr: of `worker` from `level` on, of other loggers warnings."""
    shared = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(FIELDS),
        structlog.processors.TimeStamper(fmt="iso" if form == "json" else "%H:%M:%S", utc=True),
        _without_nothing,
    ]
    if form == "json":
        last = [structlog.processors.JSONRenderer(sort_keys=True)]
    else:
        colours = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        last = [
            _for_people,
            structlog.dev.ConsoleRenderer(colors=colours, pad_event_to=0, pad_level=False),
        ]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(OURS).setLevel(level)


def _without_nothing(_logger: object, _name: str, event: dict) -> dict:
    return {key: value for key, value in event.items() if value is not None}


def _for_people(_logger: object, _name: str, event: dict) -> dict:
    """Return a log record, a dict, for people: how a task ended as one sentence, digests cut short."""
    if what := event.pop("what", None):
        ended, seconds = event.pop("ended"), event.pop("seconds", 0.0)
        why = event.pop("why", "")
        name = event.pop("run_name", event["run"])
        sentence = f"{name}: {what}: {ended} in {duration(seconds)}"
        event = {
            name: value
            for name, value in event.items()
            if name not in ("run", "task", "candidate", "position")
        }
        event["event"] = f"{sentence}: {why}" if why else sentence
    return {
        name: DIGEST.sub(r"\1", visible(value))
        if name in ("event", *FIELDS) and isinstance(value, str)
        else value
        for name, value in event.items()
    }


if __name__ == "__main__":
    main()
