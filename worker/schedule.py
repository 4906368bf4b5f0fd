"""Whose task is next: weighted fair sharing between users, priority within a user. No clock, no I/O.

Start-time fair queueing (Goyal, Vin and Cheng 1996): every user has a tag, the service received so far
divided by the weight. The next task is of the user with the lowest tag; starting it raises the tag by
what it is expected to take, finishing it corrects that to what it took. A user who comes back after
having had nothing to do starts at the tag of the task that was started last: idle time is not saved
up.

Passed over are users and runs at their limit, and runs whose needs the device does not meet. As long
as anybody's task fits, something is picked. A decision takes time logarithmic in the number of users
and runs, and linear in the number of users that are passed over.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Needs:
    """What a run's tasks ask of a device."""

    labels: frozenset[str] = frozenset()
    #: Bytes of device memory.
    memory: int = 0
    #: The profile that the run is pinned to; None before it has started.
    profile: str | None = None


@dataclass(frozen=True)
class Offer:
    """What a device has."""

    labels: frozenset[str] = frozenset()
    memory: int = 0
    profile: str | None = None

    def meets(self, needs: Needs) -> bool:
        """Whether tasks with these needs can be done here."""
        return (
            needs.labels <= self.labels
            and needs.memory <= self.memory
            and needs.profile in (None, self.profile)
        )


@dataclass(frozen=True)
class Limits:
    """How many tasks may be under way at once; None is no limit."""

    per_user: int | None = None
    per_run: int | None = None


@dataclass
class Job:
    """A run in the queue."""

    run: str
    owner: str
    #: Lower was submitted earlier.
    order: int
    priority: int = 0
    needs: Needs = Needs()
    #: Tasks that nobody has begun, and tasks under way.
    pending: int = 0
    running: int = 0

    @property
    def rank(self) -> tuple[int, int, str]:
        """Among one user's runs the lowest goes first."""
        return -self.priority, self.order, self.run


@dataclass
class _User:
    weight: float = 1.0
    tag: float = 0.0
    running: int = 0
    #: Runs that have something to do or are under way.
    jobs: set[str] = field(default_factory=set)
    #: Runs with tasks to begin, by needs; entries may be out of date.
    queues: dict[Needs, list[tuple[int, int, str]]] = field(default_factory=dict)


class Scheduler:
    """The queue of everybody's runs. The same calls in the same order give the same decisions."""

    def __init__(self, limits: Limits = Limits(), expected: float = 1.0) -> None:
        self._limits = limits
        #: Seconds that a task is expected to take, until one has been finished.
        self._expected = expected
        self._users: dict[str, _User] = {}
        self._jobs: dict[str, Job] = {}
        #: (tag, user); entries may be out of date.
        self._order: list[tuple[float, str]] = []
        self._now = 0.0

    def weigh(self, owner: str, weight: float) -> None:
        """Give a user a weight: twice the weight is twice the share. It must be above zero."""
        if weight <= 0:
            raise ValueError(f"the weight of {owner} is {weight}: it must be above zero")
        self._user(owner).weight = weight

    def put(self, job: Job) -> None:
        """Add a run, or say what has become of one: pending tasks, priority, needs."""
        known = self._jobs.get(job.run)
        user = self._user(job.owner)
        if known is None:
            self._jobs[job.run] = job
            if not user.jobs:
                user.tag = max(user.tag, self._now)
        else:
            known.pending, known.priority, known.needs = job.pending, job.priority, job.needs
            job = known
        user.jobs.add(job.run)
        self._enqueue(user, job)

    def remove(self, run: str) -> None:
        """The run has ended or waits for nothing. What it received stays counted."""
        job = self._jobs.pop(run)
        user = self._users[job.owner]
        user.jobs.discard(run)
        user.running -= job.running

    def pick(self, offer: Offer = Offer()) -> str | None:
        """The run whose next task this device should do; None where nobody's fits."""
        passed, found = [], None
        while self._order and found is None:
            tag, owner = heapq.heappop(self._order)
            user = self._users[owner]
            if tag != user.tag or not any(user.queues.values()):
                continue  # out of date; `_enqueue` puts the user back when there is something to do
            passed.append((tag, owner))
            if not _full(user.running, self._limits.per_user):
                found = self._first(user, offer)
        for entry in passed:
            heapq.heappush(self._order, entry)
        return found

    def start(self, run: str) -> None:
        """A task of the run is begun."""
        job = self._jobs[run]
        user = self._users[job.owner]
        job.pending -= 1
        job.running += 1
        user.running += 1
        self._now = max(self._now, user.tag)
        self._charge(job.owner, self._expected)

    def finish(self, run: str, owner: str, seconds: float) -> None:
        """A task that took so long is over, well or not; the run may be gone by now."""
        job = self._jobs.get(run)
        user = self._users[owner]
        if job is not None:
            job.running -= 1
            user.running -= 1
            self._enqueue(user, job)
        self._charge(owner, seconds - self._expected)

    def received(self, owner: str) -> float:
        """The user's tag: seconds received, divided by the weight."""
        return self._user(owner).tag

    def _user(self, owner: str) -> _User:
        return self._users.setdefault(owner, _User())

    def _charge(self, owner: str, seconds: float) -> None:
        user = self._users[owner]
        user.tag += seconds / user.weight
        heapq.heappush(self._order, (user.tag, owner))

    def _enqueue(self, user: _User, job: Job) -> None:
        if job.pending > 0 and not _full(job.running, self._limits.per_run):
            heapq.heappush(user.queues.setdefault(job.needs, []), job.rank)
            heapq.heappush(self._order, (user.tag, job.owner))

    def _first(self, user: _User, offer: Offer) -> str | None:
        """The user's best run that the offer meets."""
        best = None
        for needs, queue in user.queues.items():
            if not offer.meets(needs):
                continue
            while queue and not self._valid(queue[0], needs):
                heapq.heappop(queue)
            if queue and (best is None or queue[0] < best):
                best = queue[0]
        return best[2] if best else None

    def _valid(self, entry: tuple[int, int, str], needs: Needs) -> bool:
        """Whether an entry still says what is so."""
        job = self._jobs.get(entry[2])
        return (
            job is not None
            and job.rank == entry
            and job.needs == needs
            and job.pending > 0
            and not _full(job.running, self._limits.per_run)
        )


def _full(running: int, limit: int | None) -> bool:
    return limit is not None and running >= limit
