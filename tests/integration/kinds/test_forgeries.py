"""Forged histories of a toy run: each is found by `forge verify`, and no import takes it in.

The forger knows the program and computes every hash again, so that the chain holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agent_forge.cli.main import forge
from agent_forge.events import ArchiveError, Envelope, archive, canonical_json, chain
from agent_forge.runs.history.audit import Anchor, audit
from agent_forge.runs.home import Home
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.exports import archive as run_archive
from testing.toy import toy_runs
from testing.toy.toy_state import digest_of

Rows = list[Envelope]
Forge = Callable[[Rows], Rows]


def relinked(rows: Sequence[Envelope]) -> Rows:
    """Return the rows with versions and hashes made to fit again."""
    result: Rows = []
    for number, row in enumerate(rows, start=1):
        head = result[-1].hash if result else chain.GENESIS
        row = row._replace(version=number, position=number, prev_hash=head)
        result.append(row._replace(hash=chain.link(row._asdict())))
    return result


def at(rows: Rows, type_: str, nth: int = 0) -> int:
    """Return the index of the nth event of a type."""
    return [i for i, row in enumerate(rows) if row.type == type_][nth]


def edit(type_: str, nth: int = 0, **changes: Any) -> Forge:
    """Return a forgery: other data in one event."""

    def forged(rows: Rows) -> Rows:
        place = at(rows, type_, nth)
        data = {**json.loads(rows[place].data), **changes}
        rows[place] = rows[place]._replace(data=canonical_json(data))
        return rows

    return forged


def insert(after: str, type_: str, key: str, nth: int = 0, **data: Any) -> Forge:
    """Return a forgery: an invented event after the nth event of a type."""

    def forged(rows: Rows) -> Rows:
        place = at(rows, after, nth)
        told = {
            "type": type_,
            "schema": 1,
            "data": canonical_json(data),
            "key": f"r/{key}",
            "event_id": digest_of(place)[:32],
            "causation": None,
        }
        return [*rows[: place + 1], rows[place]._replace(**told), *rows[place + 1 :]]

    return forged


def drop(type_: str, nth: int = 0) -> Forge:
    """Return a forgery: one event less."""
    return lambda rows: [row for i, row in enumerate(rows) if i != at(rows, type_, nth)]


def replace(type_: str, **fields: Any) -> Forge:
    """Return a forgery: other fields around the data of the first event of a type."""

    def forged(rows: Rows) -> Rows:
        place = at(rows, type_)
        rows[place] = rows[place]._replace(**fields)
        return rows

    return forged


def swap(one: tuple[str, int], other: tuple[str, int]) -> Forge:
    """Return a forgery: two events in the other order."""

    def forged(rows: Rows) -> Rows:
        a, b = at(rows, *one), at(rows, *other)
        rows[a], rows[b] = rows[b], rows[a]
        return rows

    return forged


def other_seed(rows: Rows) -> Rows:
    """Other settings in `submitted`: everything else stays."""
    place = at(rows, "submitted")
    data = json.loads(rows[place].data)
    data["config"]["seed"] = 1
    rows[place] = rows[place]._replace(data=canonical_json(data))
    return rows


def counted(step: int, slot: int, value: int) -> dict[str, Any]:
    """Return the data of an invented result."""
    told = {"step": step, "slot": slot, "value": value}
    return {**told, "digest": digest_of(value), "seconds": 0.0}


#: Name → the forgery, and a part of what the audit says.
FORGERIES: dict[str, tuple[Forge, str]] = {
    "a changed result": (
        edit("counted", 1, value=7, digest=digest_of(7)),
        "step_completed does not say",
    ),
    "a result that is not of its digest": (
        edit("counted", value=7),
        "the digest is not that of the value",
    ),
    "a missing result": (drop("counted", 2), "step_completed does not follow"),
    "a result that no open task asked for": (
        insert("counted", "counted", "count/5/0", **counted(5, 0, 7)),
        "counted answers task count/5/0, which the events before do not ask for",
    ),
    "a second result of a task": (
        insert("counted", "counted", "count/0/0", **counted(0, 0, 7)),
        "do not ask for",
    ),
    "a result under the key of another task": (
        insert("step_completed", "counted", "count/1/0", **counted(1, 2, 7)),
        "another slot was counted",
    ),
    "a result before the start": (swap(("started", 0), ("counted", 0)), "do not ask for"),
    "a step closed before its last result": (
        swap(("step_completed", 0), ("counted", 2)),
        "step_completed does not follow",
    ),
    "a wrong total of a step": (edit("step_completed", total=1), "step_completed does not say"),
    "a wrong result at the end": (
        edit("completed", total=1, digest=digest_of(1)),
        "the total is not that of the steps",
    ),
    "a wrong lineage digest": (
        edit("completed", lineage_digest="0" * 64),
        "the lineage digest is not that of the events",
    ),
    "a wrong chain head": (
        edit("completed", chain_head="0" * 64),
        "the chain head is not the event before's hash",
    ),
    "other settings": (other_seed, "the lineage digest is not that of the events"),
    "a cause that an answer cannot have": (
        replace("counted", causation="0" * 32),
        "is appended together with|names a cause",
    ),
    "a result under another key": (replace("counted", key="r/count/9/9"), "do not ask for"),
    "an event of another run": (replace("counted", key="other/count/0/0"), "is recorded under"),
    "an end without a reason": (
        insert("counted", "failed", "failed", reason="I say so"),
        "failed does not follow",
    ),
    "a failure that is not the first": (
        insert("started", "task_failed", "count/0/0/failed/2", task="count/0/0", attempt=2, error=""),
        r"failed for the 2\. time, after 0 before",
    ),
    "a quarantine without deaths": (
        insert("started", "task_quarantined", "count/0/0/quarantined", task="count/0/0", reason=""),
        "task_quarantined does not follow",
    ),
    "a divergence from no result": (
        insert(
            "started",
            "divergence_detected",
            "count/0/0/divergence/1",
            task="count/0/0",
            recorded="a",
            found="b",
        ),
        "differs from a result that is not there",
    ),
    "a resumption of a run that was not paused": (
        insert("counted", "resumed", "resumed/1", reason=None),
        "it is not paused",
    ),
    "a field that is none": (edit("counted", colour="red"), "counted"),
    "a schema that was never written": (replace("counted", schema=9), "counted"),
}


def verify(home: Home, target: str) -> tuple[int, str]:
    """Return the exit code and the output of `forge verify`."""
    env = {"FORGE_HOME": str(home.folder), "FORGE_DATABASE_URL": ""}
    told = CliRunner(env=env).invoke(forge, ["verify", target])
    return getattr(told.exception, "exit_code", told.exit_code), told.output


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_found_by_verify_and_refused_by_import(
    honest_home: Home, home: Home, tmp_path: Path, name: str
) -> None:
    """An archive is the way that a stranger's history comes in."""
    forged, said = FORGERIES[name]
    rows = relinked(forged(toy_runs.rows(honest_home)))
    file = tmp_path / "forged.forge"
    archive.write(file, {"toy/r": rows}, {}, {"run": "r"})
    code, output = verify(home, str(file))
    assert code in (1, 3), output
    found = [f for f in audit(rows) if f.level != "note"]
    assert found
    assert any(re.search(said, f.message) for f in found), found
    with closing(home.open_store()) as store:
        with pytest.raises(ArchiveError):
            run_archive.load(store, Artifacts(home.artifacts), file)
        assert store.names() == []


