"""Scores of mixtures beside what was asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agent_forge.phases.experts.recipes import Scored, Scoring
from agent_forge.phases.experts.search.generations import Search
from agent_forge.phases.experts.search.techniques import MixtureSpace
from agent_forge.phases.experts.settings import ExpertsConfig


@pytest.mark.parametrize(
    ("probe", "measured", "said"),
    [
        (2, 2, None),  # the probe is the whole
        (1, 1, None),
        (1, 2, "a mixture was given up, or was not, against the rule"),
    ],
)
def test_a_mixture_far_behind_is_measured_on_the_probe_and_that_may_be_all(
    probe: int, measured: int, said: str | None
) -> None:
    """The probe was of both windows that there were, and the audit called the mixture wrong."""
    config = ExpertsConfig.model_validate({"windows": 2, "probe": probe, "population": 4})
    given: Any = SimpleNamespace(items={"code": (1.0, 1.0)})
    search = Search(config, {}, "mixtures", MixtureSpace(0, ("code",)), given)
    items = {"code": (9.0,) * measured}
    event = Scored(arm="mixtures", number=0, first=0, items=(items,), seconds=0.0)
    assert search.wrong_scores(Scoring("mixtures", 0, 0, 1), event) == said
