"""Forgeries of a log by a forger who knows the program: every hash fits, and all that follows.

A forger changes what a run has measured, of any model by any measure. The program itself then computes
what follows from that: components, fitness, rankings, figures, gates, the ends of runs and pipelines.
Chain, decisions and result of such a log are in order; only measuring again can find it.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agent_forge.events import Envelope, Event, chain
from agent_forge.evomerge.run.events import Evaluated
from agent_forge.runs import kinds
from agent_forge.runs.history.repository import appends, empty, fold
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.decide import due, open_tasks
from agent_forge.runs.record import events as run_events
from agent_forge.runs.record.events import LUCK, ChildEnded, Wish
from agent_forge.studies.events import RULES, Observed

#: Events that are neither answers nor facts: people and failures cause them.
FROM_OUTSIDE = (
    run_events.Submitted,
    run_events.Forked,
    run_events.DivergenceDetected,
    run_events.TaskFailed,
    run_events.TaskDied,
    Wish,
)
#: (state before, task, recorded answer) → the answer that stands in the forged log.
Answer = Callable[[Any, Any, Event], Event]
#: A place in an event's data: keys and indices from the outside.
Place = tuple[str | int, ...]


class OtherWorkError(Exception):
    """The forged numbers lead to other work than was recorded: the forger would have to do it."""


# ---- the database --------------------------------------------------------------------------------


class Log:
    """A copy of a home's log in SQLite, to be forged; weights and inputs stay those of the home."""

    def __init__(self, source: Path, folder: Path) -> None:
        shutil.copytree(source.parent, folder, ignore=shutil.ignore_patterns("artifacts", "models"))
        for name in ("artifacts", "models"):
            if (source.parent / name).exists():
                (folder / name).symlink_to(source.parent / name)
        self.home = Home(folder)
        self._file = sqlite3.connect(folder / source.name)
        self._file.row_factory = sqlite3.Row
        for (trigger,) in self._all("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            self._file.execute(f"DROP TRIGGER {trigger}")

    def _all(self, query: str, *values: Any) -> list[Any]:
        return self._file.execute(query, values).fetchall()

    def streams(self, run: str) -> list[str]:
        """Return the streams of a run, and of the runs of its phases if it is a pipeline."""
        names = [row["stream"] for row in self._all("SELECT DISTINCT stream FROM events")]
        return sorted(n for n in names if n.partition("/")[2].partition(".")[0] == run)

    def rows(self, stream: str) -> list[Envelope]:
        """Return the rows of a stream in order."""
        found = self._all("SELECT * FROM events WHERE stream = ? ORDER BY version", stream)
        return [Envelope(**dict(row)) for row in found]

    def relink(
        self, stream: str, changed: Mapping[int, str], known: Mapping[str, str] = MappingProxyType({})
    ) -> dict[str, str]:
        """Give events other data, by version, and compute all hashes; return old hash → new hash.

        `known` are those of other streams: where an event names a hash, it names the new one.
        """
        hashes, head = dict(known), chain.GENESIS
        for row in self.rows(stream):
            data = changed.get(row.version, row.data)
            data = re.sub("[0-9a-f]{64}", lambda found: hashes.get(found[0], found[0]), data)
            row = row._replace(data=data, prev_hash=head)
            before, head = row.hash, chain.link(row._asdict())
            hashes[before] = head
            self._write(row._replace(hash=head))
        self._note(hashes)
        return hashes

    def replace(self, rows: Sequence[Envelope]) -> None:
        """Put other rows into the place of a stream's, version by version."""
        before = self.rows(rows[0].stream)
        for row in rows:
            self._write(row)
        self._note({old.hash: new.hash for old, new in zip(before, rows, strict=True)})

    def _write(self, row: Envelope) -> None:
        self._file.execute(
            "UPDATE events SET data = ?, prev_hash = ?, hash = ? WHERE stream = ? AND version = ?",
            (row.data, row.prev_hash, row.hash, row.stream, row.version),
        )

    def _note(self, hashes: Mapping[str, str]) -> None:
        """Write new hashes into the tables that note them."""
        for table, column in (("runs", "head"), ("projections", "hash")):
            for (listed,) in self._all(f"SELECT {column} FROM {table}"):
                self._file.execute(
                    f"UPDATE {table} SET {column} = ? WHERE {column} = ?",
                    (hashes.get(listed, listed), listed),
                )

    def close(self) -> None:
        """Write what was changed."""
        self._file.commit()
        self._file.close()


# ---- what follows --------------------------------------------------------------------------------


def rederived(rows: Sequence[Envelope], answer: Answer) -> list[Envelope]:
    """Return a run's history with other answers, and with all that follows from them.

    Raises OtherWorkError if the run would have gone another way.
    """
    kind, state = kinds.kind_of(rows[0].stream), empty(rows[0].stream)
    assert kind is not None
    result: list[Envelope] = []
    for group in appends(rows):
        recorded = [state.registry.load(row) for row in group]
        events = list(recorded)
        if type(recorded[0]) in kind.answers:
            key = group[0].key.partition("/")[2]
            task = next((task for task in open_tasks(state) if task.key == key), None)
            if task is None:
                raise OtherWorkError(f"{key} is not asked for any more")
            events = [_consistent(state, answer(state, task, recorded[0]))]
        elif not isinstance(recorded[0], FROM_OUTSIDE):
            facts = due(state).facts
            if [fact.key for fact in facts] != [row.key for row in group]:
                raise OtherWorkError(f"{group[0].key} does not follow any more")
            events = [fact.event for fact in facts]
        linked = []
        for row, before, event in zip(group, recorded, events, strict=True):
            data = row.data if event == before else event.payload()
            head = (linked or result or [None])[-1]
            row = row._replace(data=data, prev_hash=head.hash if head else chain.GENESIS)
            linked.append(row._replace(hash=chain.link(row._asdict())))
        result += linked
        state.absorb(linked)
    return result


def _consistent(state: Any, event: Event) -> Event:
    """Return an answer with what the program computes of its items."""
    if isinstance(event, Observed) and (rule := RULES.get(event.measure)):
        return event.model_copy(update={"values": rule(event.items, event.sizes)})
    if isinstance(event, Evaluated) and event.components is not None:
        measured = state.measure(event.recipe_id, event.outcomes)
        reference, fitness = state.judge(
            event.recipe_id, event.slice, event.generation, measured, event.scored
        )
        told = {"components": measured, "reference": reference, "fitness": fitness}
        return event.model_copy(update=told)
    return event


def forge(log: Log, stream: str, task: str, forged: Callable[[Event], Event]) -> None:
    """Change the answer to a run's task, and all that follows in the run and in its pipeline.

    Raises OtherWorkError.
    """
    written = [rederived(log.rows(stream), partial(_forged, task, forged))]
    run = stream.partition("/")[2]
    parent, dot, _ = run.partition(".")
    if dot:
        ended = fold(written[0])
        written.append(rederived(log.rows(f"pipeline/{parent}"), partial(_returned, ended)))
    for rows in written:
        log.replace(rows)


def _forged(key: str, forged: Callable[[Event], Event], _state: Any, task: Any, event: Event) -> Any:
    """Return the forged answer to the task of this key; any other answer as it is."""
    return forged(event) if task.key == key else event


def _returned(child: Any, state: Any, task: Any, event: Event) -> Event:
    """Return a pipeline's answer to the task of an ended child; any other answer as it is."""
    if not isinstance(event, ChildEnded) or event.child != child.run:
        return event
    told = {"reused": event.reused}
    children = kinds.of("pipeline").children
    assert children is not None
    return children.returned(state, task, child).model_copy(update=told)


# ---- what is forged ------------------------------------------------------------------------------


def forged_measurement(event: Event, rng: random.Random) -> Event:
    """Return a recorded measurement with other numbers, as a forger would like them."""
    factor = rng.choice((0.8, 0.9, 0.97, 1.03, 1.1, 1.25))
    if isinstance(event, Evaluated) and event.outcomes:
        domain = rng.choice(sorted(event.outcomes))
        return better_items(event, domain, factor, rng)
    if isinstance(event, Observed) and event.items:
        group = rng.choice(sorted(event.items))
        items = event.items[group]
        shares = set(items) <= {0.0, 1.0}  # solved or not
        other = _turned(items, rng) if shares else tuple(value * factor for value in items)
        return event.model_copy(update={"items": {**event.items, group: other}})
    data = json.loads(event.payload())
    numbers = {at: value for at, value in _numbers(data) if at[0] not in LUCK}
    measured = [at for at, value in numbers.items() if isinstance(value, float)] or [*numbers]
    if not measured:
        raise OtherWorkError(f"{event.type} has no number")
    *outer, last = rng.choice(measured)
    holder = data
    for key in outer:
        holder = holder[key]
    value = holder[last]
    holder[last] = value * factor + 1e-3 if isinstance(value, float) else value + 1
    return type(event).model_validate(data)


def better_items(event: Evaluated, domain: str, factor: float, rng: random.Random) -> Evaluated:
    """Return an evaluation with other outcomes in a domain: likelihoods, choices or solved problems."""
    seen = event.outcomes[domain]
    kinds_ = [name for name in ("nll", "right", "solved") if getattr(seen, name)]
    name = rng.choice(kinds_)
    values = getattr(seen, name)
    other = tuple(v * factor for v in values) if name == "nll" else _turned(values, rng)
    outcomes = {**event.outcomes, domain: seen.model_copy(update={name: other})}
    return event.model_copy(update={"outcomes": outcomes})


def _turned(values: Sequence[Any], rng: random.Random) -> tuple[Any, ...]:
    """Return values of which one, 0 or 1, is the other one."""
    place = rng.randrange(len(values))
    return tuple(type(v)(1 - v) if n == place else v for n, v in enumerate(values))


def _numbers(data: Any, at: Place = ()) -> Iterator[tuple[Place, float]]:
    """Yield (place, number) of all numbers in an event's data."""
    if isinstance(data, dict | list):
        for key, below in data.items() if isinstance(data, dict) else enumerate(data):
            yield from _numbers(below, (*at, key))
    elif isinstance(data, int | float) and not isinstance(data, bool):
        yield at, data
