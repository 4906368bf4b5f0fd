"""The dispatcher on a real log with invented devices: what may happen between them, quickly."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from agent_forge.events import Cause, ConcurrencyError, Event, EventStore, New
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.state import RunState
from agent_forge.runs.errors import UnavailableError
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.controls import refusal
from agent_forge.runs.kinds.decide import due
from agent_forge.runs.streams import stream
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands import user_limits
from agent_forge.worker.commands.control import control
from agent_forge.worker.devices.child_main import DeviceProcess
from agent_forge.worker.queue import device_table
from agent_forge.worker.queue.device_table import (
    DEVICES,
    Device,
    DeviceTable,
    gpu_offers,
    needs,
    placements,
)
from agent_forge.worker.queue.dispatcher import Dispatcher
from agent_forge.worker.queue.leases import LEASES, Leases
from agent_forge.worker.queue.scheduler import Offer
from testing.worlds import fake_runs
from testing.worlds.fake_world import World

PROFILE = "x|1|x|x|x|x"
CPU = Offer(frozenset({"device:cpu"}), 1 << 40, PROFILE)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def store(home: Home) -> Iterator[EventStore]:
    with closing(home.open_store()) as store:
        yield store


@pytest.fixture(autouse=True)
def _look_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step here takes a millisecond, and nothing must depend on how long it takes."""
    monkeypatch.setattr("agent_forge.worker.queue.dispatcher.LOOK", -1.0)


class Hand:
    """A device without a process: it answers tasks as the fake world does."""

    def __init__(self, store: EventStore, name: str, offer: Offer = CPU) -> None:
        self.store, self.offer = store, offer
        self.owner = f"elsewhere/1/1/{name}"
        self.roster = DeviceTable(store.database)
        self.leases = Leases(store.database, self.owner)
        self.name = name
        self.enter()

    def enter(self) -> None:
        self.name = self.roster.enter(self.name, self.owner, "cpu")
        self.roster.offers(self.name, self.owner, self.offer)
        self.roster.say(self.name, self.owner, "idle")

    def granted(self) -> tuple[str, str] | None:
        return self.roster.grant_of(self.name, self.owner)

    def claim(self) -> bool:
        granted = self.granted()
        assert granted
        return self.leases.claim("/".join(granted)) is not None

    def work(self) -> None:
        """Answer the task under its key, at a version at which it is due."""
        granted = self.granted()
        assert granted
        run, key = granted
        while True:
            state = RunState().absorb(repository.history(self.store, run))
            task = next((t for t in due(state).tasks if t.key == key), None)
            if task is None:
                return
            world = World()
            world.state = state
            new = New(world.answer(task), f"{run}/{key}")
            try:
                self.store.append(
                    stream("evomerge", run), state.version, [new], Cause(f"worker/{self.name}")
                )
                return
            except ConcurrencyError:
                continue

    def rest(self) -> None:
        granted = self.granted()
        if granted:
            self.leases.release("/".join(granted))
        self.roster.say(self.name, self.owner, "idle", grant_run=None, grant_task=None)

    def vanish(self) -> None:
        """Its machine is gone: nothing beats any more."""
        with self.store.database.writing() as connection:
            mine = DEVICES.c.name == self.name
            connection.execute(update(DEVICES).where(mine).values(beat=0.0))
            theirs = LEASES.c.owner == self.owner
            connection.execute(update(LEASES).where(theirs).values(expires=0.0))


def dispatcher(home: Home) -> Dispatcher:
    """One that leads."""
    made = Dispatcher(home.open_store(), lambda *_: None, "test")
    made._leases.lifetime = 0.0  # whoever asks leads
    assert made._leads()
    return made


def carry(one: Dispatcher, hands: list[Hand], rng: random.Random, most: int = 4000) -> None:
    """Let devices work in any order until nothing waits."""
    for _ in range(most):
        one.step()
        if not one._runs:
            return
        hand = rng.choice(hands)
        if hand.granted() and hand.claim():
            hand.work()
            hand.rest()
        else:
            hand.rest()
    raise AssertionError("the runs do not end")


