"""Wait in a test for what other processes or threads do."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest


def wait_until(done: Callable[[], object], what: str, seconds: float = 60) -> None:
    """Return once `done()` is true; fail the test with `what` if it is not within `seconds`.

    The limit ends only a test that fails: a busy machine is no defect.
    """
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            pytest.fail(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.02)
