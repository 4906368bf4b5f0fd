"""Commits that threads share: who commits for whom, and whom an error reaches."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

import pytest

from agent_forge.events import StoreUnavailableError
from agent_forge.events.database import GroupCommit
from testing.waiting import PATIENCE, wait_until


class Interrupted(BaseException):
    """An interrupt as Ctrl-C raises it, without the signal."""


class Commits:
    """A group whose commits are noted, and whose first commit lasts until `gate` is set."""

    def __init__(self, commit: Callable[[Sequence[int]], Sequence[str | Exception]]) -> None:
        self.gate, self.began = threading.Event(), threading.Event()
        self.groups: list[list[int]] = []
        self.outcomes: dict[int, str | BaseException] = {}
        self.threads: list[threading.Thread] = []
        self._commit = commit
        self.group = GroupCommit(self._noted)

    def _noted(self, items: Sequence[int]) -> Sequence[str | Exception]:
        self.groups.append(list(items))
        self.began.set()
        assert self.gate.wait(PATIENCE)
        return self._commit(items)

    def _share(self, item: int) -> None:
        try:
            self.outcomes[item] = self.group.share(item)
        except BaseException as error:
            self.outcomes[item] = error

    def start(self, item: int) -> None:
        """Start a thread with an item, and wait until it leads or waits."""
        self.threads.append(threading.Thread(target=self._share, args=(item,)))
        self.threads[-1].start()
        assert self.began.wait(PATIENCE)
        if item:
            line = self.group._lines[os.getpid()][0]
            wait_until(lambda: item in [w.item for w in list(line)], "the thread waits", pause=0.001)

    def run(self, number: int) -> dict[int, str | BaseException]:
        """Return the outcomes of `number` items: the first commits alone, the others wait for it."""
        for item in range(number):
            self.start(item)
        self.gate.set()
        for thread in self.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        return self.outcomes


def words(items: Sequence[int]) -> list[str | Exception]:
    """Return an outcome for each item: item 3 is refused."""
    return [ValueError("three") if item == 3 else str(item) for item in items]


def test_threads_that_wait_are_committed_together_in_their_order() -> None:
    """One commit for five is the point of it."""
    commits = Commits(lambda items: [str(item) for item in items])
    assert commits.run(6) == {n: str(n) for n in range(6)}
    assert commits.groups == [[0], [1, 2, 3, 4, 5]]


def test_a_thread_alone_commits_at_once() -> None:
    """There is nobody to wait for."""
    group = GroupCommit[int, int](list)
    assert [group.share(n) for n in range(3)] == [0, 1, 2]


def test_an_error_of_one_item_reaches_its_thread_alone() -> None:
    """A conflict is a message to the caller who made it."""
    commits = Commits(words)
    outcomes = commits.run(5)
    assert isinstance(outcomes.pop(3), ValueError)
    assert outcomes == {n: str(n) for n in (0, 1, 2, 4)}
    assert len(commits.groups) == 2


def test_after_an_error_of_the_whole_commit_each_item_is_committed_alone() -> None:
    """Others are committed when the database refuses one append."""

    def refuse(items: Sequence[int]) -> Sequence[str]:
        if 3 in items:
            raise OSError("no three")
        return [str(item) for item in items]

    commits = Commits(refuse)
    outcomes = commits.run(5)
    assert isinstance(outcomes.pop(3), OSError)
    assert outcomes == {n: str(n) for n in (0, 1, 2, 4)}
    assert commits.groups == [[0], [1, 2, 3, 4], [1], [2], [3], [4]]


def test_an_error_after_a_long_wait_reaches_every_thread_of_the_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Eight threads must not wait for a lock of 30 seconds one after the other."""
    now = [0.0]
    monkeypatch.setattr("agent_forge.events.database.time.monotonic", lambda: now[0])

    def locked(items: Sequence[int]) -> Sequence[str]:
        if len(items) == 1:
            return [str(item) for item in items]
        now[0] += 30
        raise StoreUnavailableError("log.db", "database is locked")

    group = GroupCommit(locked)
    outcomes = group._outcomes([1, 2, 3])
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailableError] * 3


def test_an_interrupted_leader_leaves_the_others_to_another_thread() -> None:
    """Ctrl-C in one thread; the others have done nothing wrong. Its own item is not committed later."""
    calls: list[int] = []

    def interrupt(items: Sequence[int]) -> Sequence[str]:
        calls.append(len(items))
        if len(calls) == 2:
            raise Interrupted
        return [str(item) for item in items]

    commits = Commits(interrupt)
    outcomes = commits.run(5)
    assert isinstance(outcomes.pop(1), Interrupted)
    assert outcomes == {n: str(n) for n in (0, 2, 3, 4)}
    assert commits.groups == [[0], [1, 2, 3, 4], [2, 3, 4]]


def test_a_forked_process_does_not_wait_for_threads_that_it_does_not_have() -> None:
    """The parent's leader holds its lock in the child's copy for ever."""
    commits = Commits(lambda items: [str(item) for item in items])
    commits.start(0)
    commits.start(1)
    child = os.fork()
    if not child:
        commits.gate.set()
        os._exit(0 if commits.group.share(7) == "7" and commits.groups[-1] == [7] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert commits.run(0) == {0: "0", 1: "1"}


def test_many_threads_and_many_items_all_get_their_own_outcome() -> None:
    """No wake-up is lost and no outcome is mixed up, in whatever order threads come."""
    group = GroupCommit[int, int](lambda items: [-item for item in items])
    wrong: list[int] = []

    def work(thread: int) -> None:
        wrong.extend(n for n in range(thread, 4000, 8) if group.share(n) != -n)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
