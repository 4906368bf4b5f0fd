"""The table of a study: its arms, and the figures that follow from their comparison. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from runs.event_types import Figure
from studies.paired_bits import figure
from studies.run import Run


@dataclass(frozen=True)
class Arm:
    """A model that is compared on the test slice: what it is in words, and its group in pictures."""

    words: str
    group: str


def words(arms: Mapping[str, Arm]) -> dict[str, str]:
    """Return arm → what it is, in words."""
    return {name: arm.words for name, arm in arms.items()}


@dataclass(frozen=True)
class FigureRule:
    """A figure of a completed run: "name in words: what it is", and how it follows from the run."""

    words: str
    value: Callable[[Run], Figure | None]
    unit: str = ""


#: A rule of a share of a whole, such as a relative gain.
share = partial(FigureRule, unit="share")


def bits(words: str, unit: str = "bits/byte") -> FigureRule:
    """Return the rule of our arm's own figure: by default its bits per byte."""

    def rule(run: Run) -> Figure:
        assert run.ours is not None
        return figure(run.mean(run.ours), run.drawn[run.ours], run.windows)

    return FigureRule(words, rule, unit)


def ratio(over: str, words: str) -> FigureRule:
    """Return the rule of an arm's figure over our arm's."""

    def rule(run: Run) -> Figure:
        assert run.ours is not None
        share = run.mean(over) / run.mean(run.ours)
        return figure(share, run.drawn[over] / run.drawn[run.ours], run.windows)

    return share(words, rule)


def lead(over: str, words: str, unit: str = "bits/byte", arm: str | None = None) -> FigureRule:
    """Return the rule of what an arm needs more than another one: by default ours."""

    def rule(run: Run) -> Figure:
        ahead = str(arm or run.ours)
        more = run.mean(over) - run.mean(ahead)
        return figure(more, run.drawn[over] - run.drawn[ahead], run.windows)

    return FigureRule(words, rule, unit)


def count(of: Callable[[Any], float], words: str, unit: str = "") -> FigureRule:
    """Return the rule of a number that follows from what `started` pins; it has no interval."""
    return FigureRule(words, lambda run: Figure(value=of(run.started)), unit)


def derive(study: Any, types: Mapping[str, Any]) -> None:
    """Give a class of studies its events and settings from its state, its figures from their rules."""
    study.submitted, study.forked, study.completed = (
        types[name] for name in ("submitted", "forked", "completed")
    )
    study.config = study.submitted.model_fields["config"].annotation
    rules: Mapping[str, FigureRule] = getattr(study, "figure_rules", {})
    study.figures_of = {name: rule.words for name, rule in rules.items()}
    study.figure_units = {name: rule.unit for name, rule in rules.items() if rule.unit}