def test_the_honest_history_passes_the_same_checks(
    honest_home: Home, home: Home, tmp_path: Path
) -> None:
    """Or the test above would prove nothing."""
    rows = relinked(toy_runs.rows(honest_home))
    file = tmp_path / "honest.forge"
    archive.write(file, {"toy/r": rows}, {}, {"run": "r"})
    assert verify(home, str(file)) == (0, verify(home, str(file))[1])
    code, output = verify(honest_home, "r")
    assert code == 0, output
    assert output.splitlines()[-1] == "verified."
    for place in range(1, len(rows) + 1):
        assert audit(rows[:place]) == [], f"the prefix of {place} events"


def test_a_changed_byte_and_a_lost_end_are_found(honest_home: Home) -> None:
    """The first breaks the chain; the second only shows beside a head noted elsewhere."""
    rows = toy_runs.rows(honest_home)
    changed = [*rows]
    changed[3] = rows[3]._replace(data=rows[3].data.replace("1", "2", 1))
    assert any(f.check == "chain" and f.place == 4 for f in audit(changed))
    lost = audit(rows[:-1], [Anchor(len(rows), rows[-1].hash, "a report")])
    assert [f.check for f in lost if f.level == "error"] == ["chain"]


def test_times_that_run_backwards_are_a_note(honest_home: Home) -> None:
    """Events that were exchanged, with hashes that fit, leave no other trace; a clock may do it."""
    rows = toy_runs.rows(honest_home)[:-1]  # the last one names the hash of the one before
    assert audit(rows) == []
    earlier = datetime.fromisoformat(str(rows[0].recorded_at)) - timedelta(seconds=1)
    rows[1] = rows[1]._replace(recorded_at=earlier.isoformat(timespec="microseconds"))
    found = audit(relinked(rows))
    assert [(one.level, one.check, one.place) for one in found] == [("note", "chain", 2)]
    assert "was recorded at an earlier time than the event before it" in found[0].message


def test_a_change_in_the_database_is_found(ended: Home) -> None:
    """By whoever can write to the file, past the triggers."""
    from sqlalchemy import text

    with closing(ended.open_store()) as store, store.database.writing() as connection:
        for trigger in connection.execute(
            text("SELECT name FROM sqlite_master WHERE type = 'trigger'")
        ).scalars():
            connection.execute(text(f"DROP TRIGGER {trigger}"))
        connection.execute(text("UPDATE events SET actor = 'eve' WHERE version = 4"))
    code, output = verify(ended, "r")
    assert code == 1
    assert "event 4 (counted)" in output
