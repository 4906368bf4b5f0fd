"""`forge export --parquet`: the tables as files, whole or not at all."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_forge.evomerge.run.state import fold
from agent_forge.runs.errors import UnavailableError
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home
from agent_forge.runs.lists import tables
from agent_forge.runs.system import packages
from agent_forge.worker.exports import parquet
from testing.worlds import fake_runs
from tests.integration.cli.test_forge import call, fails, succeeds


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A home with a finished run r and one, s, that has a generation."""
    with closing(Home(tmp_path).open_store()) as store:
        fake_runs.whole(store, "r")
        fake_runs.submit(store, "s")
        fake_runs.finish(store, "s", lambda state: len(state.generations) == 1)
    return tmp_path


def rows(home: Path, run: str) -> list[Any]:
    """A run's log."""
    with closing(Home(home).open_store()) as store:
        return list(repository.history(store, run))


def read(path: Path) -> list[dict[str, Any]]:
    """A file's rows, by pyarrow."""
    from pyarrow import parquet as files

    return files.read_table(path).to_pylist()


@pytest.mark.parametrize("run", ["r", "s"])
def test_the_files_hold_the_tables(place: Path, tmp_path: Path, run: str) -> None:
    """Every table, every value; also of a run that has not ended."""
    told = json.loads(call(place, "export", run, "--parquet", str(tmp_path / "t"), "--json").stdout)
    recorded = rows(place, run)
    for name in tables.tables("evomerge"):
        expected = list(tables.table(name, fold(recorded), recorded).rows)
        assert read(tmp_path / "t" / f"{name}.parquet") == expected
        assert told["rows"][name] == len(expected)
    mark = json.loads((tmp_path / "t" / "tables.json").read_text())
    assert (mark["run"], mark["head"]) == (run, recorded[-1].hash)
    events = read(tmp_path / "t" / "events.parquet")
    assert [row["data"] for row in events] == [row.data for row in recorded]


def test_many_rows_are_written_in_pieces(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "BATCH", 7)
    recorded = rows(place, "r")
    state = fold(recorded)
    counts = parquet.write(tmp_path / "t", state, recorded)
    assert counts["items"] > 7
    expected = list(tables.table("items", state, recorded).rows)
    assert read(tmp_path / "t" / "items.parquet") == expected


def test_tables_of_the_same_run_are_replaced(place: Path, tmp_path: Path) -> None:
    """A run that lives has more each time."""
    target = tmp_path / "t"
    call(place, "export", "s", "--parquet", str(target))
    assert len(read(target / "generations.parquet")) == 1
    with closing(Home(place).open_store()) as store:
        fake_runs.finish(store, "s")
    said = succeeds(place, "export", "s", "--parquet", str(target))
    assert "3 generations" in said.stdout
    assert len(read(target / "generations.parquet")) == 3
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".t")]


def test_what_else_is_there_is_left_alone(place: Path, tmp_path: Path) -> None:
    """Another run's tables, a file beside them, anything."""
    target = tmp_path / "t"
    call(place, "export", "s", "--parquet", str(target))
    assert "holds other things" in fails(place, 6, "export", "r", "--parquet", str(target))
    (target / "notes.txt").write_text("mine")
    assert "holds other things" in fails(place, 6, "export", "s", "--parquet", str(target))
    assert (target / "notes.txt").read_text() == "mine"
    assert len(read(target / "generations.parquet")) == 1


def test_half_an_export_is_none(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was there stays until the new tables are whole."""
    target, recorded = tmp_path / "t", rows(place, "s")
    parquet.write(target, fold(recorded), recorded)
    before = (target / "events.parquet").read_bytes()

    def broken(state: Any, rows: Any) -> tables.Table:
        raise RuntimeError("broken")

    monkeypatch.setattr(tables, "events", broken)
    with pytest.raises(RuntimeError):
        parquet.write(target, fold(recorded), recorded)
    assert (target / "events.parquet").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir() if "part" in p.name] == []


def test_without_pyarrow_it_says_what_to_install(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match=r"pip install 'pyarrow>=17'"):
        parquet.check(tmp_path / "t", "evomerge", "r")


def test_an_export_of_nothing_is_refused(place: Path) -> None:
    assert "--parquet DIR" in fails(place, 2, "export", "r")
