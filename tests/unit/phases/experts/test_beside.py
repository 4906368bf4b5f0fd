"""Figures of experts beside adapters, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from agent_forge.phases.experts import figures
from agent_forge.studies.events import Observed


def seen(rows: float, sums: float, text: float) -> Observed:
    """Results of a model, with one window of each domain."""
    values = {"rows": rows, "sums": sums, "text": text}
    return Observed(
        recipe_id="0" * 64,
        measure="bits-per-byte@1",
        on="test",
        values=values,
        items={domain: (value,) for domain, value in values.items()},
        sizes=dict.fromkeys(values, (1,)),
        seconds=0.0,
    )


ARMS = {
    "given": seen(2.0, 1.0, 4.0),
    "only-rows": seen(1.0, 1.5, 4.0),  # own +50 %; others +50 %, 0 %
    "only-sums": seen(2.2, 0.9, 4.4),  # own +10 %; others +10 %, +10 %
    "lora-rows": seen(1.2, 2.0, 4.0),  # own +40 %; others +100 %, 0 %
    "lora-sums": seen(2.0, 0.8, 8.0),  # own +20 %; others 0 %, +100 %
}


def drawn(arms: dict[str, Observed]) -> dict[str, dict[str, np.ndarray]]:
    """Two resamples: as measured, and all twice as large."""
    return {
        arm: {domain: np.asarray([value, 2 * value]) for domain, value in one.values.items()}
        for arm, one in arms.items()
    }


def test_gains_and_damages_are_means_over_experts_and_other_domains() -> None:
    found = figures.figures(["rows", "sums"], ARMS, drawn(ARMS))
    assert set(found) == set(figures.FIGURES)
    wanted = {
        "own": 0.3,
        "damage": 0.175,
        "lora_own": 0.3,
        "lora_damage": 0.5,
        "own_over_lora": 0.0,
        "damage_over_lora": -0.325,
    }
    for name, value in wanted.items():
        assert found[name].value == pytest.approx(value), name
        assert found[name].low == pytest.approx(value), name
        assert found[name].n == 3


def test_without_adapters_or_experts_nothing_is_told() -> None:
    """Runs that trained no adapters have recorded no such figures."""
    own = {arm: one for arm, one in ARMS.items() if not arm.startswith("lora-")}
    assert figures.figures(["rows", "sums"], own, drawn(own)) == {}
    assert figures.figures([], ARMS, drawn(ARMS)) == {}
