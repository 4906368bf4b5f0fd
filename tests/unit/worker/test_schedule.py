"""Fair shares: what the scheduler promises, against a brute-force reading of the same promises."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_forge.worker.commands.user_limits import Limits
from agent_forge.worker.queue.scheduler import DeviceNeeds, Offer, QueuedRun, Scheduler

GPU = DeviceNeeds(labels=frozenset({"gpu"}), memory=8)
CPU_OFFER, GPU_OFFER = Offer(), Offer(labels=frozenset({"gpu"}), memory=16)


@dataclass
class Plain:
    """The same promises, looked up in lists every time."""

    limits: Limits
    jobs: dict[str, QueuedRun] = field(default_factory=dict)
    tags: dict[str, float] = field(default_factory=dict)
    running: dict[str, int] = field(default_factory=dict)

    def fits(self, job: QueuedRun, offer: Offer) -> bool:
        def free(count: int, limit: int | None) -> bool:
            return limit is None or count < limit

        return (
            job.pending > 0
            and offer.meets(job.needs)
            and free(job.running, self.limits.per_run)
            and free(self.running[job.owner], self.limits.per_user)
        )

    def pick(self, offer: Offer) -> str | None:
        fitting = [job for job in self.jobs.values() if self.fits(job, offer)]
        return (
            min(fitting, key=lambda j: (self.tags[j.owner], j.owner, j.rank)).run if fitting else None
        )


@st.composite
def histories(draw: st.DrawFn) -> list[tuple]:
    """Calls in some order; runs and users by number."""
    needs = st.sampled_from([DeviceNeeds(), GPU, DeviceNeeds(profile="a")])
    offers = st.sampled_from([CPU_OFFER, GPU_OFFER, Offer(profile="a")])
    number = st.integers(0, 9)
    return draw(
        st.lists(
            st.one_of(
                st.tuples(st.just("put"), number, st.integers(-2, 2), st.integers(0, 3), needs),
                st.tuples(st.just("remove"), number),
                st.tuples(st.just("start"), offers),
                st.tuples(st.just("finish"), st.integers(0, 20), st.floats(0.1, 9)),
            ),
            max_size=60,
        )
    )


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(histories(), st.sampled_from([Limits(), Limits(per_user=2), Limits(2, 1)]))
def test_every_pick_is_the_one_that_was_promised(history: list[tuple], limits: Limits) -> None:
    """The lowest tag among users with something that fits; their best run; None only if none fits."""
    scheduler, plain = Scheduler(limits), Plain(limits)
    under_way: list[tuple[str, str]] = []
    for call in history:
        match call:
            case ("put", number, priority, pending, needs):
                run, owner = f"r{number}", f"u{number % 3}"
                known = plain.jobs.get(run)
                job = QueuedRun(
                    run, owner, number, priority, needs, pending, known.running if known else 0
                )
                scheduler.put(QueuedRun(run, owner, number, priority, needs, pending))
                plain.jobs[run] = job
                plain.running.setdefault(owner, 0)
            case ("remove", number) if f"r{number}" in plain.jobs:
                job = plain.jobs.pop(f"r{number}")
                plain.running[job.owner] -= job.running
                under_way = [(r, o) for r, o in under_way if r != job.run]
                scheduler.remove(job.run)
            case ("start", offer):
                plain.tags = {owner: scheduler.received(owner) for owner in plain.running}
                picked = scheduler.pick(offer)
                assert picked == plain.pick(offer)
                if picked is not None:
                    job = plain.jobs[picked]
                    scheduler.start(picked)
                    job.pending, job.running = job.pending - 1, job.running + 1
                    plain.running[job.owner] += 1
                    under_way.append((picked, job.owner))
            case ("finish", number, seconds) if under_way:
                run, owner = under_way.pop(number % len(under_way))
                scheduler.finish(run, owner, seconds)
                plain.jobs[run].running -= 1
                plain.running[owner] -= 1


def simulate(weights: dict[str, float], lengths: dict[str, float], devices: int, tasks: int):
    """Seconds that each user received while all of them always had something to do."""
    scheduler = Scheduler()
    for number, (owner, weight) in enumerate(sorted(weights.items())):
        scheduler.weigh(owner, weight)
        scheduler.put(QueuedRun(owner, owner, number, pending=tasks))
    received = dict.fromkeys(weights, 0.0)
    busy: list[tuple[float, int, str]] = [(0.0, n, "") for n in range(devices)]
    for _ in range(tasks):
        now, device, before = heapq.heappop(busy)
        if before:
            scheduler.finish(before, before, lengths[before])
            received[before] += lengths[before]
        picked = scheduler.pick()
        assert picked is not None
        scheduler.start(picked)
        heapq.heappush(busy, (now + lengths[picked], device, picked))
    return received


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.5, 8), st.floats(0.2, 5)), min_size=2, max_size=6), st.integers(1, 8)
)
def test_shares_follow_the_weights_whatever_the_length_of_tasks(users, devices: int) -> None:
    """Nobody is ahead of anybody by more than what the devices hold at once."""
    weights = {f"u{n}": weight for n, (weight, _) in enumerate(users)}
    lengths = {f"u{n}": length for n, (_, length) in enumerate(users)}
    received = simulate(weights, lengths, devices, 3000)
    shares = [received[u] / weights[u] for u in weights]
    held = (devices + 2) * (max(lengths.values()) + 1) / min(weights.values())
    assert max(shares) - min(shares) <= 2 * held


def test_a_user_who_was_away_gets_a_share_and_no_back_pay() -> None:
    scheduler = Scheduler()
    scheduler.put(QueuedRun("a", "ada", 1, pending=10_000))
    for _ in range(1000):
        scheduler.start("a")
        scheduler.finish("a", "ada", 1.0)
    scheduler.put(QueuedRun("b", "bob", 2, pending=10_000))
    picks = []
    for _ in range(100):
        picked = scheduler.pick()
        assert picked
        picks.append(picked)
        scheduler.start(picked)
        scheduler.finish(picked, {"a": "ada", "b": "bob"}[picked], 1.0)
    assert abs(picks.count("a") - picks.count("b")) <= 2


def test_nobody_starves_beside_a_thousand_runs_of_another() -> None:
    scheduler = Scheduler()
    for n in range(1000):
        scheduler.put(QueuedRun(f"a{n}", "ada", n, priority=9, pending=5))
    scheduler.put(QueuedRun("b", "bob", 5000, priority=-9, pending=5))
    picks = []
    for _ in range(4):
        picks.append(scheduler.pick())
        scheduler.start(picks[-1] or "")
    assert picks.count("b") == 2


def test_priority_decides_within_a_user_then_age() -> None:
    scheduler = Scheduler()
    for run, order, priority in (("old", 1, 0), ("high", 3, 5), ("also-high", 2, 5)):
        scheduler.put(QueuedRun(run, "ada", order, priority, pending=1))
    order = []
    for _ in range(3):
        order.append(scheduler.pick())
        scheduler.start(order[-1] or "")
    assert order == ["also-high", "high", "old"]
    assert scheduler.pick() is None


def test_a_changed_priority_counts_at_once() -> None:
    scheduler = Scheduler()
    scheduler.put(QueuedRun("a", "ada", 1, pending=1))
    scheduler.put(QueuedRun("b", "ada", 2, pending=1))
    assert scheduler.pick() == "a"
    scheduler.put(QueuedRun("b", "ada", 2, priority=1, pending=1))
    assert scheduler.pick() == "b"


def test_a_device_takes_what_it_can_do_and_leaves_the_rest() -> None:
    scheduler = Scheduler()
    scheduler.put(QueuedRun("big", "ada", 1, needs=GPU, pending=1))
    scheduler.put(QueuedRun("small", "bob", 2, pending=1))
    assert scheduler.pick(CPU_OFFER) == "small"
    assert scheduler.pick(GPU_OFFER) == "big"
    scheduler.remove("small")
    assert scheduler.pick(CPU_OFFER) is None


@pytest.mark.parametrize(
    ("offer", "meets"),
    [
        (Offer(frozenset({"gpu", "fast"}), 8), True),
        (Offer(frozenset({"gpu"}), 7), False),
        (Offer(frozenset({"fast"}), 99), False),
    ],
)
def test_an_offer_meets_needs_with_every_label_and_enough_memory(offer: Offer, meets: bool) -> None:
    assert offer.meets(GPU) is meets


def test_a_run_that_is_pinned_goes_only_where_the_profile_is() -> None:
    pinned = DeviceNeeds(profile="two threads")
    assert Offer(profile="two threads").meets(pinned)
    assert not Offer(profile="four threads").meets(pinned)
    assert Offer(profile="four threads").meets(DeviceNeeds())


def test_a_weight_must_be_above_zero() -> None:
    with pytest.raises(ValueError, match="above zero"):
        Scheduler().weigh("ada", 0)


def tasks_of_a_second(scheduler: Scheduler, offer: Offer) -> Counter[str]:
    """How many of the next hundred tasks each run gets; runs are named after their users."""
    done: Counter[str] = Counter()
    for _ in range(100):
        run = scheduler.pick(offer)
        assert run is not None
        done[run] += 1
        scheduler.start(run)
        scheduler.finish(run, run, 1.0)
    return done


def test_a_newcomer_does_not_wait_for_what_others_received_on_other_devices() -> None:
    """Alice alone on ten GPUs, Bob on the CPU: Carol shares the CPU with Bob from the beginning."""
    gpu, cpu = (DeviceNeeds(frozenset({f"device:{kind}"})) for kind in ("cuda", "cpu"))
    scheduler = Scheduler()
    scheduler.put(QueuedRun("alice", "alice", 0, needs=gpu, pending=10_000))
    scheduler.put(QueuedRun("bob", "bob", 1, needs=cpu, pending=10_000))
    for _ in range(500):
        for _ in range(10):
            scheduler.start("alice")
            scheduler.finish("alice", "alice", 1.0)
        scheduler.start("bob")
        scheduler.finish("bob", "bob", 1.0)
    scheduler.put(QueuedRun("carol", "carol", 2, needs=cpu, pending=10_000))
    done = tasks_of_a_second(scheduler, Offer(frozenset({"device:cpu"})))
    assert abs(done["bob"] - done["carol"]) <= 2


def test_time_with_everything_paused_is_not_saved_up() -> None:
    scheduler = Scheduler()
    scheduler.put(QueuedRun("ada", "ada", 0, pending=0))
    scheduler.put(QueuedRun("bob", "bob", 1, pending=10_000))
    for _ in range(1000):
        scheduler.start("bob")
        scheduler.finish("bob", "bob", 1.0)
    scheduler.put(QueuedRun("ada", "ada", 0, pending=10_000))
    done = tasks_of_a_second(scheduler, Offer())
    assert abs(done["ada"] - done["bob"]) <= 2


def test_another_scheduler_goes_on_with_what_was_noted() -> None:
    """What a user received before the takeover counts; who came after it does not gain by it."""
    scheduler = Scheduler()
    scheduler.restore({"ada": 1000.0, "bob": 10.0})
    for number, owner in enumerate(("ada", "bob", "carol")):
        scheduler.put(QueuedRun(owner, owner, number, pending=10_000))
    assert scheduler.received("ada") == 1000.0
    assert scheduler.received("bob") == 10.0
    assert scheduler.received("carol") == 10.0
    assert scheduler.active_received() == {"ada": 1000.0, "bob": 10.0, "carol": 10.0}


def test_saying_the_same_again_and_again_costs_no_memory() -> None:
    """The dispatcher says how things stand all the time."""
    scheduler = Scheduler()
    for turn in range(200):
        for number in range(10):
            scheduler.put(QueuedRun(f"r{number}", f"u{number % 3}", number, pending=1 + turn % 3))
        assert scheduler.pick(Offer(), refuses=lambda run: run != "r7") == "r7"
        assert scheduler.pick(Offer(), refuses=lambda _: True) is None
    assert len(scheduler._order) <= 10
    entries = [len(q) for user in scheduler._users.values() for q in user.queues.values()]
    assert sum(entries) <= 20


def test_a_run_that_goes_and_comes_back_while_its_task_is_under_way_is_counted_once() -> None:
    scheduler = Scheduler(Limits(per_user=1))
    scheduler.put(QueuedRun("r", "ada", 0, pending=2))
    scheduler.start("r")
    scheduler.drop("r")
    scheduler.put(QueuedRun("r", "ada", 0, pending=2))
    scheduler.finish("r", "ada", 1.0)
    assert scheduler.pick() == "r"
    scheduler.start("r")
    assert scheduler.pick() is None
