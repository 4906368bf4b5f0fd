"""A flipped bit in any column of any row is found by `forge verify` itself.

Bits are flipped in the pages of SQLite's table, not in indices: an index answers some queries alone.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agent_forge.cli import verify as verify
from agent_forge.cli.main import forge
from agent_forge.events import EventsError
from agent_forge.events.envelope import Envelope
from agent_forge.runs.home import Home

STREAM = "toy/r"


def rows(file: Path) -> list[dict[str, Any]]:
    """The rows of the log, with raw bytes for texts."""
    with closing(sqlite3.connect(file)) as connection:
        connection.text_factory = bytes
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute("SELECT * FROM events ORDER BY position")]


def varint(data: bytes, place: int) -> tuple[int, int]:
    """A number of SQLite's file format, and the place after it."""
    value = 0
    for step in range(9):
        value = value << 7 | data[place + step] & 0x7F
        if data[place + step] < 0x80:
            return value, place + step + 1
    raise AssertionError("a longer number than rows of a test have")


def columns(data: bytes, row: dict[str, Any]) -> dict[str, int]:
    """Column, and its type → the place of the first byte in the table's page.

    NULL, 0 and 1 have a type only. https://www.sqlite.org/fileformat.html, "Record Format": a cell is
    the bytes of the record, the rowid, and the record: bytes of its header, all types, all columns.
    """
    start = data.find(row["stream"], 0)
    while start >= 0:  # a table's record has the event's id behind stream and version
        after = start + len(row["stream"])
        if row["event_id"] in data[after : after + len(row["event_id"]) + 8]:
            break
        start = data.find(row["stream"], start + 1)
    body = start
    for header in range(10, 60):
        size, place = varint(data, body - header)
        types, starts = [], []
        while size == header and place < body:
            starts.append(place)
            type_, place = varint(data, place)
            types.append(type_)
        if len(types) == len(Envelope._fields) and place == body and types[0] == 0:
            break
    else:
        raise AssertionError("the row is not found in the file")
    found, place = {"position": body - header - 1}, body
    found |= {f"type of {name}": at for name, at in zip(Envelope._fields, starts, strict=True)}
    for name, type_ in zip(Envelope._fields, types, strict=True):
        wide = {5: 6, 6: 8}.get(type_, type_) if type_ < 7 else (type_ - 12) // 2 if type_ > 11 else 0
        if wide:
            found[name] = place
        place += wide
    return found


def findings(home: Home) -> list[str]:
    """What `forge verify r` says is wrong."""
    try:
        report = verify.stream(STREAM, None, exactly=True)
    except EventsError as error:
        return [str(error)]
    return [one.message for one in report["findings"] if one.level != "note"]


@pytest.fixture
def place(ended: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home with a finished run, which `forge verify` finds by the environment."""
    monkeypatch.setenv("FORGE_HOME", str(ended.folder))
    monkeypatch.setenv("FORGE_DATABASE_URL", "")
    return ended


def test_a_flipped_bit_in_any_column_is_found(place: Home) -> None:
    file = place.database
    honest, every = file.read_bytes(), rows(file)
    assert findings(place) == []
    tried: dict[str, int] = {}
    for row in (every[0], every[len(every) // 2], every[-1]):
        for name, at in columns(honest, row).items():
            for bit in (0x01, 0x80):  # another letter; no UTF-8 any more, or a number's sign
                if bit == 0x80 and (name == "position" or name.startswith("type")):
                    continue  # a varint of another length: all that follows is something else
                forged = bytearray(honest)
                forged[at] ^= bit
                file.write_bytes(forged)
                assert findings(place) != [], (name, row["version"], bit)
                tried[name] = tried.get(name, 0) + 1
    empty = {"causation", "correlation", "schema"}  # NULL, and 1
    assert set(tried) >= set(Envelope._fields) - empty
    assert {f"type of {name}" for name in empty} <= set(tried)


def test_another_stream_in_the_table_alone_is_named(place: Home) -> None:
    """SQLite answers `where stream = …` from an index: the row seemed to be in its place."""
    file = place.database
    data, row = bytearray(file.read_bytes()), rows(file)[3]
    at = columns(bytes(data), row)["stream"] + len("to")
    data[at] ^= 0x01
    file.write_bytes(data)
    for words in (["verify", "r"], ["verify", "--all"]):
        told = CliRunner().invoke(forge, words)
        assert told.exit_code == 1, told.output
        assert "event 4 of stream toy/r stands under the name 'tox/r' in the table" in told.output


def test_a_bit_of_a_stream_of_no_run_is_found(place: Home) -> None:
    """Of users, say."""
    env = {"FORGE_HOME": str(place.folder)}
    assert CliRunner(env=env).invoke(forge, ["users", "add", "ada", "--role", "admin"]).exit_code == 0
    row = rows(place.database)[-1]
    assert row["stream"] == b"users"
    data = bytearray(place.database.read_bytes())
    data[columns(bytes(data), row)["stream"]] ^= 0x01
    place.database.write_bytes(data)
    told = CliRunner(env=env).invoke(forge, ["verify", "users"])
    assert told.exit_code == 1
    assert "stands under the name 'tsers'" in told.output
