"""Any order of submitting, working, crashing and losing messages leaves the log that a model has.

The store is real and on disk. The broker is a list of messages, as bad as brokers are: it loses them,
delivers them twice, late and in any order. Workers read a stream, decide at a version, and append
under keys; between the two anything may happen. They die at the failpoints of the log and come back
without memory. A reconciler sends again what the log has not got. A follower reads by position.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agent_forge.events import ConcurrencyError, EventStore, New, chain, failpoints
from agent_forge.events.databases.sqlite import open_store
from testing.stores.contract import Counted

STREAMS = ("a", "b")
WORKERS = 3
#: Those of an append, in order; what was decided is recorded from the last one on.
PLACES = ("append-began", "append-inserted", "append-committed")


class Crash(BaseException):
    """A process that ends: nothing may catch it."""


class Message(NamedTuple):
    """Please do this job: it ends with all of its keys in the stream."""

    stream: str
    keys: tuple[str, ...]


@dataclass
class Worker:
    """A process: its connections, and what it remembers."""

    store: EventStore
    #: The message in hand, the version that it was decided at.
    job: tuple[Message, int] | None = None


class Broker:
    """Messages on their way, the late ones apart."""

    def __init__(self) -> None:
        self.ready: list[Message] = []
        self.late: list[Message] = []

    def take(self, number: int) -> Message:
        return self.ready.pop(number % len(self.ready))


numbers = st.integers(0, 5)


class Machine(RuleBasedStateMachine):
    """Rules are what may happen; `model` is what the log must then be."""

    empty: Path

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.log = self.folder / "log.db"
        shutil.copyfile(self.empty, self.log)
        self.crash_at: str | None = None
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(failpoints, "hit", self._hit)
        self.workers = [Worker(open_store(self.log)) for _ in range(WORKERS)]
        self.reader = open_store(self.log)
        self.broker = Broker()
        self.submitted: list[Message] = []
        self.model: dict[str, list[str]] = {stream: [] for stream in STREAMS}
        self.order: list[str] = []
        self.followed: list[Any] = []

    @classmethod
    def prepare(cls, path: Path) -> None:
        """Make the log that every example begins with a copy of."""
        cls.empty = path
        open_store(path).close()

    def _hit(self, name: str) -> None:
        if name == self.crash_at:
            raise Crash(name)

    # What users and the broker do

    @initialize(sizes=st.lists(st.integers(1, 3), min_size=2, max_size=6))
    def begin(self, sizes: list[int]) -> None:
        for number, size in enumerate(sizes):
            self.submit(STREAMS[number % len(STREAMS)], size)

    @rule(stream=st.sampled_from(STREAMS), events=st.integers(1, 3))
    def submit(self, stream: str, events: int) -> None:
        number = len(self.submitted)
        message = Message(stream, tuple(f"{number}/{i}" for i in range(events)))
        self.submitted.append(message)
        self.broker.ready.append(message)

    @precondition(lambda self: self.broker.ready)
    @rule(what=st.sampled_from(["lose", "repeat", "turn round", "delay"]), number=numbers)
    def mistreat(self, what: str, number: int) -> None:
        message = self.broker.take(number)
        if what == "repeat":
            self.broker.ready += [message, message]
        elif what == "turn round":
            self.broker.ready = [message, *reversed(self.broker.ready)]
        elif what == "delay":
            self.broker.late.append(message)

    @precondition(lambda self: self.broker.late)
    @rule()
    def arrive_late(self) -> None:
        self.broker.ready.append(self.broker.late.pop(0))

    @rule()
    def reconcile(self) -> None:
        """Send what the log has not got, whether or not it is on its way already."""
        for message in self.submitted:
            here = {row.key for row in self.reader.read(message.stream)}
            if not here.issuperset(message.keys):
                self.broker.ready.append(message)

    # What workers do

    @precondition(lambda self: self.broker.ready or self.busy())
    @rule(
        schedule=st.lists(
            st.tuples(st.booleans(), numbers, st.none() | st.sampled_from(PLACES)),
            min_size=3,
            max_size=9,
        )
    )
    def work(self, schedule: list[tuple[bool, int, str | None]]) -> None:
        """Several steps and both kinds in one rule: else few examples have workers that overlap."""
        for take, number, crash in schedule:
            if take and self.broker.ready and len(self.busy()) < WORKERS:
                self.take(number)
            elif self.busy():
                self.append(number, crash)

    def take(self, number: int) -> None:
        """A worker without one takes a message and decides at the version of now."""
        message = self.broker.take(number)
        mine = next(worker for worker in self.workers if worker.job is None)
        rows = mine.store.read(message.stream)
        assert [row.key for row in rows] == self.model[message.stream]
        mine.job = message, len(rows)

    def busy(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.job is not None]

    def append(self, worker: int, crash: str | None) -> None:
        """Record what was decided, however long ago that was; or die doing it."""
        mine = self.busy()[worker % len(self.busy())]
        assert mine.job is not None
        (message, version), mine.job = mine.job, None
        here = self.model[message.stream]
        known = set(message.keys) <= set(here)
        stale = version != len(here) and not known
        news = [New(Counted(n=len(key)), key) for key in message.keys]
        self.crash_at = crash
        try:
            if stale:
                with pytest.raises(ConcurrencyError) as caught:
                    mine.store.append(message.stream, version, news)
                assert (caught.value.expected, caught.value.actual) == (version, len(here))
            else:
                done = mine.store.append(message.stream, version, news)
                assert [row.key for row in done.rows] == list(message.keys)
                assert done.fresh == (not known)
        except Crash:
            self._restart(mine)
        self.broker.ready += [] if known else [message]  # somebody must look whether it is there
        if not known and not stale and crash in (None, PLACES[-1]):
            here += message.keys
            self.order += message.keys
        self.crash_at = None

    @precondition(lambda self: self.busy())
    @rule(worker=numbers)
    def die(self, worker: int) -> None:
        """With a message in hand, which a broker that was told early does not have any more."""
        self._restart(self.busy()[worker % len(self.busy())])

    def _restart(self, worker: Worker) -> None:
        worker.store.close()
        worker.store, worker.job = open_store(self.log), None

    @rule(limit=st.integers(1, 4))
    def follow(self, limit: int) -> None:
        after = self.followed[-1].position if self.followed else 0
        self.followed += self.reader.read_all(after, limit)

    # What always holds

    @invariant()
    def the_log_is_the_model(self) -> None:
        """Versions are 1 to n, each key is there once, each stream in the order of its appends."""
        for stream, keys in self.model.items():
            rows = self.reader.read(stream)
            assert [row.key for row in rows] == keys
            assert [row.version for row in rows] == list(range(1, len(keys) + 1))
            assert chain.check(rows) == []
        assert len(self.order) == len(set(self.order))

    @invariant()
    def the_follower_saw_each_event_once_in_order(self) -> None:
        assert [row.key for row in self.followed] == self.order[: len(self.followed)]
        positions = [row.position for row in self.followed]
        assert positions == sorted(set(positions))

    def teardown(self) -> None:
        """Once the crashes end, everything that was submitted gets done, and the follower has it."""
        try:
            self.broker = Broker()
            for worker in self.workers:
                worker.job = None
            self.reconcile()
            while self.broker.ready:
                self.take(0)
                self.append(0, None)
            assert sorted(self.order) == sorted(k for m in self.submitted for k in m.keys)
            self.follow(1000)
            assert [row.key for row in self.followed] == self.order
            self.the_log_is_the_model()
        finally:
            for store in [self.reader, *(worker.store for worker in self.workers)]:
                store.close()
            self.patch.undo()
            shutil.rmtree(self.folder)


SETTINGS = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.fixture(autouse=True)
def empty(tmp_path: Path) -> None:
    """A log to copy: making its tables takes longer than an example."""
    Machine.prepare(tmp_path / "empty.db")


@pytest.mark.slow
def test_any_order_of_events_and_accidents_leaves_the_log_of_the_model() -> None:
    """What no list of cases would have named."""
    run_state_machine_as_test(Machine, settings=SETTINGS)


@pytest.mark.slow
@pytest.mark.parametrize("slip", ["keys are not looked up", "versions are not compared"])
def test_the_machine_finds_a_store_that_breaks_its_promise(
    monkeypatch: pytest.MonkeyPatch, slip: str
) -> None:
    """A machine that cannot fail proves nothing."""
    append = EventStore.append

    def careless(store: EventStore, stream: str, version: int, events: Any) -> Any:
        if slip.startswith("keys"):
            events = [New(new.event, f"{new.key}@{version}") for new in events]
        return append(store, stream, version if slip.startswith("keys") else None, events)

    monkeypatch.setattr(EventStore, "append", careless)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            Machine,
            settings=settings(
                SETTINGS,
                max_examples=300,
                database=None,
                phases=[Phase.generate],
                report_multiple_bugs=False,
            ),
        )
