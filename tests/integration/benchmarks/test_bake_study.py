"""The study of bakes: its arms, and which learning rate its table names."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import pytest

from benchmarks.phases import bake_study


def asked(arms: str) -> Namespace:
    return Namespace(arms=arms, ranks="2,8", rates="0.001,0.004", full_rates="0.0003")


def test_a_grid_has_an_arm_for_each_rank_and_rate() -> None:
    found = bake_study.arms_of(asked("row,full,lora"))
    grid = ["lora-2-0.001", "lora-2-0.004", "lora-8-0.001", "lora-8-0.004"]
    assert list(found) == ["row", "full-0.0003", *grid]
    assert found["row"] == bake_study.ARMS["row"]
    assert found["lora-8-0.004"][2] == {"train": "lora", "lora_rank": 8, "rate": 0.004}
    with pytest.raises(KeyError):
        bake_study.arms_of(asked("poetry"))


def report(ratio: float, drift: float, test: float) -> dict[str, Any]:
    """Return the part of a report that `rates` reads; its model was chosen at strength 0.5."""
    value = {"value": test, "low": None, "high": None}
    return {
        "strengths": {"interpolated": {"0": (1.0, 0.0), "0.5": (ratio, drift)}},
        "figures": {"strength": {"value": 0.5}, "ratio": value, "drift": value},
        "trained": 10,
        "parameters": 100,
    }


def test_a_rate_is_chosen_on_the_selection_slice_among_those_that_do_not_drift() -> None:
    """The one with the least ratio drifts, and the test slice has no say."""
    rows = [
        ("tiny", "lora-2-0.001-0", report(0.2, 0.001, 0.1)),
        ("tiny", "lora-2-0.004-0", report(0.1, 0.004, 0.3)),
        ("tiny", "lora-2-0.016-0", report(0.01, 0.02, 0.01)),
        ("tiny", "full-0.0001-0", report(0.3, 0.02, 0.5)),
        ("tiny", "row-0", report(0.0, 0.0, 0.0)),
    ]
    assert bake_study.rates(rows)[1:] == [
        "- tiny full, seed 0: 0.0001 of 1; 10 of 100 parameters, ratio 0.5000, drift 50.00%",
        "- tiny lora-2, seed 0: 0.004 of 3; 10 of 100 parameters, ratio 0.3000, drift 30.00%",
    ]
    assert bake_study.rates(rows[-1:]) == []
