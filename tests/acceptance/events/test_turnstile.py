"""Turns at a file: fair among many, and never a wait for good."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from events.fair_lock import Turnstile
from events.sqlite import open_store
from testing.store_contract import new

_STANDS_IN_THE_ROOM = """
import os, signal, sys
from pathlib import Path
from events.fair_lock import Turnstile
with Turnstile(Path(sys.argv[1])).turn():
    print("in", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
print("out", flush=True)
"""


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that was stopped while it had the turn at `log.db`."""
    process = subprocess.Popen(
        [sys.executable, "-c", _STANDS_IN_THE_ROOM, str(tmp_path / "log.db")],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout
    assert process.stdout.readline() == "in\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_one_at_a_time_while_everybody_comes_out(tmp_path: Path) -> None:
    inside, most, done = 0, 0, 0

    def work() -> None:
        nonlocal inside, most, done
        turnstile = Turnstile(tmp_path / "log.db")
        for _ in range(50):
            with turnstile.turn():
                inside += 1
                most = max(most, inside)
                time.sleep(0.0001)
                inside -= 1
                done += 1
        turnstile.close()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, done) == (1, 300)


def test_nobody_waits_for_good_for_a_process_that_was_stopped(
    tmp_path: Path, stopped: subprocess.Popen[str]
) -> None:
    turnstile = Turnstile(tmp_path / "log.db")
    turnstile.patience = 0.3
    began = time.monotonic()
    with turnstile.turn():
        waited = time.monotonic() - began
    for _ in range(20):
        with turnstile.turn():
            pass
    later = time.monotonic() - began - waited
    assert 0.3 <= waited < 5
    assert later < 0.3, "who has given up does not wait anew each time"
    stopped.send_signal(signal.SIGCONT)
    assert stopped.wait(10) == 0
    wait_until_taken_in_turns_again(turnstile, tmp_path)


def wait_until_taken_in_turns_again(turnstile: Turnstile, tmp_path: Path) -> None:
    """The one who stood in the queue has left, and turns are real again."""
    other = Turnstile(tmp_path / "log.db")
    other.patience = 0.1
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with ExitStack() as stack:
            stack.enter_context(turnstile.turn())
            began = time.monotonic()
            with other.turn():
                if time.monotonic() - began >= 0.1:
                    return
        time.sleep(0.01)
    pytest.fail("the turnstile stays open")


def test_a_log_is_written_while_somebody_stands_stopped_at_the_turnstile(
    tmp_path: Path, stopped: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds no lock of SQLite's: what is appended is recorded, a little later."""
    monkeypatch.setattr(Turnstile, "patience", 0.3)
    store = open_store(tmp_path / "log.db")
    store.append("s", 0, [new("a")])
    assert store.version("s") == 1
    store.close()
