"""Users, limits and models are read along the chain: what does not follow counts for nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_forge.events import ChainError, EventStore, PayloadError, chain
from agent_forge.events.databases.sqlite import open_store
from agent_forge.events.projection import gaps
from agent_forge.evomerge.run.events import Paused
from agent_forge.runs.lists import model_registry as reports_model_registry
from agent_forge.worker.commands import accounts, user_limits
from agent_forge.worker.commands import model_registry as commands_model_registry
from agent_forge.worker.tasks.verify_streams import Evidence, named


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EventStore]:
    store = open_store(tmp_path / "log.db")
    yield store
    store.close()


def tamper(store: EventStore, statement: str) -> None:
    """Write to the database as somebody with its file would."""
    with store.database.writing() as connection:
        for name in ("no_update", "no_delete", "no_replace"):
            connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS events_{name}")
        connection.exec_driver_sql(statement)


def forge(store: EventStore, stream: str, fits: bool) -> None:
    """Put the newest row of a stream in again, changed, behind it; `fits`: under a hash of its own."""
    last = store.read(stream)[-1]
    data = last.data.replace("ada", "mallory").replace("2.0", "9.0")
    row = last._replace(version=last.version + 1, event_id="x", key="x", data=data, prev_hash="0" * 64)
    row = row._replace(hash=chain.link(row._asdict()) if fits else "bogus")
    columns, values = ", ".join(row._fields[1:]), tuple(row[1:])
    with store.database.appending() as cursor:
        cursor.execute(
            f"INSERT INTO events ({columns}) VALUES ({', '.join('?' * len(values))})", values
        )


@pytest.mark.parametrize("fits", [False, True])
def test_a_row_that_forge_did_not_record_makes_nobody_an_admin(store: EventStore, fits: bool) -> None:
    """Two inserted rows were an admin with a token."""
    accounts.add(store, "ada", "admin")
    before = accounts.read(store)
    forge(store, "users", fits)
    for known in (None, before):
        with pytest.raises(ChainError, match="stream users, event 2: it was changed, or not recorded"):
            accounts.read(store, known)


def test_a_changed_row_lets_nobody_in_and_says_which(store: EventStore) -> None:
    accounts.add(store, "ada", "admin")
    accounts.add(store, "bob", "viewer")
    tamper(store, "UPDATE events SET data = replace(data, 'viewer', 'admin') WHERE version = 2")
    with pytest.raises(ChainError, match="stream users, event 2"):
        accounts.read(store)


def test_a_forged_limit_counts_for_nothing_and_is_said(store: EventStore, caplog) -> None:
    """The queue goes on: one bad row must not stop everybody's runs."""
    user_limits.change(store, "ada", weight=2.0)
    forge(store, "queue", fits=True)
    with caplog.at_level(logging.ERROR):
        rules = user_limits.read(store)
    assert rules.weights == {"ada": 2.0}
    assert "stream queue, event 2" in caplog.text


@pytest.mark.parametrize("weight", [0.0, -1.0, 1e300])
def test_a_weight_that_nothing_can_be_divided_by_is_no_weight(store: EventStore, weight: float) -> None:
    """The scheduler refused it, and nothing was dispatched any more."""
    user_limits.change(store, "ada", weight=2.0)
    row = store.read("queue")[0]
    with pytest.raises(PayloadError):
        user_limits.REGISTRY.load(row._replace(data=row.data.replace("2.0", repr(weight))))


def test_a_forged_model_is_not_listed_and_the_gap_is_said(store: EventStore) -> None:
    told = {"kind": "base", "path": "/m", "bytes": 1, "parameters": 1}
    for name in ("ada", "bob"):
        digest = ("a" if name == "ada" else "b") * 64
        event = reports_model_registry.ModelRegistered(name=name, digest=digest, **told)
        commands_model_registry._append(store, event, "ada")
        if name == "ada":
            forge(store, "models", fits=True)
    assert [row["name"] for row in reports_model_registry.listed(store)[0]] == ["bob", "ada"]
    (gap,) = gaps(store.database)
    assert gap.startswith("the tables models are made without event models 2 (model_registered)")


def test_evidence_is_every_row_of_a_stream(store: EventStore) -> None:
    accounts.add(store, "ada", "admin")
    accounts.add(store, "bob", "viewer")
    tamper(store, "UPDATE events SET version = 0 WHERE version = 1")
    assert [row.version for row in store.read("users")] == [2]
    evidence = Evidence(store)
    assert [row.version for row in evidence.iterate("users")] == [0, 2]
    assert [row.version for row in evidence.iterate("users", upto=1)] == [0]
    assert [row.version for row in evidence.iterate("users", after=1)] == [2]


def test_a_target_names_a_stream_or_a_run(store: EventStore) -> None:
    from agent_forge.events import New

    store.append("else/where", 0, [New(Paused(), "x")])
    assert [named(store, t) for t in ("users", "else/where", "r", "evomerge/users")] == [
        "users",
        "else/where",
        None,
        None,
    ]
