"""The scheduler: weighted fair sharing between users, priority within a user; no clock, no I/O.

Start-time fair queueing (Goyal, Vin and Cheng 1996): every user has a tag, the service received so
far divided by the weight. The next task belongs to the user with the lowest tag. Starting the task
raises the tag by the task's expected seconds; finishing it corrects the tag to the actual seconds.

A user who returns after having had no tasks starts at the lowest tag of the users who compete for
the same kind of device. If no user competes, the user starts at the highest tag at which a task of
that kind was started. So idle time is not saved up, and a newcomer does not wait for service that
other users received on devices of another kind.

The scheduler skips users and runs at their limit, and runs whose needs the device does not meet. It
always picks a run if any user's task fits. A decision takes time logarithmic in the number of users
and runs, and linear in the number of skipped users.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agent_forge.worker.commands.user_limits import Limits


@dataclass(frozen=True)
class DeviceNeeds:
    """The requirements of a run's tasks on a device."""

    labels: frozenset[str] = frozenset()
    #: Bytes of device memory.
    memory: int = 0
    #: The profile that the run is pinned to; None before it has started.
    profile: str | None = None


@dataclass(frozen=True)
class Offer:
    """The labels, memory and profile that a device offers."""

    labels: frozenset[str] = frozenset()
    memory: int = 0
    profile: str | None = None
    #: True if the device is only for runs that ask for one of its own labels (without a colon).
    only: bool = False

    def meets(self, needs: DeviceNeeds) -> bool:
        """Return True if the device can do tasks with these needs."""
        return (
            needs.labels <= self.labels
            and (not self.only or any(":" not in label for label in needs.labels))
            and needs.memory <= self.memory
            and needs.profile in (None, self.profile)
        )


@dataclass
class QueuedRun:
    """A run in the queue."""

    run: str
    owner: str
    #: Order of submission: a lower number was submitted earlier.
    order: int
    priority: int = 0
    needs: DeviceNeeds = DeviceNeeds()
    #: Number of tasks that no device has begun, and of tasks under way.
    pending: int = 0
    running: int = 0
    #: Needs and rank of the run's current entry in its user's queues; None without an entry.
    entry: tuple[DeviceNeeds, tuple[int, int, str]] | None = field(default=None, compare=False)

    @property
    def rank(self) -> tuple[int, int, str]:
        """The sort key among one user's runs: the lowest goes first."""
        return -self.priority, self.order, self.run


@dataclass
class _User:
    weight: float = 1.0
    #: Limit of tasks under way at once, instead of the limit for all users.
    limit: int | None = None
    tag: float = 0.0
    #: The tag of the user's current entry in the heap of users; None without an entry.
    queued: float | None = None
    #: Number of tasks under way, and of runs with tasks to begin.
    running: int = 0
    waiting: int = 0
    #: True if the tag comes from an earlier dispatcher's notes; `_welcome` then does not lift it.
    restored: bool = False
    #: Runs of the user that are in the scheduler.
    jobs: set[str] = field(default_factory=set)
    #: Needs → heap of the ranks of runs with tasks to begin; entries may be out of date.
    queues: dict[DeviceNeeds, list[tuple[int, int, str]]] = field(default_factory=dict)

    @property
    def active(self) -> bool:
        """True if the user has tasks to begin or under way."""
        return self.waiting > 0 or self.running > 0


def _kind(needs: DeviceNeeds) -> frozenset[str]:
    """Return the kind of device that is needed: a frozenset of the labels with a colon."""
    return frozenset(label for label in needs.labels if ":" in label)


