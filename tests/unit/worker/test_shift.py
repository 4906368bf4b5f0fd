"""A worker's shift: a signal after its end is the further one that gives tasks back at once."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from agent_forge.worker.devices.service import Crew, Shift


class BusySlot:
    """A device with a task that never ends by itself; it gives up after a thousand looks."""

    name, task, busy_at = "cpu0", "r/t", 0.0

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._looks = 0

    def is_alive(self) -> bool:
        """Return True until the device is killed, or was looked at a thousand times."""
        self._looks += 1
        return "kill" not in self.calls and self._looks < 1000

    def doing(self) -> str:
        """Return the task in words."""
        return "r/t"

    def stop(self) -> None:
        """Note that the device was asked to stop."""
        self.calls.append("stop")

    def kill(self) -> None:
        """Note that the device was killed."""
        self.calls.append("kill")


@pytest.mark.parametrize(
    ("shift", "signals", "drained_by"),
    [
        (Shift(seconds=0, notice=3600), 1, 0),
        (Shift(frozenset({signal.SIGUSR1}), notice=3600), 2, signal.SIGUSR1),
        (Shift(seconds=0, notice=0), 0, 0),
    ],
    ids=["Ctrl-C after the shift's end", "a second signal", "the notice is over"],
)
def test_tasks_are_given_back_at_the_next_signal_or_the_end_of_the_notice(
    monkeypatch: pytest.MonkeyPatch, shift: Shift, signals: int, drained_by: int
) -> None:
    crew: Any = Crew.__new__(Crew)
    slot = BusySlot()
    crew.slots = [slot]
    monkeypatch.setattr(crew, "close", lambda: None)
    monkeypatch.setattr("agent_forge.worker.devices.service.time.sleep", lambda seconds: send())
    to_send = [signal.SIGINT] * signals
    if drained_by:
        to_send[0] = signal.SIGUSR1

    def send() -> None:
        """Send the first signal of two at once, the last one only after the devices were stopped."""
        if to_send and (len(to_send) > 1 or slot.calls):
            os.kill(os.getpid(), to_send.pop(0))

    assert crew.wait(shift=shift) == drained_by
    assert slot.calls == ["stop", "kill"]
