"""Contract of the log: processes that meet at it, and that are killed in an append."""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Callable

import pytest

from agent_forge.events import Envelope
from testing.stores.backend import Backend
from testing.stores.example_events import assert_chained, keys, new
from testing.waiting import PATIENCE

_CROWD = """
for n in range(6):
    while True:
        try:
            store.append("shared", store.version("shared"), [New(Counted(n=n), f"{name}/s/{n}")])
            break
        except ConcurrencyError:
            print("again", flush=True)
    store.append(f"own-{name}", n, [New(Counted(n=n), f"{name}/o/{n}")])
"""

_PAIRS = """
for n in range(4):
    store.append("s", 2 * n, [New(Counted(n=n), f"{n}/a"), New(Counted(n=n), f"{n}/b")])
"""

_FOREVER = """
import itertools
for n in itertools.count():
    store.append("s", n, [New(Counted(n=n), str(n))])
    print(n, flush=True)
"""


class Processes(Backend):
    """Several processes at one log."""

    # Several processes

    @pytest.fixture(scope="class")
    @classmethod
    def crowd(cls, new_place: Callable[[], str]) -> list[Envelope]:
        """Return the rows of a new log that three processes opened and appended to at once."""
        place = new_place()
        children = [cls.child(_CROWD, place, name) for name in "abc"]
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        ends = [(*child.communicate(timeout=PATIENCE), child.returncode) for child in children]
        assert [(errors, code) for _, errors, code in ends] == [("", 0)] * 3
        store = cls.open(place)
        rows = store.read_all()
        store.close()
        return rows

    def test_processes_that_append_to_one_stream_lose_nothing(self, crowd: list[Envelope]) -> None:
        """Each must see the other's append as a ConcurrencyError, never as "database is locked"."""
        rows = [row for row in crowd if row.stream == "shared"]
        assert sorted(keys(rows)) == sorted(f"{name}/s/{n}" for name in "abc" for n in range(6))
        assert_chained(rows)

    def test_processes_that_append_to_streams_of_their_own_do_not_meet(
        self, crowd: list[Envelope]
    ) -> None:
        """Two runs in one log never make each other try again."""
        streams = Counter(row.stream for row in crowd)
        assert streams == {"shared": 18, "own-a": 6, "own-b": 6, "own-c": 6}
        for name in "abc":
            rows = [row for row in crowd if row.stream == f"own-{name}"]
            assert keys(rows) == [f"{name}/o/{n}" for n in range(6)]
            assert_chained(rows)

    def test_positions_of_many_writers_are_unique_and_follow_the_versions(
        self, crowd: list[Envelope]
    ) -> None:
        """A reader that goes by position must see each stream in its own order."""
        assert len({row.position for row in crowd}) == len(crowd) == 36
        for stream in {row.stream for row in crowd}:
            versions = [row.version for row in crowd if row.stream == stream]
            assert versions == sorted(versions)

    @pytest.mark.parametrize(
        ("fail", "survive"),
        [("kill:append-began:3", 4), ("kill:append-inserted:3", 4), ("kill:append-committed:3", 6)],
    )
    def test_a_process_killed_in_an_append_leaves_all_of_it_or_nothing(
        self, place: str, fail: str, survive: int
    ) -> None:
        """A crash is the normal case: the log opens again, and the same append can be made again."""
        child = self.child(_PAIRS, place, fail=fail)
        _, errors = child.communicate("go\n", timeout=PATIENCE)
        assert child.returncode == -signal.SIGKILL, errors
        store = self.open(place)
        rows = store.read("s")
        again = store.append("s", 4, [new("2/a"), new("2/b")])
        after = store.read("s")
        store.close()
        assert keys(rows) == ["0/a", "0/b", "1/a", "1/b", "2/a", "2/b"][:survive]
        assert again.fresh == (survive == 4)
        assert keys(after) == ["0/a", "0/b", "1/a", "1/b", "2/a", "2/b"]
        assert_chained(after)

    def test_what_an_append_returned_for_outlives_a_kill_at_any_moment(self, place: str) -> None:
        """Durable when it returns: a caller that was told "recorded" may act on it."""
        child = self.child(_FOREVER, place)
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write("go\n")
        child.stdin.flush()
        for _ in range(15):
            child.stdout.readline()
        child.kill()
        said = child.stdout.read()  # communicate() would lose what readline() has read ahead
        _, errors = child.communicate(timeout=PATIENCE)
        assert errors == ""
        last = max([13, *(int(line) for line in re.findall(r"^(\d+)\n", said, re.M))])
        store = self.open(place)
        rows = store.read("s")
        store.close()
        assert len(rows) in (last + 1, last + 2)
        assert_chained(rows)
