"""Simulation of the scheduler alone: deviation of shares from the weights, time of a decision.

    python -m benchmarks.worker.schedule [--users 100] [--devices 1000] [--tasks 1000000] [--runs 10000]

Every user always has tasks to run, and each user's tasks have a length of their own. Timed too are
decisions among few and many queued runs, and `min` over as many runs: the least that a decision
without heaps takes.
"""

from __future__ import annotations

import argparse
import heapq
import random
import time

from agent_forge.worker.queue.scheduler import QueuedRun, Scheduler
from benchmarks.common import best


def shares(users: int, devices: int, tasks: int) -> None:
    """Simulate; print the largest deviation of shares from the weights, and a decision's time."""
    rng = random.Random(0)
    scheduler = Scheduler()
    weights = {f"u{n:03d}": rng.choice([1.0, 1.0, 2.0, 4.0]) for n in range(users)}
    lengths = {owner: rng.uniform(0.2, 5.0) for owner in weights}
    for number, owner in enumerate(weights):
        scheduler.weigh(owner, weights[owner])
        scheduler.put(QueuedRun(owner, owner, number, pending=tasks))
    received = dict.fromkeys(weights, 0.0)
    busy: list[tuple[float, int, str]] = [(0.0, n, "") for n in range(devices)]
    spent = 0.0
    for _ in range(tasks):
        now, device, before = heapq.heappop(busy)
        began = time.perf_counter()
        if before:
            scheduler.finish(before, before, lengths[before])
        picked = scheduler.pick() or ""
        scheduler.start(picked)
        spent += time.perf_counter() - began
        if before:
            received[before] += lengths[before]
        heapq.heappush(busy, (now + lengths[picked], device, picked))
    total, weight = sum(received.values()), sum(weights.values())
    off = max(abs(received[u] / total / (weights[u] / weight) - 1) for u in weights)
    state = "ok" if off <= 0.05 else "OVER 5 %"
    print(
        f"{users} users, {devices} devices, {tasks:,} tasks: shares within {off:.2%} of the "
        f"weights ({state}); {spent / tasks * 1e6:.1f} µs a decision"
    )


def decisions(runs: int, users: int) -> float:
    """Print median and p99 of decisions among queued runs in µs; return the median in seconds."""
    scheduler = Scheduler()
    for n in range(runs):
        scheduler.put(QueuedRun(f"r{n}", f"u{n % users}", n, priority=n % 5, pending=1000))
    times = []
    for n in range(20_000):
        began = time.perf_counter()
        picked = scheduler.pick() or ""
        scheduler.start(picked)
        times.append(time.perf_counter() - began)
        if n % 2:
            scheduler.finish(picked, f"u{int(picked[1:]) % users}", 1.0 + n % 3)
    times.sort()
    print(
        f"{runs:,} queued runs of {users} users: p50 {times[10_000] * 1e6:.1f} µs, "
        f"p99 {times[19_800] * 1e6:.1f} µs"
    )
    return times[10_000]


def scan(runs: int) -> float:
    """Return the seconds of `min` over queued runs, by the rank that the scheduler uses."""
    jobs = [QueuedRun(f"r{n}", f"u{n % 7}", n, priority=n % 5, pending=1000) for n in range(runs)]
    return best(lambda: min(jobs, key=lambda job: job.rank), 20)


def main() -> None:
    """Time decisions, then simulate."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("users", 100), ("devices", 1000), ("tasks", 1_000_000), ("runs", 10_000)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    few = decisions(max(1, given.runs // 100), given.users)
    many = decisions(given.runs, given.users)
    print(f"a hundred times the runs: {many / few:.2f} times as long")
    print(f"min over {given.runs:,} runs: {scan(given.runs) * 1e6:,.1f} µs")
    shares(given.users, given.devices, given.tasks)


if __name__ == "__main__":
    main()
