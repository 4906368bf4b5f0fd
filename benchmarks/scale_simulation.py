"""Simulation of a shared queue: devices, and one log whose transactions pass one writer in turn."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from agent_forge.runs import keys
from agent_forge.runs.home import Home
from benchmarks.scale_queue import Queue
from benchmarks.scale_runs import Recorded

SIMULATED = 10_000


@dataclass(frozen=True)
class Costs:
    """Constants of the simulation."""

    #: Seconds of an append of one event, at the median, one writer.
    write: float
    #: Transactions that write: a task on the queue, a second of a device at work, and a second of
    #: the dispatcher.
    task_writes: float
    beats: float
    leader_writes: float


@dataclass(frozen=True)
class Measured:
    """All constants of one database on one machine."""

    write: float
    queue: Queue
    #: Number of devices → seconds of a step of the dispatcher.
    steps: dict[int, float]
    recorded: Recorded
    #: The home that has the recorded runs.
    home: Home

    @property
    def costs(self) -> Costs:
        """The constants of the simulation."""
        queue = self.queue
        return Costs(self.write, queue.task_writes, queue.busy_writes, queue.leader_writes)


@dataclass(frozen=True)
class Simulated:
    """The outcome of a simulated queue."""

    #: Share of the devices' time that is work.
    working: float
    #: Share of the time that the log is being written.
    writing: float
    #: Seconds that a write waits for its turn, at the 99th percentile.
    wait: float
    tasks_per_second: float


def simulate(devices: int, seconds: float, costs: Costs, tasks: int = SIMULATED) -> Simulated:
    """Let devices do tasks whose writes, and the devices' heartbeats, pass one writer in turn.

    The lengths of tasks are exponential with this mean, from a keyed generator. The heartbeats of
    devices and of the dispatcher come at the measured rates; the next one waits for the one before.
    """
    rng = keys.generator("scale", devices, str(seconds), tasks)
    writes = max(1, round(costs.task_writes))
    #: (time, device, writes left of its task); 0 left: a heartbeat. The dispatcher is device -1.
    waiting = [(float(rng.exponential(seconds)), n, writes) for n in range(devices)]
    if costs.beats:
        waiting += [((n + 1) / devices / costs.beats, n, 0) for n in range(devices)]
    if costs.leader_writes:
        waiting.append((1 / costs.leader_writes, -1, 0))
    heapq.heapify(waiting)
    free = busy = worked = now = 0.0
    waits: list[float] = []
    done = 0
    while done < tasks:
        now, device, left = heapq.heappop(waiting)
        begins = max(now, free)
        free = begins + costs.write
        busy += costs.write
        if left == 0:
            rate = costs.beats if device >= 0 else costs.leader_writes
            heapq.heappush(waiting, (max(now + 1 / rate, free), device, 0))
            continue
        waits.append(begins - now)
        if left > 1:
            heapq.heappush(waiting, (free, device, left - 1))
            continue
        length = float(rng.exponential(seconds))
        done, worked = done + 1, worked + length
        heapq.heappush(waiting, (free + length, device, writes))
    waits.sort()
    span = max(now, free)
    rate = done / span
    return Simulated(
        working=min(1.0, rate * seconds / devices),
        writing=min(1.0, busy / span),
        wait=waits[int(len(waits) * 0.99)],
        tasks_per_second=rate,
    )
