"""Read cache of the API: the log, and folded runs as plain data in the shapes of docs/api.md.

Safe to use from several threads. A kind of run adds its own part (`Kind.view`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from itertools import islice
from typing import Any

from agent_forge.api.schemas.runs import Json
from agent_forge.events import Envelope
from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.history import repository
from agent_forge.runs.history.repository import inside
from agent_forge.runs.history.run_cache import Journals, RunCache
from agent_forge.runs.home import Home
from agent_forge.runs.kinds import wording
from agent_forge.runs.kinds.controls import CONTROLS, refusal
from agent_forge.runs.kinds.decide import pending
from agent_forge.runs.kinds.state import State
from agent_forge.runs.lists import finding
from agent_forge.runs.lists.model_registry import id_of
from agent_forge.runs.record.events import Described, Exported
from agent_forge.runs.streams import run_of
from agent_forge.worker.queue.device_table import DeviceTable
from agent_forge.worker.queue.leases import Leases
from agent_forge.worker.queue.reporting.activity import Rehearsals

#: Runs, and past states of runs, that are kept folded.
KEPT = 64


class RunReader:
    """The log as one process reads it: the store, folded runs, journals and cached views."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.store = home.open_store()
        self.runs = RunCache(self.store, KEPT, showing=True)
        self.journals = Journals(self.store, self.runs, KEPT)
        #: (run, view) → (version, the view then).
        self._views: dict[tuple[str, str], tuple[tuple[int, object], object]] = {}

    def name(self, run: str) -> str:
        """Return the id of the run of this id, name or beginning of an id. Raises NotFoundError."""
        return run if run in self.runs else finding.full_name(self.store, run)

    @contextmanager
    def state(self, run: str, at: int | None = None) -> Iterator[State]:
        """Yield a run's state now, or after `at` events; the caller may not change or keep the state.

        Raises NotFoundError, and ConfigError for a place inside of an append.
        """
        with self.runs.reading(run, at) as state:
            yield state
        for dropped in self.runs.shrink():
            self._views = {key: view for key, view in self._views.items() if key[0] != dropped}

    def events(
        self, run: str, after: int = 0, before: int | None = None, limit: int = 200
    ) -> tuple[list[tuple[int, Envelope]], int]:
        """Return ((place, row) pairs of a part of a run's history, the number of all its events).

        With `before`, the part is the last events before that place, the newest first.
        """
        with self.state(run) as state:
            total, version = state.place, state.version
        past = total - version
        if before is not None:
            end = min(max(before - 1, 0), total)
            start = max(0, end - limit)
        else:
            start, end = min(after, total), min(after + limit, total)
        placed_events: list[tuple[int, Envelope]] = []
        if start < past:  # what a fork shares with others
            rows = islice(repository.history(self.store, run), start, min(end, past))
            placed_events += enumerate(rows, start + 1)
        if end > past:
            first = max(start, past) - past
            stream = repository.named_stream(self.store, run)
            rows = self.store.iterate(stream, after=first, upto=end - past)
            placed_events += enumerate(rows, past + first + 1)
        return (placed_events[::-1] if before is not None else placed_events), total

    def seen(self, run: str, view: str, state: State, make: Any, more: object = None) -> Any:
        """Return `make(state)`, kept by run and `view` until the run's version or `more` changes.

        `more` is the version of the other things that the view shows.
        """
        entry, version = self._views.get((run, view)), (state.version, more)
        if entry is None or entry[0] != version:
            entry = self._views[run, view] = version, make(state)
        return entry[1]

    def place(self, run: str, at: int | None, upto: int | None) -> int | None:
        """Return the place `at`, or the place at the log's position `upto`; None without both.

        Raises ConfigError for both, and NotFoundError if the run had not begun at the position.
        """
        if at is not None and upto is not None:
            raise ConfigError("give `at` or `upto`, one of them: both name a moment of the past.")
        return at if upto is None else self.journals.place(run, upto)

    @cached_property
    def roster(self) -> DeviceTable:
        """The table of devices."""
        return DeviceTable(self.store.database)

    @cached_property
    def leases(self) -> Leases:
        """The table of leases."""
        return Leases(self.store.database)

    @cached_property
    def rehearsals(self) -> Rehearsals:
        """A Rehearsals, which counts the tasks of each run."""
        return Rehearsals()

    def end(self) -> int:
        """Return the position of the newest event in the log; 0 if it is empty."""
        return self.store.end()

    def close(self) -> None:
        """Close the connections to the log."""
        if "rehearsals" in self.__dict__:
            self.rehearsals.close()
        self.store.close()


