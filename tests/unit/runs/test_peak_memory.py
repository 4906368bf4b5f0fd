"""The most private memory that a piece of work took."""

from __future__ import annotations

import mmap
import time
from pathlib import Path

from agent_forge.runs.kinds.forecast import Amount, Forecast, unknown
from agent_forge.runs.system.process_limits import PERIOD, memory, peak_memory
from testing.waiting import wait_until

MIB = 1 << 20


def test_memory_that_was_given_back_within_the_work_counts() -> None:
    before = memory()
    with peak_memory() as peak:
        block = bytearray(b"x" * (128 * MIB))  # written to, so that the pages exist
        wait_until(lambda: peak[0] >= before + 120 * MIB, "the memory is seen")
        del block
    assert before + 120 * MIB <= peak[0]
    after = peak[0]
    later_block = bytearray(b"x" * (256 * MIB))
    time.sleep(3 * PERIOD)
    assert peak[0] == after, "what comes later does not count"
    del later_block


def test_memory_that_only_maps_a_file_is_not_private(tmp_path: Path) -> None:

    file = tmp_path / "mapped"
    file.write_bytes(b"x" * (64 * MIB))
    before = memory()
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert sum(mapped[place] for place in range(0, 64 * MIB, 4096)) == ord("x") * 64 * MIB // 4096
        assert memory() < before + 32 * MIB


def test_a_forecast_says_the_larger_of_what_is_counted_and_what_its_trial_took() -> None:
    amount = Amount(1.0, "counted")
    forecast = Forecast(amount, amount, Amount(100.0, "counted: weights"))
    assert forecast.held(100).memory == Amount(100.0, "counted: weights")
    assert forecast.held(101).memory.value == 101
    assert forecast.held(101).memory.how.startswith("measured here")
    assert unknown("why").held(10**9).memory == Amount(None, "why")
