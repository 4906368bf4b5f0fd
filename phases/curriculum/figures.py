"""Result and figures of a curriculum run: conclusions from its measurements. Pure.

A model's accuracy is the mean over cells (family and level) of the share of items that it solves.
Intervals are the middle 95 % of a paired bootstrap: items are resampled within each cell, the same for
all arms (`evaluation/measures/bootstrap.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from typing_extensions import override

from agent_forge.evaluation.measures import bootstrap
from agent_forge.evaluation.measures.bootstrap import Counts
from agent_forge.phases.curriculum import recipes
from agent_forge.phases.curriculum.mixing.frontier_rule import Success
from agent_forge.phases.curriculum.recipes import START, Compared, Dreamed, MixChosen
from agent_forge.phases.curriculum.settings import Arm
from agent_forge.runs.event_types import Figure
from agent_forge.runs.panels import panels
from agent_forge.runs.panels.panels import Verdict
from agent_forge.studies import comparison
from agent_forge.studies.comparison import Drawn, draws, figure, mean
from agent_forge.studies.events import Observed
from agent_forge.studies.run import FigureRule, StudyRun
from agent_forge.weights.recipes import Train

MEASURE = "exact-answers@1"
ADAPTIVE, UNIFORM = "adaptive", "uniform"
#: Arms that are `adaptive` with an addition.
BESIDE: tuple[Arm, ...] = ("chaos", "dreams", "self_model", "stages")


@dataclass
class ArmCourse:
    """The training of one arm so far, segment by segment."""

    arm: Arm
    #: The mixes that are chosen, and the recipes of the segments with these.
    mixes: list[MixChosen] = field(default_factory=list)
    segments: list[Train] = field(default_factory=list)
    #: What was measured on the selection slice: of the start, and after each segment.
    measured: list[Observed] = field(default_factory=list)
    #: Number of a segment → what was dreamt before it.
    dreamt: dict[int, Dreamed] = field(default_factory=dict)

    @property
    def accuracy(self) -> list[float]:
        """List of the accuracy before the first segment and after each that is measured."""
        return [mean(event) for event in self.measured]

    def of(self, recipe_id: str) -> Observed:
        """Return the measurement of the model with this recipe id."""
        return next(event for event in self.measured if event.recipe_id == recipe_id)

    def burst(self, segment: int) -> tuple[float, float]:
        """Return (accuracy before, accuracy after) a measured segment, counted from 0."""
        return mean(self.of(self.segments[segment].start)), mean(self.measured[segment + 1])

    def origin(self, relapse: float) -> str:
        """Return the recipe id of the model that the next segment begins with.

        It is the newest model. If the newest segment had a burst and lost more accuracy than `relapse`,
        it is the model before that segment.
        """
        if self.mixes and "chaos" in self.mixes[-1].added:
            before, after = self.burst(len(self.mixes) - 1)
            if before - after > relapse:
                return self.segments[-1].start
        return self.measured[-1].recipe_id


class CurriculumRun(StudyRun):
    """A curriculum run with all that its script has said. Arms are compared by accuracy."""

    #: Arm → how far it has come.
    courses: Mapping[str, ArmCourse]

    @cached_property
    @override
    def drawn(self) -> Drawn:
        return drawn(self.seen, self.settings.seed)

    @cached_property
    @override
    def leads(self) -> dict[str, Figure]:
        """Arm → the accuracy of the result minus the arm's, with the interval."""
        if self.result not in self.seen:
            return {}
        rivals = (arm for arm in self.seen if arm != self.result)
        return {arm: lead(self.seen, self.drawn, self.result, arm) for arm in rivals}


# ---- accuracy ----------------------------------------------------------------------------------


def success(event: Observed) -> dict[str, Success]:
    """Return cell → (share of items solved, number of items)."""
    return {name: Success(rate, len(event.items[name])) for name, rate in event.values.items()}


def families(event: Observed) -> dict[str, float]:
    """Return family → accuracy, the mean over its levels."""
    rates: dict[str, list[float]] = {}
    for name, rate in event.values.items():
        rates.setdefault(name.partition("/")[0], []).append(rate)
    return {family: sum(levels) / len(levels) for family, levels in rates.items()}


def drawn(observations: Mapping[str, Observed], seed: int) -> dict[str, Counts]:
    """Return arm → its accuracy in each resample of the items; the arms share the resamples."""
    counts = {name: len(items) for name, items in next(iter(observations.values())).items.items()}
    resamples = draws(counts, recipes.PURPOSE, seed)

    def accuracy(event: Observed) -> Counts:
        cells = [
            bootstrap.ratio(counts, event.items[name], event.sizes[name])
            for name, counts in resamples.items()
        ]
        return np.mean(cells, axis=0)

    return {arm: accuracy(event) for arm, event in observations.items()}


