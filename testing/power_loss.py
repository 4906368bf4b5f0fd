"""Power cuts that need no plug: a disk that remembers what was synced, and a recorded run to cut.

capture     the SQL that our store issues for them, with its pragmas, as a script
record      the script once more, through a VFS that writes down every operation on files
survivors   what a disk may hold after a cut at any of those operations

A killed process loses nothing that it wrote: the kernel has it. A power cut loses what was not
synced, in any combination: here each such write may be there, be missing or be torn, and each change
of the folder since its last sync may have happened or not. A folder is synced when SQLite's unix VFS
does it: at the first sync of a new journal, and at a deletion that asks for it.

One recording gives any number of cuts, each of them a function of its seed.
"""

from __future__ import annotations

import itertools
import random
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import apsw
from sqlalchemy import Engine, event

from agent_forge.events import Envelope
from agent_forge.events.databases.sqlite import open_store
from tests.acceptance.events.test_kill_at_syscalls import Batch, Verdict, judge, perform

#: What a disk writes at once; a write may be torn between two of them.
SECTOR = 512
# What our store says to SQLite


class Step(NamedTuple):
    """Step of a script: open a connection, run a statement, note that an append returned, close."""

    kind: Literal["open", "sql", "ack", "close"]
    sql: str = ""
    parameters: tuple[Any, ...] = ()


class _Connection(sqlite3.Connection):
    """The driver's connection, and a script of what it is asked to do."""

    script: list[Step]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.script.append(Step("open"))

    def cursor(self, _factory: Any = None) -> _Cursor:
        return super().cursor(_Cursor)

    def commit(self) -> None:
        if self.in_transaction:
            self.script.append(Step("sql", "COMMIT"))
        super().commit()

    def rollback(self) -> None:
        if self.in_transaction:
            self.script.append(Step("sql", "ROLLBACK"))
        super().rollback()

    def close(self) -> None:
        self.script.append(Step("close"))
        super().close()


class _Cursor(sqlite3.Cursor):
    def execute(self, sql: str, parameters: Any = ()) -> _Cursor:
        self.connection.script.append(Step("sql", sql, tuple(parameters)))  # pyright: ignore
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any) -> _Cursor:
        for one in parameters:
            self.execute(sql, one)
        return self


