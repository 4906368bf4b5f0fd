"""Shares of the slow tests: a session runs one of them, and the next session another.

`FORGE_TEST_SHARE=K/N` leaves out the slow tests of all files but every N-th, beginning with the K-th
(from 0). Tests that are quick, and of each slow kind one marked `smoke`, are in every share. A file's
slow tests stay together, because they share what is costly to set up. `.ci/run` takes another share for
each commit, so that N commits in a row run everything that is not marked `soak`.
"""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


def share() -> tuple[int, int]:
    """Return (K, N) of `FORGE_TEST_SHARE`; (0, 1) without it. Raises pytest.UsageError."""
    text = os.environ.get("FORGE_TEST_SHARE") or "0/1"
    found = re.fullmatch(r"([0-9]+)/([1-9][0-9]*)", text)
    if found is None or int(found[1]) >= int(found[2]):
        raise pytest.UsageError(f"FORGE_TEST_SHARE is {text!r}: give K/N with K from 0 to N - 1.")
    return int(found[1]), int(found[2])


def one_quick(*values: Any) -> list[Any]:
    """Return a test's parameters, all but the first one marked slow."""
    first, *others = values
    return [first, *(as_slow(value) for value in others)]


def as_slow(value: Any) -> Any:
    """Return a test's parameter, a tuple if the test has several, marked slow."""
    several = value if isinstance(value, tuple) else (value,)
    return pytest.param(*several, marks=pytest.mark.slow)


def has(item: pytest.Item) -> bool:
    """Return True if this session's share has the test."""
    k, n = share()
    if item.get_closest_marker("smoke") or not item.get_closest_marker("slow"):
        return True
    file = item.path.relative_to(ROOT).as_posix()
    return zlib.crc32(file.encode()) % n == k
