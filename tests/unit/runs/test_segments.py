"""How many steps a segment of a training has: by the pace of the machine, or as it is said."""

from __future__ import annotations

import pytest

from agent_forge.runs.errors import ConfigError
from agent_forge.runs.home import segment_steps


@pytest.mark.parametrize(
    ("seconds", "step", "steps"),
    [
        (None, 0.5, 120),  # a minute
        ("30", 0.5, 60),
        ("30", 0.8, 38),  # 37.5
        ("1e-9", 0.5, 1),  # never none
        ("60", 0.0, 10**9),  # a clock that saw no time
    ],
)
def test_a_segment_has_the_steps_of_its_seconds(
    monkeypatch: pytest.MonkeyPatch, seconds: str | None, step: float, steps: int
) -> None:
    monkeypatch.delenv("FORGE_SEGMENT_STEPS", raising=False)
    monkeypatch.delenv("FORGE_SEGMENT_SECONDS", raising=False)
    if seconds is not None:
        monkeypatch.setenv("FORGE_SEGMENT_SECONDS", seconds)
    assert segment_steps(step) == steps


@pytest.mark.parametrize("step", [0.0, 1e-6, 1e6])
def test_a_number_of_steps_holds_at_any_pace(monkeypatch: pytest.MonkeyPatch, step: float) -> None:
    """On a busy machine a training was cut where a test expected it whole."""
    monkeypatch.setenv("FORGE_SEGMENT_STEPS", "7")
    assert segment_steps(step) == 7


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FORGE_SEGMENT_STEPS", "0"),
        ("FORGE_SEGMENT_STEPS", "-3"),
        ("FORGE_SEGMENT_STEPS", "many"),
        ("FORGE_SEGMENT_STEPS", "2000000000"),
        ("FORGE_SEGMENT_SECONDS", "0"),
        ("FORGE_SEGMENT_SECONDS", "nan"),
        ("FORGE_SEGMENT_SECONDS", "soon"),
    ],
)
def test_a_length_that_makes_no_sense_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=f"{name} is '{value}'"):
        segment_steps(1.0)
