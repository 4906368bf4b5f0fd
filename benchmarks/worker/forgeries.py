"""Forgeries of a run's log, each of which `forge verify` must find.

    FORGE_HOME=HOME python -m benchmarks.worker.forgeries RUN [--count 30] [--measured 0] [--seed 0]

The home's log (SQLite) is copied, and in each copy a forger changes the run or a phase's run of it, and
computes every hash of the chain again, also where events name one, in the run, in the pipeline that has
recorded its head, and in the tables made from the log: no chain tells anything.

`--count` forgeries change one value of one event: a digest, a number, a choice. Events and values are
drawn by the seed, from all but those under `UNPROVEN`, which say how long something took, where, and in
what words. `forge verify RUN --origins` must find each.

`--measured` forgeries change what was measured of one model, whichever and by whichever measure; the
program itself then computes all that follows: fitness, figures, gates, ends (`testing/forging.py`).
`forge verify RUN --origins --recompute` must find each; how many are found without `--recompute` is
printed, because there is no reason why they should be.

Exit code 1 if one is not found.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from agent_forge.cli.main import forge
from agent_forge.events import Envelope, canonical_json
from agent_forge.runs.history.repository import measurements, words
from agent_forge.runs.home import Home
from testing.forging import Log, OtherWorkError, Place, forged_measurement
from testing.forging import forge as forge_log

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
#: What `forge verify` is asked for.
ORIGINS = ("--origins",)


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
    places = list(leaves(json.loads(row.data)))
    places = [place for place in places if (row.type, place[0]) not in PASSING]
    return changed(log, run, stream, row, rng.choice(places)) if places else forged(log, run, rng)


def timed(log: Log, run: str) -> str:
    """Change how long a task of a phase took, which nothing proves: the rest must fit together."""
    for stream in reversed(log.streams(run)):
        for row in log.rows(stream):
            if "seconds" in json.loads(row.data):
                return changed(log, run, stream, row, ("seconds",))
    raise SystemExit(f"no event of {run} says how long it took")


def changed(log: Log, run: str, stream: str, row: Envelope, place: Place) -> str:
    """Change the value at a place of an event; return what was changed."""
    data = json.loads(row.data)
    holder = data
    for key in place[:-1]:
        holder = holder[key]
    was, holder[place[-1]] = holder[place[-1]], other(holder[place[-1]])
    hashes = log.relink(stream, {row.version: canonical_json(data)})
    pipeline = f"pipeline/{run}"
    if stream != pipeline and pipeline in log.streams(run):
        log.relink(pipeline, {}, hashes)
    return f"{stream}, event {row.version} ({row.type}): {'.'.join(map(str, place))} was {was!r}"


def measured(log: Log, run: str, rng: random.Random) -> str:
    """Change what was measured of a model, and all that follows; return what was changed.

    A change that would lead to other work, which the forger does not do, is drawn again.
    """
    while True:
        stream = rng.choice(log.streams(run))
        found = list(measurements(log.rows(stream)))
        if not found:
            continue
        task, _ = rng.choice(found)
        try:
            forge_log(log, stream, task.key, lambda event: forged_measurement(event, rng))
        except OtherWorkError:
            continue
        return f"{stream}: {words(task)}"


def tried(
    home: Home, run: str, change: Callable[[Log], str], *options: Sequence[str]
) -> tuple[str, list[bool]]:
    """Return what was changed in a copy of the log, and for some options if `forge verify` finds it."""
    with tempfile.TemporaryDirectory() as place:
        with closing(Log(home.database, Path(place) / "home")) as log:
            what = change(log)
        env = {"FORGE_HOME": str(log.home.folder), "FORGE_DATABASE_URL": ""}
        told = [CliRunner(env=env).invoke(forge, ["verify", run, *some]) for some in options]
        return what, [one.exit_code != 0 for one in told]


def main() -> None:
    """Print each forgery and whether it was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--measured", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    home, missed = Home.default(), 0
    what, (found,) = tried(home, given.run, lambda log: timed(log, given.run), ORIGINS)
    if found:
        raise SystemExit(f"the hashes do not fit together, so this shows nothing: {what}")
    print(f"    passes  {what}")
    for number in range(given.count):
        rng = random.Random(f"{given.seed}/{number}")
        change = partial(forged, run=given.run, rng=rng)
        what, (found,) = tried(home, given.run, change, ORIGINS)
        missed += not found
        print(f"{number + 1:3} {'found' if found else 'MISSED'}  {what}", flush=True)
    early = 0
    for number in range(given.measured):
        rng = random.Random(f"{given.seed}/measured/{number}")
        change = partial(measured, run=given.run, rng=rng)
        what, (before, found) = tried(home, given.run, change, ORIGINS, (*ORIGINS, "--recompute"))
        early, missed = early + before, missed + (not found)
        print(f"{number + 1:3} {'found' if found else 'MISSED'}  {what}", flush=True)
    every = given.count + given.measured
    print(f"{every - missed} of {every} forgeries were found")
    if given.measured:
        print(f"without --recompute {early} of the {given.measured} that were measured otherwise")
    raise SystemExit(int(bool(missed)))


if __name__ == "__main__":
    main()
