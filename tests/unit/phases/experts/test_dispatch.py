"""Dispatch: the factors of a domain follow from the losses that were recorded."""

from __future__ import annotations

import pytest

from agent_forge.phases.experts import figures
from agent_forge.phases.experts.settings import ExpertsConfig

CONFIG = ExpertsConfig.model_validate({"points": 24, "rounds": 12})


def test_the_mixture_of_a_domain_is_found() -> None:
    """Its loss is least where the first expert has 0.8 and the second −0.2."""
    normal, losses = figures.begin(2), []
    assert normal.mean == (0.5, 0.5)
    for number in range(CONFIG.rounds):
        asked = figures.points(CONFIG, "code", number, normal)
        losses.append([(a - 0.8) ** 2 + (b + 0.2) ** 2 for a, b in asked])
        normal = figures.follow(CONFIG, asked, losses[-1])
    assert normal.mean == pytest.approx((0.8, -0.2), abs=0.05)
    assert figures.factors(CONFIG, "code", 2, losses) == normal.mean
    assert figures.factors(CONFIG, "math", 2, losses) != normal.mean


def test_settings_that_contradict_each_other_are_refused() -> None:
    for settings, words in (
        ({"windows": 2, "probe": 3}, "measured on 2 windows"),
        ({"optimiser": "muon"}, "trained by adamw"),
        ({"parts": ["mlp", "mlp"]}, "each part once"),
    ):
        with pytest.raises(ValueError, match=words):
            ExpertsConfig.model_validate(settings)
    assert ExpertsConfig.model_validate({"parts": ("mlp", "attention")}).parts == ("attention", "mlp")