def lead(
    observations: Mapping[str, Observed], resampled: Mapping[str, Counts], arm: str, baseline: str
) -> Figure:
    """Return as a Figure the accuracy of `arm` minus that of `baseline`, with the interval."""
    return figure(
        mean(observations[arm]) - mean(observations[baseline]),
        resampled[arm] - resampled[baseline],
        comparison.windows(observations[arm]),
    )


def verdict(lead: Figure) -> Verdict:
    """Return "better", "worse" or "level": the side of 0 on which the lead's interval lies."""
    assert lead.low is not None
    assert lead.high is not None
    return panels.verdict(lead.low, lead.high)


def compared(observations: Mapping[str, Observed]) -> dict[str, Compared]:
    """Return arm → recipe id and accuracy, as `completed` records them."""
    return {
        arm: Compared(recipe_id=event.recipe_id, accuracy=mean(event))
        for arm, event in observations.items()
    }


# ---- the result --------------------------------------------------------------------------------


def best(courses: Mapping[str, ArmCourse], seed: int) -> str:
    """Return the name of the arm that is the result: the most accurate one on the selection slice.

    Adaptive wins a tie. An arm with an addition counts only if the addition pays.
    """
    paid = paying(courses, seed)
    able = [arm for arm in courses if arm not in BESIDE or arm in paid]
    return max(able, key=lambda arm: (courses[arm].accuracy[-1], arm == ADAPTIVE))


def paying(courses: Mapping[str, ArmCourse], seed: int) -> list[str]:
    """Return the arms whose addition makes them more accurate than adaptive beyond the interval.

    At their ends, on the selection slice; all with an addition if adaptive is not trained.
    """
    arms = [arm for arm in courses if arm in BESIDE]
    if ADAPTIVE not in courses or not arms:
        return arms
    ends = {arm: courses[arm].measured[-1] for arm in (ADAPTIVE, *arms)}
    resampled = drawn(ends, seed)
    return [arm for arm in arms if verdict(lead(ends, resampled, arm, ADAPTIVE)) == "better"]


# ---- figures -----------------------------------------------------------------------------------


def forgetting(course: ArmCourse) -> float:
    """Return the largest drop of a family's accuracy, from its highest to its last, selection slice."""
    along = [families(event) for event in course.measured]
    return max(max(rates[family] for rates in along) - rate for family, rate in along[-1].items())


def tokens_to_equal(courses: Mapping[str, ArmCourse], bounds: Sequence[int]) -> float | None:
    """Return the share of tokens at which adaptive is as accurate as uniform's end; None if never.

    Also None if the arm uniform gained nothing, or if one of the arms is not trained. `bounds` are the
    steps at which segments begin, and the number of all.
    """
    if not {ADAPTIVE, UNIFORM} <= set(courses):
        return None
    accuracies, end = courses[ADAPTIVE].accuracy, courses[UNIFORM].accuracy[-1]
    for step, accuracy in zip(bounds, accuracies, strict=True):
        if accuracy >= end > accuracies[0]:
            return step / bounds[-1]
    return None


def _accuracy(run: Any) -> Figure:
    event = run.seen[run.result]
    return figure(mean(event), run.drawn[run.result], comparison.windows(event))


def _forgetting(run: Any) -> Figure:
    return Figure(value=forgetting(run.courses[run.result]))


def _to_equal(run: Any) -> Figure | None:
    share = tokens_to_equal(run.courses, recipes.bounds(run.settings, run.started.context))
    return None if share is None else Figure(value=share)


def _over(arm: str, baseline: str) -> FigureRule:
    """Return the rule of a figure: the accuracy of `arm` minus that of `baseline`."""

    def value(run: Any) -> Figure | None:
        if {arm, baseline} <= set(run.seen):
            return lead(run.seen, run.drawn, arm, baseline)
        return None

    arms = f"{arm} over {baseline}".replace("_", " ")
    return FigureRule(f"lead of {arms}: accuracy of one arm minus that of the other", value)


RULES: dict[str, FigureRule] = {
    "accuracy": FigureRule(
        "accuracy: share of the test items that the result solves, mean over families and levels",
        _accuracy,
    ),
    "gain": FigureRule(
        "accuracy gained: accuracy of the result minus that of the given model",
        lambda run: lead(run.seen, run.drawn, str(run.result), START),
    ),
    "forgetting": FigureRule(
        "accuracy forgotten: the most that a family of the result has lost since an earlier "
        "segment, on the selection slice",
        _forgetting,
    ),
    **{f"lead_over_{arm}": _over(ADAPTIVE, arm) for arm in (UNIFORM, "easy_to_hard")},
    **{f"lead_of_{arm}": _over(arm, ADAPTIVE) for arm in BESIDE},
    "tokens_to_equal": FigureRule(
        "tokens until as accurate as uniform: share of the tokens after which the arm adaptive is "
        "first as accurate as the arm uniform at its end, selection slice; missing if it never is",
        _to_equal,
        "share",
    ),
}
