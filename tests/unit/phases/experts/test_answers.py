"""Scores of mixtures beside what was asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from phases.experts import answers


@pytest.mark.parametrize(
    ("probe", "measured", "said"),
    [
        (2, 2, None),  # the probe is the whole
        (1, 1, None),
        (1, 2, "a mixture was given up, or was not, against the rule"),
    ],
)
def test_a_mixture_far_behind_is_measured_on_the_probe_and_that_may_be_all(
    probe: int, measured: int, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe was of both windows that there were, and the audit called the mixture wrong."""
    behind = SimpleNamespace(gives_up=lambda items, given: True)
    given = SimpleNamespace(items={"code": (1.0, 1.0)})
    search = SimpleNamespace(given=given, bar=lambda number: behind)
    monkeypatch.setattr(answers.stages, "searches", lambda state: {"nsga2": search})
    config = SimpleNamespace(probe=probe)
    state: Any = SimpleNamespace(submitted=SimpleNamespace(config=config))
    task: Any = SimpleNamespace(arm="nsga2", number=0, first=0, last=1)
    event: Any = SimpleNamespace(
        arm="nsga2", number=0, first=0, items=({"code": (9.0,) * measured},)
    )
    assert answers.wrong_scores(state, task, event) == said
