"""Points at which a crash walk kills: hits of failpoints and random moments, cut into shards."""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

#: What happens besides the kill: nothing, the cache is emptied before the restart, the run is one of a
#: queue with two workers, or the database's server is killed and not the run.
Pass = Literal["kept", "emptied", "queued", "server"]
#: Kills of workers during one queued run.
KILLS_A_RUN = 5


@dataclass(frozen=True)
class Job:
    """An undisturbed run's twin, and where it is killed."""

    #: From 1, of the whole walk: the same in each shard.
    number: int
    of: Pass
    #: "name:k" of failpoints, or seconds after the start. Queued: names of failpoints, or seconds
    #: between kills.
    points: tuple[str | float, ...]


def chosen(given: argparse.Namespace, trace: list[str]) -> list[str]:
    """Return the hits "name:k" that the options ask for, of those that the undisturbed run had."""
    names = sorted(set(trace))
    if given.at == "first":
        return [f"{name}:1" for name in names]
    if given.at == "ends":
        # Not the very last: another run may read the log less often, and so have fewer hits.
        late = {name: math.ceil(0.8 * trace.count(name)) for name in names}
        return sorted({f"{name}:{hit}" for name in names for hit in (1, late[name])})
    if given.at:
        return given.at.split(",")
    return spread(trace, given.points) if given.points else []


def spread(trace: list[str], count: int) -> list[str]:
    """Choose `count` hits as "name:k": every failpoint's first, middle, last, then evenly more."""
    hits = {name: trace.count(name) for name in sorted(set(trace))}
    found = {f"{name}:{k}" for name, n in hits.items() for k in (1, (n + 1) // 2, n)}
    seen: dict[str, int] = {}
    everything = []
    for name in trace:
        seen[name] = seen.get(name, 0) + 1
        everything.append(f"{name}:{seen[name]}")
    left = [point for point in everything if point not in found]
    step = max(1, len(left) // max(1, count - len(found)))
    return sorted(found | set(left[step // 2 :: step][: max(0, count - len(found))]))


def jobs(given: argparse.Namespace, trace: list[str], queued: set[str], seconds: float) -> list[Job]:
    """Return all jobs of a walk, the longest first; `seconds`: what the undisturbed run took.

    `trace`: the failpoints that it hit, in order; `queued`: those that a queued run is killed at.
    Moments are shares of that time, drawn with a fixed seed for each pass.
    """
    found: list[tuple[Pass, tuple[str | float, ...]]] = []
    if "queued" in given.passes:
        # Names that follow each other in the alphabet are of one task: they go to different runs.
        parts = math.ceil(len(queued) / KILLS_A_RUN)
        found.extend(("queued", tuple(sorted(queued)[part::parts])) for part in range(parts))
        pauses = _moments("queued", given.queued_moments, 0.05, 0.5, seconds)
        for begin in range(0, len(pauses), KILLS_A_RUN):
            found.append(("queued", tuple(pauses[begin : begin + KILLS_A_RUN])))
    embedded: tuple[Pass, ...] = ("kept", "emptied")
    for one in embedded:
        if one in given.passes:
            moments = _moments("embedded", given.moments, 0.05, 0.95, seconds)
            points: list[str | float] = [*chosen(given, trace), *moments]
            found.extend((one, (point,)) for point in points)
    if "server" in given.passes:
        moments = _moments("server", given.server_kills, 0.05, 0.95, seconds)
        found.extend(("server", (moment,)) for moment in moments)
    return [Job(number, *one) for number, one in enumerate(found, start=1)]


def _moments(of: str, count: int, low: float, high: float, seconds: float) -> list[float]:
    rng = random.Random(f"crash walk, {of}")
    return [rng.uniform(low, high) * seconds for _ in range(count)]


def shard(text: str) -> tuple[int, int]:
    """Return (K, N) of an option K/N. Raises ArgumentTypeError."""
    first, _, second = text.partition("/")
    if not (first.isdecimal() and second.isdecimal() and 1 <= int(first) <= int(second)):
        raise argparse.ArgumentTypeError(f"{text!r}: give K/N, as 1/4")
    return int(first), int(second)


def mine(found: Sequence[Job], part: tuple[int, int]) -> list[Job]:
    """Return the jobs of a shard: every Nth, from the Kth. All shards together have all jobs once."""
    return list(found[part[0] - 1 :: part[1]])