#: Command that a user may give a run in some states → its event; the event's fields do not matter.
ASKED = {
    **{
        word: command.event.model_construct()
        for word, command in CONTROLS.items()
        if command.event not in (None, Described)
    },
    "export": Exported.model_construct(),
}


def run(state: State) -> Json:
    """Return a run as plain data, without the fields that depend on the time of the request."""
    submitted, started = state.submitted, state.started
    assert submitted
    kind = kinds.of(state.kind)
    waiting = pending(state)
    done, of = kind.view.progress(state)
    decision = kind.actions.decision(state)
    results = kind.results(state) if state.completed else {}
    trouble = {task: failure.attempt for task, failure in sorted(state.failures.items())}
    return {
        "run": state.run,
        "kind": state.kind,
        "status": state.status,
        "reason": _reason(state),
        "decision": asdict(decision) if decision else None,
        "owner": submitted.owner,
        "priority": state.priority,
        "labels": list(submitted.labels),
        "device": state.device,
        "place": state.place,
        "version": state.version,
        "head": state.head,
        "forked_from": _origin(state),
        "allowed": [*_allowed(state, decision is not None), "fork"],
        "config": kind.settings.shown(submitted.config),
        "warnings": list(started.warnings) if started else [],
        "pending": waiting,
        "failures": trouble,
        "quarantined": sorted(state.quarantined),
        "words": _words(state, [*waiting, *trouble, *state.quarantined]),
        "progress": {"done": done, "of": of, "unit": kind.unit},
        "lineage_digest": state.completed.lineage_digest if state.completed else None,
        "results": {role: id_of(model.digest) for role, model in results.items()},
        **kind.view.fields(state),
    }


def _allowed(state: State, undecided: bool) -> Iterator[str]:
    """Yield the words of the commands that a user may give a run; no retry if it is `undecided`."""
    for name, event in ASKED.items():
        if refusal(state, event) is None and not (undecided and name == "retry"):
            yield name


def _origin(state: State) -> Json | None:
    """Return {run, place, version} at which a fork left its parent; None if the run is no fork."""
    fork = state.forked
    place_ = state.place - state.version
    return {"run": fork.parent, "place": place_, "version": fork.version} if fork else None


def _words(state: State, keys: list[str]) -> dict[str, str]:
    """Return task key → the task in words."""
    names = wording.names(state)
    return {key: wording.next_step(state.kind, key, names) for key in keys}


def _reason(state: State) -> str | None:
    """Return why the run failed or was cancelled; None for a run that did not."""
    if state.failed:
        return state.failed.reason
    return state.cancelled.reason if state.cancelled else None


def event(row: Envelope, place_: int, names: wording.Names | None = None) -> Json:
    """Return one event as plain data, its content included; `names`: recipe id → name, for its gist."""
    data, kind = json.loads(row.data), kinds.kind_of(row.stream)
    return {
        "place": place_,
        "position": row.position,
        "run": run_of(row.stream),
        "version": row.version,
        "type": row.type,
        "inside": inside(row),
        "unit": kind.view.unit_of(row) if kind else None,
        "schema": row.schema,
        "actor": row.actor,
        "recorded_at": row.recorded_at,
        "gist": wording.summary_line(row.stream.partition("/")[0], row.type, data, names),
        "data": data,
        "key": row.key,
        "hash": row.hash,
    }
