"""Shares of the slow tests."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testing import shares

FILES = [f"tests/unit/test_{n}.py" for n in range(40)]


def item(file: str, *marks: str) -> Any:
    """Make what pytest knows of a test."""
    found = dict.fromkeys(marks, True)
    return SimpleNamespace(path=Path(shares.ROOT / file), get_closest_marker=found.get)


def test_a_slow_test_is_in_one_share_and_every_other_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for k in range(3):
        monkeypatch.setenv("FORGE_TEST_SHARE", f"{k}/3")
        counts.append([shares.has(item(file, "slow")) for file in FILES])
        assert all(shares.has(item(file)) for file in FILES)
        assert all(shares.has(item(file, "slow", "smoke")) for file in FILES)
    assert [sum(one) for one in zip(*counts, strict=True)] == [1] * len(FILES)
    assert all(map(any, counts))


def test_without_a_share_a_session_has_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORGE_TEST_SHARE", raising=False)
    assert all(shares.has(item(file, "slow")) for file in FILES)


@pytest.mark.parametrize("text", ["3/3", "1", "a/b", "0/0", "-1/3"])
def test_a_share_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("FORGE_TEST_SHARE", text)
    with pytest.raises(pytest.UsageError, match="FORGE_TEST_SHARE"):
        shares.share()