def capture(place: Path, batches: Sequence[Batch], sessions: int = 3) -> list[Step]:
    """Append the batches to a new log, opened and closed some times; the SQL that this takes."""
    script: list[Step] = []
    heard = type("_Heard", (_Connection,), {"script": script})

    def connect(_dialect: Any, _record: Any, _arguments: Any, options: dict[str, Any]) -> None:
        options["factory"] = heard

    share = -(-len(batches) // sessions)
    event.listen(Engine, "do_connect", connect)
    try:
        for start in range(0, len(batches), share):
            store = open_store(place)
            part = batches[start : start + share]
            perform(store, part, lambda _: script.append(Step("ack")))
            store.close()
    finally:
        event.remove(Engine, "do_connect", connect)
    return script


def rest(script: Sequence[Step], appends: int) -> list[Step]:
    """Return the script after its first `appends` appends, for a log that has those already."""
    acks = [i for i, step in enumerate(script) if step.kind == "ack"]
    following = list(script[acks[appends - 1] + 1 :])
    if following[0].kind == "close":
        return following[1:]
    pragmas = itertools.takewhile(lambda step: step.sql.startswith("PRAGMA"), script[1:])
    return [Step("open"), *pragmas, *following]


# A disk that is watched


class Op(NamedTuple):
    """An operation on files. `inode` tells two files of one name apart."""

    kind: Literal["create", "write", "truncate", "sync", "delete", "ack"]
    name: str = ""
    inode: int = 0
    offset: int = 0
    data: bytes = b""
    #: The operation makes every change of the folder durable as well.
    folder: bool = False


@dataclass
class Recording:
    """Recording of a disk: its durable files, and the operations since."""

    before: dict[str, bytes]
    ops: list[Op] = field(default_factory=list)


class _Disk(apsw.VFS):
    """The system's own VFS, and a record of what goes through it."""

    def __init__(self, recording: Recording) -> None:
        self.vfs_name = f"watched-{id(self)}"
        super().__init__(self.vfs_name, "")
        self.ops = recording.ops
        self.inodes = {name: -i for i, name in enumerate(recording.before, start=1)}

    def xOpen(self, name: Any, flags: list[int]) -> _File:  # noqa: N802
        path = Path(name.filename() if isinstance(name, apsw.URIFilename) else str(name))
        new = not path.exists()
        file = _File(path, flags, self)
        if new:
            self.inodes[path.name] = len(self.ops) + 1
            self.ops.append(Op("create", path.name, self.inodes[path.name]))
        file.watch(self.inodes[path.name], new)
        return file

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        super().xDelete(filename, syncdir)
        self.ops.append(Op("delete", Path(filename).name, folder=syncdir))


class _File(apsw.VFSFile):
    def __init__(self, path: Path, flags: list[int], disk: _Disk) -> None:
        super().__init__("", str(path), flags)
        self.name, self.ops = path.name, disk.ops
        journal = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_WAL
        self.is_journal = bool(flags[0] & journal)

    def watch(self, inode: int, new: bool) -> None:
        self.inode, self.syncs_folder = inode, new and self.is_journal

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        super().xWrite(data, offset)
        self.ops.append(Op("write", self.name, self.inode, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        super().xTruncate(newsize)
        self.ops.append(Op("truncate", self.name, self.inode, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        self.ops.append(Op("sync", self.name, self.inode, folder=self.syncs_folder))
        self.syncs_folder = False


def record(
    script: Sequence[Step], place: Path, before: Mapping[str, bytes] | None = None, pragmas: str = ""
) -> Recording:
    """Run a script in a folder that has the files `before`; `pragmas` outdo the script's own."""
    recording = Recording(dict(before or {}))
    place.parent.mkdir()
    for name, content in recording.before.items():
        (place.parent / name).write_bytes(content)
    disk = _Disk(recording)
    connection: apsw.Connection | None = None
    for step in script:
        if step.kind == "open":
            connection = apsw.Connection(str(place), vfs=disk.vfs_name)
        elif step.kind == "ack":
            recording.ops.append(Op("ack"))
        elif connection is not None and step.kind == "sql":
            connection.execute(step.sql, step.parameters).fetchall()
            if step.sql.startswith("PRAGMA synchronous"):
                connection.execute(pragmas).fetchall()
        elif connection is not None:
            connection.close()
    disk.unregister()
    return recording


# The cut


def survivors(recording: Recording, cut: int, seed: object) -> dict[str, bytes]:
    """Return the files that a disk may show if the power failed after `cut` operations."""
    rng = random.Random(f"{seed}/{cut}")
    names = {name: -i for i, name in enumerate(recording.before, start=1)}
    durable = {-i: bytearray(c) for i, c in enumerate(recording.before.values(), start=1)}
    pending: dict[int, list[Op]] = {}
    history: dict[str, list[int | None]] = {}  # of each name since the folder was synced
    for op in recording.ops[:cut]:
        if op.kind in ("write", "truncate"):
            pending.setdefault(op.inode, []).append(op)
        elif op.kind == "sync":
            for change in pending.pop(op.inode, []):
                _apply(durable.setdefault(op.inode, bytearray()), change)
        elif op.kind in ("create", "delete"):
            history.setdefault(op.name, []).append(op.inode or None)
        if op.folder:
            names |= {name: states[-1] for name, states in history.items()}  # type: ignore[misc]
            history.clear()
    shown: dict[str, int | None] = dict(names)
    for name, states in history.items():
        shown[name] = rng.choice([names.get(name), *states])
    kept = rng.choice((0.0, 0.1, 0.5, 0.9, 1.0))
    torn = rng.choice((0.0, 0.2))
    for inode, changes in pending.items():
        for change in changes:
            _maybe(durable.setdefault(inode, bytearray()), change, rng, kept, torn)
    return {name: bytes(durable.get(inode, b"")) for name, inode in shown.items() if inode is not None}


def _apply(content: bytearray, change: Op) -> None:
    if change.kind == "truncate":
        del content[change.offset :]
        return
    content.extend(bytes(max(0, change.offset - len(content))))
    content[change.offset : change.offset + len(change.data)] = change.data


def _maybe(content: bytearray, change: Op, rng: random.Random, kept: float, torn: float) -> None:
    """Apply a change, or only some of its sectors, or nothing, at random."""
    if change.kind == "truncate" or rng.random() >= torn:
        if rng.random() < kept:
            _apply(content, change)
        return
    end = change.offset + len(change.data)
    edges = [change.offset, *range((change.offset // SECTOR + 1) * SECTOR, end, SECTOR), end]
    for start, stop in itertools.pairwise(edges):
        if rng.random() < 0.5:
            part = change.data[start - change.offset : stop - change.offset]
            _apply(content, change._replace(offset=start, data=part))


def reopened(files: Mapping[str, bytes], place: Path) -> tuple[list[Envelope], list[str]]:
    """Return the rows that a plain SQLite reads from these files, and the faults that it finds.

    Of a damaged log no row counts: it must come back from a backup.
    """
    place.parent.mkdir()
    for file, content in files.items():
        (place.parent / file).write_bytes(content)
    client = sqlite3.connect(place)
    try:
        wrong = [str(line) for (line,) in client.execute("PRAGMA integrity_check") if line != "ok"]
        tables = client.execute("SELECT 1 FROM sqlite_master WHERE name = 'events'").fetchall()
        query = f"SELECT {','.join(Envelope._fields)} FROM events ORDER BY position"
        rows = [Envelope._make(row) for row in client.execute(query)] if tables else []
    except sqlite3.DatabaseError as error:
        return [], [f"not readable: {error}"]
    finally:
        client.close()
    if any(not isinstance(value, str | int | None) for row in rows for value in row):
        wrong.append("rows hold what no append wrote")
    return ([], wrong) if wrong else (rows, [])


def judge_cut(
    recording: Recording, cut: int, seed: object, place: Path, batches: Sequence[Batch], held: int = 0
) -> Verdict:
    """Cut the power, open what is left at `place`, and compare it with what was promised.

    `held` appends were on the disk before the recording.
    """
    rows, wrong = reopened(survivors(recording, cut, seed), place)
    acknowledged = held + sum(op.kind == "ack" for op in recording.ops[:cut])
    verdict = judge(rows, acknowledged, batches)
    return Verdict(verdict.lost, wrong + verdict.wrong)


def judge_two_cuts(
    script: Sequence[Step],
    recording: Recording,
    seed: int,
    folder: Path,
    batches: Sequence[Batch],
    pragmas: str = "",
) -> Verdict:
    """Cut, go on with what is left, and cut again: in the recovery or in a later append."""
    rng = random.Random(seed)
    cut = rng.choice(places(recording))
    left = survivors(recording, cut, seed)
    rows, wrong = reopened(left, folder / "first" / "log.db")
    held = sum(set(batch.keys) <= {row.key for row in rows} for batch in batches)
    if wrong or not 0 < held < len(batches):
        return judge_cut(recording, cut, seed, folder / "only" / "log.db", batches)
    second = record(rest(script, held), folder / "second" / "log.db", left, pragmas)
    where = min(rng.choice(places(second)), rng.choice(places(second)))
    return judge_cut(second, where, seed, folder / "third" / "log.db", batches, held)


def places(recording: Recording) -> list[int]:
    """Return the operations to cut at: around all but plain writes, and every sixteenth write."""
    found = {len(recording.ops)}
    for number, op in enumerate(recording.ops):
        if op.kind != "write":
            found |= {number, number + 1, number + 2}
        elif number % 16 == 0:
            found.add(number)
    return sorted(n for n in found if 0 < n <= len(recording.ops))
