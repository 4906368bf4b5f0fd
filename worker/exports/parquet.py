"""A run's tables as Parquet files, for notebooks and databases; written all or none."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from agent_forge.events import Envelope
from agent_forge.runs.kinds.state import State
from agent_forge.runs.lists import tables
from agent_forge.runs.system import packages
from agent_forge.weights.storage.output_folder import check_target

#: The file that marks a folder as written by this module; it names the run, the place and the head.
MARK = "tables.json"
#: Number of rows that are held in memory at a time.
BATCH = 20_000


def check(folder: Path, kind: str, run: str) -> Path:
    """Return the absolute folder if this run's tables may be written there.

    Neither torch nor pyarrow is imported. Raises UnavailableError if pyarrow is not installed, and
    the errors of `check_target`.
    """
    packages.require("writing Parquet", "pyarrow")
    return check_target(folder, lambda place: _of(place, kind, run))


def _of(place: Path, kind: str, run: str) -> bool:
    """Return True if a folder holds tables of this run and nothing else."""
    names = {MARK, *(f"{name}.parquet" for name in tables.tables(kind))}
    try:
        mark = json.loads((place / MARK).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    same_run = isinstance(mark, dict) and mark.get("run") == run
    return same_run and {path.name for path in place.iterdir()} <= names


def write(folder: Path, state: State, rows: Sequence[Envelope]) -> dict[str, int]:
    """Write every table into `folder`; return table → number of its rows.

    Earlier tables are replaced once all new ones are complete. Raises the errors of `check`.
    """
    folder = check(folder, state.kind, state.run)
    from agent_forge.weights.folders.checkpoint import publish

    counts: dict[str, int] = {}

    def fill(place: Path) -> None:
        for name in tables.tables(state.kind):
            table = tables.table(name, state, rows)
            counts[name] = _write(place / f"{name}.parquet", table, state.run)
        mark = {"run": state.run, "place": len(rows), "head": state.head, "rows": counts}
        (place / MARK).write_text(json.dumps(mark, indent=2) + "\n", "utf-8")

    publish(folder, fill)
    return counts


def _write(path: Path, table: tables.Table, run: str) -> int:
    """Write one table batch by batch; return the number of its rows."""
    import pyarrow as pa
    from pyarrow import parquet

    kinds: dict[tables.Kind, object] = {
        "int": pa.int64(),
        "float": pa.float64(),
        "text": pa.string(),
        "bool": pa.bool_(),
        "texts": pa.list_(pa.string()),
    }
    fields = [(name, kinds[kind]) for name, kind in table.columns.items()]
    schema = pa.schema(fields, metadata={"run": run})
    count = 0
    with parquet.ParquetWriter(path, schema) as writer:
        for batch in _batches(iter(table.rows)):
            writer.write_table(pa.Table.from_pylist(batch, schema=schema))
            count += len(batch)
    return count


def _batches(rows: Iterator[tables.Row]) -> Iterator[list[tables.Row]]:
    while batch := list(islice(rows, BATCH)):
        yield batch
