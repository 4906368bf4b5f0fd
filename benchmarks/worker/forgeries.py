"""Forgeries of a pipeline's log, each of which `forge verify --origins` must find.

    FORGE_HOME=HOME python -m benchmarks.worker.forgeries RUN [--count 30] [--seed 0]

The home's log (SQLite) is copied, and in each copy one value of one event of the pipeline or of a
phase's run is changed: a digest, a number, a choice. The forger computes every hash of the chain again,
also where events name one, in the run, in the pipeline that has recorded its head, and in the tables
made from the log: no chain tells anything. Events and values are drawn by the seed, from all but those
under `UNPROVEN`, which say how long something took, where, and in what words. Exit code 1 if one is not
found.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

from click.testing import CliRunner

from cli.main import forge
from events import canonical_json, chain
from runs.home import Home

#: Keys whose values nothing can prove later, and all that is below them.
UNPROVEN = frozenset(
    (
        *("seconds", "decoding_seconds", "tokens_per_second", "curve", "profile"),
        *("notes", "note", "reason", "says", "labels", "owner", "priority"),
        *("output_dir", "path", "name"),
    )
)
#: (event, field) of what nothing proves later, either: where data was (a digest in `started` says what
#: it was), and the optimiser's state within a training, which is gone with its snapshot.
PASSING = frozenset({("submitted", "data"), ("advanced", "optimiser")})
#: A place in an event's data: keys and indices from the outside.
Place = tuple[str | int, ...]


class Log:
    """A copy of a home's log, to be forged."""

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

    def _all(self, query: str, *given: Any) -> list[Any]:
        return self._file.execute(query, given).fetchall()

    def streams(self, run: str) -> list[str]:
        """Return the streams of a pipeline and of the runs of its phases."""
        names = [row["stream"] for row in self._all("SELECT DISTINCT stream FROM events")]
        return sorted(n for n in names if n.partition("/")[2].partition(".")[0] == run)

    def rows(self, stream: str) -> list[dict[str, Any]]:
        """Return the rows of a stream in order."""
        found = self._all("SELECT * FROM events WHERE stream = ? ORDER BY version", stream)
        return [dict(row) for row in found]

    def relink(
        self,
        stream: str,
        changed: Mapping[int, str],
        known: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[str, str]:
        """Give events other data, by version, and compute all hashes; return old hash → new hash.

        `known` are those of other streams: where an event names a hash, it names the new one.
        """
        hashes, head = dict(known), chain.GENESIS
        for row in self.rows(stream):
            data = changed.get(row["version"], row["data"])
            data = re.sub("[0-9a-f]{64}", lambda found: hashes.get(found[0], found[0]), data)
            row |= {"data": data, "prev_hash": head}
            hashes[row["hash"]] = head = chain.link(row)
            self._file.execute(
                "UPDATE events SET data = ?, prev_hash = ?, hash = ? WHERE stream = ? AND version = ?",
                (data, row["prev_hash"], head, stream, row["version"]),
            )
        for table, column in (("runs", "head"), ("projections", "hash")):
            for (listed,) in self._all(f"SELECT {column} FROM {table}"):
                self._file.execute(
                    f"UPDATE {table} SET {column} = ? WHERE {column} = ?",
                    (hashes.get(listed, listed), listed),
                )
        return hashes

    def close(self) -> None:
        """Write what was changed."""
        self._file.commit()
        self._file.close()


def leaves(data: Any, at: Place = ()) -> Iterator[Place]:
    """Yield the places of all single values in an event's data but those that nothing proves."""
    if isinstance(data, dict | list):
        for key, below in data.items() if isinstance(data, dict) else enumerate(data):
            if key not in UNPROVEN:
                yield from leaves(below, (*at, key))
    elif data is not None:
        yield at


def other(value: Any) -> Any:
    """Return another value of the same type, and of the same shape if it is a digest."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 1.01 + 0.001
    if re.fullmatch(r"[0-9a-f]{8,}", value):
        return value[:-1] + ("0" if value[-1] != "0" else "1")
    return f"{value}x"


def forged(log: Log, run: str, rng: random.Random) -> str:
    """Change one value of one event, and every hash that would tell; return what was changed."""
    stream = rng.choice(log.streams(run))
    row = rng.choice(log.rows(stream))
    places = list(leaves(json.loads(row["data"])))
    places = [place for place in places if (row["type"], place[0]) not in PASSING]
    return changed(log, run, stream, row, rng.choice(places)) if places else forged(log, run, rng)


def timed(log: Log, run: str) -> str:
    """Change how long a task of a phase took, which nothing proves: the rest must fit together."""
    for stream in reversed(log.streams(run)):
        for row in log.rows(stream):
            if "seconds" in json.loads(row["data"]):
                return changed(log, run, stream, row, ("seconds",))
    raise SystemExit(f"no event of {run} says how long it took")


def changed(log: Log, run: str, stream: str, row: dict[str, Any], place: Place) -> str:
    """Change the value at a place of an event; return what was changed."""
    data = json.loads(row["data"])
    holder = data
    for key in place[:-1]:
        holder = holder[key]
    was, holder[place[-1]] = holder[place[-1]], other(holder[place[-1]])
    hashes = log.relink(stream, {row["version"]: canonical_json(data)})
    if stream != f"pipeline/{run}":
        log.relink(f"pipeline/{run}", {}, hashes)
    return (
        f"{stream}, event {row['version']} ({row['type']}): {'.'.join(map(str, place))} was {was!r}"
    )


def tried(home: Home, run: str, change: Callable[[Log], str]) -> tuple[str, bool]:
    """Return what was changed in a copy of the log, and whether `forge verify` finds it."""
    with tempfile.TemporaryDirectory() as place:
        with closing(Log(home.database, Path(place) / "home")) as log:
            what = change(log)
        env = {"FORGE_HOME": str(log.home.folder), "FORGE_DATABASE_URL": ""}
        told = CliRunner(env=env).invoke(forge, ["verify", run, "--origins"])
        return what, told.exit_code != 0


def main() -> None:
    """Print each forgery and whether it was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    home, missed = Home.default(), 0
    what, found = tried(home, given.run, lambda log: timed(log, given.run))
    if found:
        raise SystemExit(f"the hashes do not fit together, so this shows nothing: {what}")
    print(f"    passes  {what}")
    for number in range(given.count):
        rng = random.Random(f"{given.seed}/{number}")
        what, found = tried(home, given.run, lambda log, rng=rng: forged(log, given.run, rng))
        missed += not found
        print(f"{number + 1:3} {'found' if found else 'MISSED'}  {what}", flush=True)
    print(f"{given.count - missed} of {given.count} forgeries were found")
    raise SystemExit(int(bool(missed)))


if __name__ == "__main__":
    main()