def alone(tmp_path: Path, **settings: object) -> str:
    """The lineage digest of a run that nobody shared."""
    with closing(Home(tmp_path / "alone").open_store()) as store:
        return fake_runs.whole(store, "alone", **settings).lineage_digest()


def submit(store: EventStore, run: str, owner: str, **changes: object) -> None:
    """A run of an owner's."""
    world = World(fake_runs.small(generations=1))
    assert world.state.submitted
    given = {"run": run, "owner": owner, **changes}
    event = world.state.submitted.model_copy(update=given)
    store.append(stream("evomerge", run), 0, [New(event, f"{run}/submitted")])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 6))])
def test_whatever_happens_between_devices_every_run_ends_as_alone(
    home: Home, store: EventStore, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    names = [f"r{n}" for n in range(4)]
    for number, run in enumerate(names):
        submit(store, run, f"user{number % 2}", priority=number)
    hands = [Hand(store, f"d{n}") for n in range(3)]
    one = dispatcher(home)
    for _ in range(4000):
        one.step()
        if not one._runs:
            break
        hand, what = rng.choice(hands), rng.random()
        if what < 0.04:
            hand.vanish()
        elif what < 0.06:
            one = dispatcher(home)  # another worker takes over, the first knows nothing
        elif what < 0.10:
            with store.database.writing() as connection:
                connection.execute(rng.choice([LEASES, DEVICES]).delete())
        elif what < 0.14:
            hand.enter()
        elif hand.granted() and hand.claim():
            hand.work()
            if rng.random() < 0.9:
                hand.rest()
        else:
            hand.rest()
        one._desk._backoff.clear()
    expected = alone(tmp_path, generations=1)
    for run in names:
        state = repository.load(store, run)
        assert state.completed, run
        assert state.lineage_digest() == expected
    one.step()
    assert list(one._scheduler._jobs) == []
    for hand in hands:
        hand.rest()
    one.step()
    assert not one._flights
    assert {user.running for user in one._scheduler._users.values()} <= {0}


@pytest.mark.slow
def test_a_run_that_cannot_be_read_keeps_nobody_waiting(home: Home, store: EventStore) -> None:
    """Written by a newer version, or damaged: set aside, and the others go on."""

    class Newer(events.Paused):
        type = "from_the_future"

    submit(store, "odd", "ada", priority=9)
    store.append(stream("evomerge", "odd"), 1, [New(Newer(), "odd/newer")])
    submit(store, "fine", "ada")
    one, hand = dispatcher(home), Hand(store, "d")
    for _ in range(500):
        one.step()
        if hand.granted() and hand.claim():
            hand.work()
        hand.rest()
        if repository.load(store, "fine").ended:
            break
    assert repository.load(store, "fine").completed


def test_a_run_that_is_tried_again_comes_back(home: Home, store: EventStore) -> None:
    submit(store, "r", "ada")
    one, hand = dispatcher(home), Hand(store, "d")
    failed = events.Failed(reason="said the test")
    store.append(stream("evomerge", "r"), 1, [New(failed, "r/failed")])
    one.step()
    assert one._runs == {}
    assert refusal(repository.load(store, "r"), events.Retried()) is None
    store.append(stream("evomerge", "r"), 2, [New(events.Retried(), "r/retried/1")])
    carry(one, [hand], random.Random(0))
    assert repository.load(store, "r").completed


@pytest.mark.slow
def test_an_imported_run_is_granted_to_nobody_until_its_owner_resumes_it(
    home: Home, store: EventStore, tmp_path: Path
) -> None:
    """It started at once, in the name and with the priority that its archive said."""
    with closing(Home(tmp_path / "there").open_store()) as there:
        submit(there, "r", "ada", priority=1_000_000)
        rows = there.read(stream("evomerge", "r"))
    one, hand = dispatcher(home), Hand(store, "d")
    for leader in (one, None):
        if leader is not None:
            taken = events.Imported(owner="bob", head=rows[-1].hash)
            store.adopt(stream("evomerge", "r"), rows, [New(taken, "r/imported/1")], Cause("bob"))
        leader = leader or dispatcher(home)
        for _ in range(3):
            assert leader.step() == 0
        known = leader._runs["r"]
        assert (known.owner, known.priority, known.paused) == ("bob", 0, True)
    store.append(stream("evomerge", "r"), len(rows) + 1, [New(events.Resumed(), "r/resumed/1")])
    carry(one, [hand], random.Random(0))
    assert repository.load(store, "r").completed


def test_the_past_of_a_fork_is_granted_to_nobody_until_somebody_takes_it_over(
    home: Home, store: EventStore, tmp_path: Path
) -> None:
    """It ends where the fork began, with no word that it waits: a worker would have carried it on."""
    with closing(Home(tmp_path / "there").open_store()) as there:
        submit(there, "r", "ada")
        rows = there.read(stream("evomerge", "r"))
    one, hand = dispatcher(home), Hand(store, "d")
    repository.note(store, "r", rows[-1].hash, Cause("bob"))
    store.adopt(stream("evomerge", "r"), rows)
    for leader in (one, dispatcher(home)):
        for _ in range(3):
            assert leader.step() == 0
    control(store, "r", events.PriorityChanged(priority=1), by="bob")
    assert leader.step() == 0
    assert (leader._runs["r"].owner, leader._runs["r"].paused) == ("bob", True)
    control(store, "r", events.Resumed(), by="bob")
    assert leader.step() == 1
    assert hand.granted() == ("r", "start")


def test_limits_and_weights_are_obeyed_at_once(home: Home, store: EventStore) -> None:
    for number in range(3):
        submit(store, f"a{number}", "ada")
    hands = [Hand(store, f"d{n}") for n in range(4)]
    user_limits.change(store, owner="ada", tasks=2)
    one = dispatcher(home)
    one.step()
    assert sum(hand.granted() is not None for hand in hands) == 2
    user_limits.change(store, owner="ada", tasks=0)
    one.step()
    assert sum(hand.granted() is not None for hand in hands) == 3, "a start each"
    user_limits.change(store, owner=None, run_tasks=1)
    rules = user_limits.read(store)
    assert rules.everybody.per_run == 1
    assert rules.tasks == {}


def test_what_devices_refuse_or_do_not_offer_is_given_to_others(home: Home, store: EventStore) -> None:
    submit(store, "big", "ada", labels=("big",))
    submit(store, "plain", "ada")
    small, large = (
        Hand(store, "small"),
        Hand(store, "large", Offer(frozenset({"device:cpu", "big"}), 1 << 40, PROFILE, only=True)),
    )
    now = small.roster.now()
    small.roster.refuse(small.name, small.owner, {"plain": (now + 60, "no such model")})
    one = dispatcher(home)
    one.step()
    assert large.granted() == ("big", "start")
    assert small.granted() is None
    small.roster.refuse(small.name, small.owner, {"plain": (now - 1, "it was")})
    one.step()
    assert small.granted() == ("plain", "start")


def test_a_started_run_stays_with_its_profile(home: Home, store: EventStore) -> None:
    submit(store, "r", "ada")
    first = Hand(store, "first")
    one = dispatcher(home)
    one.step()
    assert first.claim()
    first.work()
    first.vanish()
    other = Hand(store, "other", Offer(CPU.labels, CPU.memory, "another|profile"))
    one._desk._backoff.clear()
    one.step()
    one.step()
    assert other.granted() is None
    same = Hand(store, "same")
    one.step()
    assert same.granted() is not None
    started = repository.load(store, "r").started
    assert started
    assert started.profile.of_machine == PROFILE


def test_a_candidate_is_measured_where_it_was_built(home: Home, store: EventStore) -> None:
    submit(store, "r", "ada")
    hands = [Hand(store, "a"), Hand(store, "b")]
    one = dispatcher(home)
    for _ in range(600):
        one.step()
        if not one._runs:
            break
        for hand in hands:
            if hand.granted() and hand.claim():
                hand.work()
                hand.rest()
    rows = store.read(stream("evomerge", "r"))
    built = {}
    together = apart = 0
    for row in rows:
        event = events.REGISTRY.load(row)
        if isinstance(event, events.Seeded | events.Merged | events.Mutated):
            built[event.recipe_id] = row.actor
        elif isinstance(event, events.Evaluated) and event.recipe_id in built:
            if event.slice != "search":
                continue
            together += built[event.recipe_id] == row.actor
            apart += built[event.recipe_id] != row.actor
    assert together > 2 * apart


def test_a_damaged_event_of_the_queue_is_passed_over(home: Home, store: EventStore) -> None:
    class Narrow(Event):
        type = "limits_changed"
        wrong: int = 1

    store.append(user_limits.STREAM, 0, [New(Narrow(), "queue/damaged")])
    user_limits.change(store, "ada", weight=2)
    assert user_limits.read(store).weights == {"ada": 2}
    submit(store, "r", "ada")
    one, hand = dispatcher(home), Hand(store, "d")
    one.step()
    assert hand.granted() == ("r", "start")


def test_a_defect_of_ours_is_no_death_of_a_task(
    home: Home, store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three deaths would quarantine it; the process is replaced, and the run waits with the reason."""
    monkeypatch.setenv("FORGE_HOME", str(home.folder))
    monkeypatch.setattr("agent_forge.runs.kinds.decide.due", lambda state: 1 / 0)
    submit(store, "r", "ada")
    told = DeviceProcess().do(
        {"run": "r", "task": "start", "lease": "r/start", "fence": 1, "owner": "x"}
    )
    assert told["ended"] == "refused"
    assert "ZeroDivisionError" in told["why"]
    assert told["stale"]
    assert store.version(stream("evomerge", "r")) == 1


def test_a_process_without_a_task_gives_its_memory_back(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does so once, and still takes the next task."""
    monkeypatch.setenv("FORGE_HOME", str(home.folder))
    monkeypatch.setattr("agent_forge.worker.devices.child_main.REST", 0.05)
    released: list[None] = []
    tasks: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def release(_: Artifacts) -> None:
        released.append(None)
        threading.Timer(0.5, tasks.put, [{"task": "later"}]).start()

    monkeypatch.setattr(Artifacts, "release", release)
    child = DeviceProcess()
    tasks.put({"task": "at once"})
    assert child.next_task(tasks) == {"task": "at once"}
    assert not released
    assert child.next_task(tasks) == {"task": "later"}
    assert len(released) == 1


def test_devices_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process sees one GPU, as its first; the processes of a CPU share its cores.

    With GPUs there is the CPU, too: else a run for it would wait for ever.
    """
    monkeypatch.setattr(device_table.metadata, "version", lambda name: "2.13.0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-abc")
    monkeypatch.delenv("FORGE_THREADS", raising=False)
    found = placements("auto", 1)
    assert [p.device for p in found] == ["cuda:0", "cuda:1", "cpu"]
    assert [p.env["CUDA_VISIBLE_DEVICES"] for p in found] == ["3", "GPU-abc", ""]
    assert [p.env["FORGE_DEVICE"] for p in found] == ["cuda:0", "cuda:0", "cpu"]
    assert [p.device for p in placements("cuda:1, cuda:0", 1)] == ["cuda:1", "cuda:0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    found = placements("auto", 4)
    assert [p.name for p in found] == ["cpu0", "cpu1", "cpu2", "cpu3"]
    assert {p.env["FORGE_THREADS"] for p in found} == {"2"}


def test_a_torch_for_the_cpu_has_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_table.metadata, "version", lambda name: "2.13.0+cpu")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert [p.device for p in placements("auto", 1)] == ["cpu"]
    with pytest.raises(UnavailableError, match=r"torch is 2\.13\.0\+cpu"):
        placements("cuda:0", 1)


GPU = Offer(frozenset({"device:cuda"}), 1 << 40, "cuda|1|x|x|x|x")


def test_a_run_for_auto_waits_for_a_gpu_while_one_is_connected(home: Home, store: EventStore) -> None:
    """And takes the CPU if there is none; a run for the CPU never waits for a GPU."""
    fake_runs.submit(store, "any", device="auto")
    processor, one = Hand(store, "processor"), dispatcher(home)
    graphics = Hand(store, "graphics", GPU)
    one.step()
    assert (graphics.granted(), processor.granted()) == (("any", "start"), None)
    fake_runs.submit(store, "next", "bob", device="auto")
    submit(store, "plain", "bob")
    one.step()
    assert processor.granted() == ("plain", "start"), "next waits for the GPU, which is busy"
    graphics.rest()
    graphics.roster.leave(graphics.name, graphics.owner)
    processor.rest()
    submit(store, "more", "bob")
    one.step()
    assert processor.granted() in {("any", "start"), ("next", "start")}


def test_a_label_that_no_gpu_has_leaves_auto_to_the_cpu() -> None:
    offers = gpu_offers([device_of(GPU), device_of(Offer(CPU.labels | {"big"}))])
    assert offers == {Offer(GPU.labels)}
    assert needs("auto", (), None, offers).labels == {"device:cuda"}
    assert needs("auto", ("big",), None, offers).labels == {"device:cpu", "big"}
    assert needs("cpu", (), None, offers).labels == {"device:cpu"}
    assert needs("auto", (), None, ()).labels == {"device:cpu"}


def device_of(offer: Offer) -> Device:
    """Return a living device with this offer."""
    return Device("d", "o", "cpu", "idle", offer, None, None, 0, None, {}, 0.0, True, 0.0)


def test_a_grant_that_nobody_claims_is_taken_back(
    home: Home, store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device whose process does not start must not hold a task up."""
    monkeypatch.setattr("agent_forge.worker.queue.dispatcher.UNCLAIMED", 0.0)
    submit(store, "r", "ada")
    one, idle = dispatcher(home), Hand(store, "idle")
    one.step()
    assert idle.granted() == ("r", "start")
    idle.roster.say(idle.name, idle.owner, "starting")
    other = Hand(store, "other")
    one.step()
    assert idle.granted() is None
    one._desk._backoff.clear()
    one.step()
    assert other.granted() == ("r", "start")


def test_a_claimed_task_is_not_taken_back(
    home: Home, store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_forge.worker.queue.dispatcher.UNCLAIMED", 0.0)
    submit(store, "r", "ada")
    one, hand = dispatcher(home), Hand(store, "d")
    one.step()
    assert hand.claim()
    one.step()
    assert hand.granted() == ("r", "start")


def test_a_takeover_while_a_task_is_under_way_leaves_nothing_idle(
    home: Home, store: EventStore
) -> None:
    submit(store, "r", "ada")
    first, second = Hand(store, "first"), Hand(store, "second")
    one = dispatcher(home)
    one.step()
    at_work = first if first.granted() else second
    assert at_work.claim()
    at_work.work()
    at_work.rest()
    one.step()
    assert first.granted()
    assert second.granted()
    at_work.rest()  # given back without an event
    another = dispatcher(home)
    another.step()
    another.step()
    assert first.granted()
    assert second.granted()


@pytest.mark.slow
def test_more_runs_than_are_kept_in_memory_all_end(
    home: Home, store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_forge.worker.queue.dispatcher.LOADED", 1)
    for number in range(3):
        submit(store, f"r{number}", f"u{number}")
    hands = [Hand(store, f"d{n}") for n in range(2)]
    one = dispatcher(home)
    one._desk._backoff.clear()
    carry(one, hands, random.Random(3), most=8000)
    assert all(repository.load(store, f"r{n}").completed for n in range(3))


def test_a_run_that_was_set_aside_comes_back_when_something_is_recorded(
    home: Home, store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(store, "r", "ada")
    one, hand = dispatcher(home), Hand(store, "d")
    with monkeypatch.context() as patch:
        patch.setattr("agent_forge.worker.queue.dispatcher.decide", lambda state: 1 / 0)
        one.step()
        one.step()
    assert hand.granted() is None
    one.step()
    assert hand.granted() is None
    store.append(stream("evomerge", "r"), 1, [New(events.PriorityChanged(priority=1), "r/priority/1")])
    one.step()
    assert hand.granted() == ("r", "start")


def test_a_newer_event_of_the_queue_is_passed_over(home: Home, store: EventStore) -> None:
    class Newer(user_limits.LimitsChanged):
        type = "quotas_changed"

    user_limits.change(store, "ada", weight=2)
    store.append(user_limits.STREAM, 1, [New(Newer(owner="ada"), "queue/newer")])
    assert user_limits.read(store).weights == {"ada": 2}
    submit(store, "r", "ada")
    one, hand = dispatcher(home), Hand(store, "d")
    one.step()
    assert hand.granted() == ("r", "start")
