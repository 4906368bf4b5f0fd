"""Wait in a test for what other processes or threads do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import pytest

T = TypeVar("T")

#: Seconds that a test waits at most for what must come. They end only a test that fails: a machine that
#: does twenty things at once is no defect.
PATIENCE = 600.0


def wait_until(
    done: Callable[[], T], what: str | Callable[[], str], seconds: float = PATIENCE, pause: float = 0.02
) -> T:
    """Return `done()` once it is true; fail the test with `what` if it is not within `seconds`."""
    end = time.monotonic() + seconds
    while not (result := done()):
        if time.monotonic() > end:
            pytest.fail(f"not within {seconds:.0f} s: {what if isinstance(what, str) else what()}")
        time.sleep(pause)
    return result
