"""SQL of appends, built once per kind of database, for drivers called without SQLAlchemy."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

from events.envelope import Envelope

#: The columns whose values are known before a row is inserted, in the order of Envelope's fields.
COLUMNS = Envelope._fields[1:]


@cache
def insert_statement(mark: str) -> str:
    """Return the driver's statement that inserts one row; `mark` is its parameter placeholder."""
    marks = ", ".join(mark for _ in COLUMNS)
    return f"INSERT INTO events ({', '.join(COLUMNS)}) VALUES ({marks})"


@cache
def follow_statement(mark: str) -> str:
    """Return a statement that inserts a row only behind its stream's last row and with a new key.

    The last row must have the version before and the hash `prev_hash` (see `follow_parameters`).
    So the database never has to refuse the insert.
    """
    marks = ", ".join(mark for _ in COLUMNS)
    before = f"SELECT 1 FROM events WHERE stream = {mark} AND version = {mark} AND hash = {mark}"
    taken = f"SELECT 1 FROM events WHERE stream = {mark} AND version = {mark}"
    key_query = f"SELECT 1 FROM events WHERE key = {mark}"
    return f"""INSERT INTO events ({", ".join(COLUMNS)}) SELECT {marks} WHERE EXISTS ({before})
        AND NOT EXISTS ({taken}) AND NOT EXISTS ({key_query})"""


def follow_parameters(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row's values, followed by the values that `follow_statement` compares."""
    values = dict(zip(COLUMNS, row, strict=True))
    stream, version = values["stream"], values["version"]
    return (*row, stream, version - 1, values["prev_hash"], stream, version, values["key"])


@lru_cache(64)
def place_query(mark: str, keys: int) -> str:
    """Return the query for the rows of `keys` keys, and the stream's end as a row at position 0."""
    marks = ", ".join([mark] * keys) or "NULL"
    end = ("0", "''", "version", *["''"] * 2, "0", *["''"] * 3, "NULL", "NULL", *["''"] * 3, "hash")
    return f"""SELECT {", ".join(Envelope._fields)} FROM events WHERE key IN ({marks}) UNION ALL
        SELECT {", ".join(end)} FROM (SELECT version, hash FROM events WHERE stream = {mark}
        ORDER BY version DESC LIMIT 1) AS last"""