class Scheduler:
    """A queue of all users' runs. The same calls in the same order give the same decisions."""

    def __init__(self, limits: Limits = Limits(), expected: float = 1.0) -> None:
        self._limits = limits
        #: Seconds that a task is charged for at its start; its end corrects the charge.
        self._expected = expected
        self._users: dict[str, _User] = {}
        self._jobs: dict[str, QueuedRun] = {}
        #: Heap of (tag, user); entries may be out of date.
        self._order: list[tuple[float, str]] = []
        #: Kind of device → the highest tag at which a task of it was started.
        self._now: dict[frozenset[str], float] = {}

    def weigh(self, owner: str, weight: float) -> None:
        """Set a user's weight: twice the weight, twice the share. Raises ValueError unless above 0."""
        if weight <= 0:
            raise ValueError(f"the weight of {owner} is {weight}: it must be above zero")
        self._user(owner).weight = weight

    def limit(self, limits: Limits, user_limits: Mapping[str, int]) -> None:
        """Set the limits for all users, and in `user_limits` the limits of single users."""
        self._limits = limits
        for user in self._users.values():
            user.limit = None
            for run in user.jobs:
                self._enqueue(user, self._jobs[run])
        for owner, most in user_limits.items():
            self._user(owner).limit = most

    def restore(self, received: Mapping[str, float]) -> None:
        """Set users' tags to those that an earlier dispatcher stored."""
        for owner, tag in received.items():
            user = self._user(owner)
            user.tag, user.restored = tag, True

    def active_received(self) -> dict[str, float]:
        """Return user → tag, for users with tasks to begin or under way."""
        return {owner: user.tag for owner, user in sorted(self._users.items()) if user.active}

    def put(self, job: QueuedRun) -> None:
        """Add a run, or update the pending tasks, priority and needs of a known run."""
        listed_job = self._jobs.get(job.run)
        user = self._user(job.owner)
        before = listed_job.pending if listed_job else 0
        if job.pending > 0 and not user.active:
            self._welcome(user, job)
        if listed_job is None:
            self._jobs[job.run] = job
        else:
            listed_job.pending, listed_job.priority, listed_job.needs = (
                job.pending,
                job.priority,
                job.needs,
            )
            job = listed_job
        user.waiting += (job.pending > 0) - (before > 0)
        user.jobs.add(job.run)
        self._enqueue(user, job)

    def _welcome(self, user: _User, job: QueuedRun) -> None:
        """Raise the tag of a user who had no tasks, as the module's docstring says."""
        if user.restored:
            user.restored = False
            return
        kind = _kind(job.needs)
        rivals = [
            other.tag
            for other in self._users.values()
            if other is not user
            and other.active
            and any(_kind(self._jobs[run].needs) == kind for run in other.jobs)
        ]
        user.tag = max(user.tag, min(rivals, default=self._now.get(kind, 0.0)))

    def drop(self, run: str) -> None:
        """Remove a run, if it is in the queue."""
        if run in self._jobs:
            self.remove(run)

    def remove(self, run: str) -> None:
        """Remove a run that has ended or has no tasks; the service that it received stays counted."""
        job = self._jobs.pop(run)
        user = self._users[job.owner]
        user.jobs.discard(run)
        user.running -= job.running
        user.waiting -= job.pending > 0

    def pick(
        self, offer: Offer = Offer(), refuses: Callable[[str], bool] = lambda run: False
    ) -> str | None:
        """Return the run whose next task this device should do and not refuse; None if none fits."""
        passed, picked_run = [], None
        while self._order and picked_run is None:
            tag, owner = heapq.heappop(self._order)
            user = self._users[owner]
            if tag != user.queued:
                continue  # out of date
            if not any(user.queues.values()):
                user.queued = None  # `_enqueue` puts the user back once a run has tasks to begin
                continue
            passed.append((tag, owner))
            most = self._limits.per_user if user.limit is None else user.limit
            if not _full(user.running, most):
                picked_run = self._first(user, offer, refuses)
        for entry in passed:
            heapq.heappush(self._order, entry)
        return picked_run

    def start(self, run: str) -> None:
        """Count a task of the run as begun, and charge its user the expected seconds."""
        job = self._jobs[run]
        user = self._users[job.owner]
        user.waiting -= job.pending == 1
        job.pending = max(0, job.pending - 1)
        job.running += 1
        user.running += 1
        kind = _kind(job.needs)
        self._now[kind] = max(self._now.get(kind, 0.0), user.tag)
        self._charge(user, job.owner, self._expected)

    def finish(self, run: str, owner: str, seconds: float) -> None:
        """Count a task as over after `seconds`, done or not; correct its user's charge.

        The run may have been removed by now.
        """
        job = self._jobs.get(run)
        user = self._users[owner]
        if job is not None and job.running > 0:
            job.running -= 1
            user.running -= 1
            self._enqueue(user, job)
        self._charge(user, owner, seconds - self._expected)

    def received(self, owner: str) -> float:
        """Return the user's tag: the seconds received over the weight."""
        return self._user(owner).tag

    def _user(self, owner: str) -> _User:
        return self._users.setdefault(owner, _User())

    def _charge(self, user: _User, owner: str, seconds: float) -> None:
        user.tag += seconds / user.weight
        if user.queued is not None:
            self._stand(user, owner)

    def _stand(self, user: _User, owner: str) -> None:
        """Put the user into the heap of users with the current tag, unless that entry is there."""
        if user.queued != user.tag:
            user.queued = user.tag
            heapq.heappush(self._order, (user.tag, owner))

    def _enqueue(self, user: _User, job: QueuedRun) -> None:
        """Put the run into its user's queue under its current needs and rank, if it may begin a task.

        Nothing is added if that entry is there already.
        """
        if job.pending > 0 and not _full(job.running, self._limits.per_run):
            if job.entry != (job.needs, job.rank):
                job.entry = (job.needs, job.rank)
                heapq.heappush(user.queues.setdefault(job.needs, []), job.rank)
            self._stand(user, job.owner)

    def _first(self, user: _User, offer: Offer, refuses: Callable[[str], bool]) -> str | None:
        """Return the user's best run that the offer meets and that is not refused; None without one."""
        best = None
        for needs, queue in [*user.queues.items()]:
            if not offer.meets(needs):
                continue
            refused = []
            while queue:
                if not self._stands(queue[0], needs):
                    heapq.heappop(queue)
                elif refuses(queue[0][2]):
                    refused.append(heapq.heappop(queue))
                else:
                    break
            if queue and (best is None or queue[0] < best):
                best = queue[0]
            for entry in refused:
                heapq.heappush(queue, entry)
            if not queue:
                del user.queues[needs]
        return best[2] if best else None

    def _stands(self, entry: tuple[int, int, str], needs: DeviceNeeds) -> bool:
        """Return True if the heap entry is current.

        If it is the run's own entry but out of date, clear it, so that the run may enter again.
        """
        job = self._jobs.get(entry[2])
        if job is None or job.entry != (needs, entry):
            return False
        current = (job.needs, job.rank) == job.entry
        if current and job.pending > 0 and not _full(job.running, self._limits.per_run):
            return True
        job.entry = None
        return False


def _full(running: int, limit: int | None) -> bool:
    return limit is not None and running >= limit
