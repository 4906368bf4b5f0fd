"""Power cuts at every kind of place: what was acknowledged is there, nothing is there by half."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent_forge.events.databases import sqlite
from agent_forge.events.databases.sqlite import open_store
from testing.power_loss import (
    Op,
    Recording,
    Step,
    capture,
    judge_cut,
    judge_two_cuts,
    places,
    record,
    reopened,
    survivors,
)
from tests.acceptance.events.test_kill_at_syscalls import (
    MODES,
    Verdict,
    essence,
    planned,
    resumed,
    workload,
)

#: As in the store, where the append is larger than the page cache; here the cache is made smaller,
#: which reaches the same code with a tenth of the bytes.
BATCHES = workload(big=200_000)
CACHE = "PRAGMA cache_size=-100"
CUTS = 150


@dataclass(frozen=True)
class Script:
    """What the store says to SQLite in one journal mode."""

    mode: str
    steps: list[Step]


@pytest.fixture(scope="module", params=MODES)
def script(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Script:
    return captured(request.param, tmp_path_factory.mktemp("captured"))


def captured(mode: str, folder: Path) -> Script:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "journal_mode", lambda: mode)
        return Script(mode, capture(folder / "log.db", BATCHES))


def cuts(script: Script, folder: Path, pragmas: str = "", count: int = CUTS) -> list[Verdict]:
    """Verdicts of as many cuts, each with a seed of its own."""
    recording = record(script.steps, folder / "recorded" / "log.db", pragmas=f"{CACHE};{pragmas}")
    rng = random.Random(0)
    where = places(recording)
    return [
        judge_cut(recording, rng.choice(where), seed, folder / str(seed) / "log.db", BATCHES)
        for seed in range(count)
    ]


def wrong(verdicts: list[Verdict]) -> list[str]:
    return [what for verdict in verdicts for what in verdict.wrong]


def test_the_recorded_script_leaves_the_log_that_the_store_would(
    script: Script, tmp_path: Path
) -> None:
    """Else the cuts below would test another program."""
    recording = record(script.steps, tmp_path / "recorded" / "log.db")
    kinds = [op.kind for op in recording.ops]
    assert kinds.count("ack") == len(BATCHES)
    assert kinds.count("sync") > len(BATCHES)
    names = {op.name for op in recording.ops if op.name}
    assert names == {"log.db", "log.db-journal"} | ({"log.db-wal"} & {f"log.db-{script.mode}"})
    files = survivors(recording, len(recording.ops), 0)
    rows, found = reopened(files, tmp_path / "again" / "log.db")
    assert found == []
    assert essence(rows) == planned(BATCHES)


def test_pages_reach_the_disk_before_their_commit(script: Script, tmp_path: Path) -> None:
    """Only then can a cut leave half of an append in the file."""
    recording = record(script.steps, tmp_path / "recorded" / "log.db", pragmas=CACHE)
    acks = [number for number, op in enumerate(recording.ops) if op.kind == "ack"]
    big = recording.ops[acks[3] : acks[4]]
    written = [number for number, op in enumerate(big) if op.kind == "write"]
    syncs = [number for number, op in enumerate(big) if op.kind == "sync"]
    assert len(written) > 40
    assert written[0] < syncs[-1]


@pytest.mark.smoke
@pytest.mark.slow
def test_no_power_cut_takes_what_was_acknowledged(script: Script, tmp_path: Path) -> None:
    """Durable when it returns, with the very pragmas that the store sets."""
    assert wrong(cuts(script, tmp_path)) == []


@pytest.mark.slow
def test_no_second_cut_in_the_recovery_does(script: Script, tmp_path: Path) -> None:
    """Rolling back writes, too; and whoever goes on after a cut must be as safe as before it."""
    recording = record(script.steps, tmp_path / "recorded" / "log.db", pragmas=CACHE)
    verdicts = []
    for seed in range(40):
        folder = tmp_path / str(seed)
        folder.mkdir()
        verdicts.append(judge_two_cuts(script.steps, recording, seed, folder, BATCHES, CACHE))
    assert wrong(verdicts) == []


def test_the_appends_can_be_made_again_after_a_cut(script: Script, tmp_path: Path) -> None:
    """Their keys make it harmless: what is there is returned, what is missing is added."""
    recording = record(script.steps, tmp_path / "recorded" / "log.db", pragmas=CACHE)
    rng = random.Random(1)
    for seed in range(12):
        cut = rng.choice(places(recording))
        folder = tmp_path / str(seed)
        folder.mkdir()
        for name, content in survivors(recording, cut, seed).items():
            (folder / name).write_bytes(content)
        store = open_store(folder / "log.db")
        acknowledged = sum(op.kind == "ack" for op in recording.ops[:cut])
        assert resumed(store, acknowledged, BATCHES).wrong == []
        store.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "pragma", "least"),
    [
        ("delete", "PRAGMA synchronous=OFF", CUTS // 2),
        ("wal", "PRAGMA synchronous=OFF", CUTS // 2),
        ("wal", "PRAGMA synchronous=NORMAL", 1),
        # The deletion of the journal is not synced: it comes back and undoes the last append.
        ("delete", "PRAGMA synchronous=FULL", 1),
    ],
)
def test_without_the_pragmas_the_same_cuts_take_acknowledged_events(
    tmp_path: Path, mode: str, pragma: str, least: int
) -> None:
    """A check that cannot fail proves nothing: this is what the checks above would find."""
    verdicts = cuts(captured(mode, tmp_path), tmp_path, pragma)
    assert sum(verdict.lost > 0 for verdict in verdicts) >= least


def disk(*ops: Op, before: dict[str, bytes] | None = None) -> Callable[[object], dict[str, bytes]]:
    """What such a disk shows after a cut, as a function of the seed."""
    recording = Recording(before or {}, list(ops))
    return lambda seed: survivors(recording, len(ops), seed)


def test_a_cut_is_a_function_of_its_seed() -> None:
    """A schedule that failed must fail again."""
    shown = disk(*(Op("write", "a", -1, n * 512, b"%d" % n * 512) for n in range(9)), before={"a": b""})
    assert [shown(seed) for seed in range(20)] == [shown(seed) for seed in range(20)]
    assert len({shown(seed)["a"] for seed in range(20)}) > 5


def test_what_was_synced_stays_and_what_was_not_may_go() -> None:
    """The whole model in one file."""
    synced = [Op("write", "a", -1, 0, b"x" * 4096), Op("sync", "a", -1)]
    shown = disk(*synced, Op("write", "a", -1, 4096, b"y" * 4096), before={"a": b""})
    seen = {shown(seed)["a"] for seed in range(200)}
    assert all(content.startswith(b"x" * 4096) for content in seen)
    assert {b"x" * 4096, b"x" * 4096 + b"y" * 4096} <= seen
    torn = {content for content in seen if len(content.strip(b"\0")) not in (4096, 8192)}
    assert torn
    assert all(len(content) % 512 == 0 for content in torn)


def test_a_deletion_that_was_not_synced_may_be_undone() -> None:
    """And a new file of that name may be missing; a sync of the folder settles both."""
    undecided = disk(Op("delete", "a"), Op("create", "b", 1), before={"a": b"old"})
    assert {tuple(sorted(undecided(seed))) for seed in range(50)} == {(), ("a",), ("b",), ("a", "b")}
    settled = disk(
        Op("delete", "a"), Op("create", "b", 1), Op("sync", "b", 1, folder=True), before={"a": b"old"}
    )
    assert all(settled(seed) == {"b": b""} for seed in range(50))
