"""Tables of a run's log, for notebooks and `forge export --parquet`.

Pure. A table is its columns, each with its kind, and rows as dictionaries. `events` is the table that
every kind of run has; the others are its own (`Kind.tables`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agent_forge.events import Envelope
from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.kinds.state import State

Kind = Literal["int", "float", "text", "bool", "texts"]
Row = dict[str, object]


@dataclass(frozen=True)
class Table:
    """A table: column → kind, and the rows, which may be an iterator that makes them on demand."""

    columns: dict[str, Kind]
    rows: Iterable[Row]


def events(_state: State, rows: Sequence[Envelope]) -> Table:
    """Return a table, a row an event, those before a fork included; `data` is JSON, as recorded."""
    columns: dict[str, Kind] = {
        "place": "int",
        "position": "int",
        "stream": "text",
        "version": "int",
        "type": "text",
        "schema": "int",
        "recorded_at": "text",
        "actor": "text",
        "key": "text",
        "data": "text",
        "hash": "text",
    }
    names = list(columns)[1:]
    records: Iterable[Row] = (
        {"place": place, **{name: getattr(row, name) for name in names}}
        for place, row in enumerate(rows, start=1)
    )
    return Table(columns, records)


def tables(kind: str) -> Mapping[str, Callable[[State, Sequence[Envelope]], Table]]:
    """Return name → function(state, rows) of the tables of a kind of run."""
    return {**kinds.of(kind).view.tables(), "events": events}


def table(name: str, state: State, rows: Sequence[Envelope]) -> Table:
    """Return the table `name` of a run, made from its state and its rows. Raises ConfigError."""
    tables_by_name = tables(state.kind)
    if name not in tables_by_name:
        raise ConfigError(f"there is no table {name!r}: there are {', '.join(tables_by_name)}.")
    return tables_by_name[name](state, rows)
