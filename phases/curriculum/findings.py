"""Measurements of a curriculum run, and the conclusions from them. Pure.

A model's accuracy is the mean over cells (family and level) of the share of items that it solves.
Intervals are the middle 95 % of a paired bootstrap: items are resampled within each cell, the same for
all arms (`evaluation/measures/bootstrap.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from evaluation.measures import bootstrap
from evaluation.measures.bootstrap import Counts
from phases.curriculum import plan
from phases.curriculum.events import Compared, CurriculumState
from phases.curriculum.mixing.cells import Success
from runs.event_types import Figure
from runs.panels import panels
from runs.panels.panels import Verdict
from studies import comparison, given_dtype
from studies.comparison import CHOOSING, TEST
from studies.events import MODEL, Result
from studies.making.events import Making
from studies.observing import Observe, Observed
from studies.paired_bits import draws, figure, mean

MEASURE = "exact-answers@1"
ADAPTIVE, UNIFORM = "adaptive", "uniform"
#: Arms that are adaptive with something beside it.
BESIDE = ("chaos", "dreams", "self_model", "stages")

#: Figure → what it is, in words.
FIGURES = {
    "accuracy": "share of the test items that the result solves, the mean over families and levels",
    "gain": "accuracy of the result minus that of the given model",
    "lead_over_uniform": "accuracy of the arm adaptive minus that of the arm uniform",
    "lead_over_easy_to_hard": "accuracy of the arm adaptive minus that of the arm easy_to_hard",
    "lead_of_chaos": "accuracy of the arm chaos minus that of the arm adaptive",
    "lead_of_dreams": "accuracy of the arm dreams minus that of the arm adaptive",
    "lead_of_self_model": "accuracy of the arm self_model minus that of the arm adaptive",
    "lead_of_stages": "accuracy of the arm stages minus that of the arm adaptive",
    "tokens_to_equal": "share of the tokens after which the arm adaptive is first as accurate as the "
    "arm uniform at its end, on the selection slice; missing if it never is",
    "forgetting": "the most accuracy that a family of the result has lost since an earlier segment, "
    "on the selection slice",
}


# ---- what is measured --------------------------------------------------------------------------


def assessed(recipe: Making) -> Observe:
    """Return the measurement that the next mix follows from."""
    return Observe(recipe.id, MEASURE, CHOOSING)


def comparing(state: CurriculumState) -> dict[str, Observe]:
    """Return arm → its measurement on the test slice, of the start too."""
    return {arm: Observe(one.id, MEASURE, TEST) for arm, one in plan.last(state).items()}


def observations(state: CurriculumState) -> list[Observe]:
    """Return everything that is measured, as far as it is known yet."""
    every = plan.recipes(state).items()
    made = [recipe for name, recipe in every if not name.endswith(given_dtype.FLOAT32)]
    return [*map(assessed, made), *comparing(state).values()]


def found(state: CurriculumState) -> dict[str, Observed]:
    """Return arm → what was observed on the test slice, of those that are measured."""
    return comparison.observed(state, comparing(state))


def course(state: CurriculumState, arm: str) -> list[Observed]:
    """Return what was observed of an arm on the selection slice, from the start on."""
    answers = [state.answers.get(assessed(one).key) for one in plan.points(state, arm)]
    return [event for event in answers if isinstance(event, Observed)]


def success(event: Observed) -> dict[str, Success]:
    """Return cell → success, as the rule of the mix reads it."""
    return {name: Success(rate, len(event.items[name])) for name, rate in event.values.items()}


def _chosen_by(state: CurriculumState, recipe_id: str) -> Observed:
    """Return what was observed of a model on the selection slice."""
    found = state.answers[Observe(recipe_id, MEASURE, CHOOSING).key]
    assert isinstance(found, Observed)
    return found


def measured(state: CurriculumState, recipe_id: str) -> dict[str, Success]:
    """Return cell → success of a model that was assessed."""
    return success(_chosen_by(state, recipe_id))


def relapsed(state: CurriculumState, arm: str) -> bool:
    """Return True if the last segment of an arm had a burst and lost more than `relapse`."""
    mixes = state.mixes.get(arm, ())
    if not mixes or "chaos" not in mixes[-1].added:
        return False
    before, after = burst(state, arm, len(mixes) - 1)
    return before - after > state.submitted.config.relapse


def burst(state: CurriculumState, arm: str, segment: int) -> tuple[float, float]:
    """Return accuracy on the selection slice before and after a segment that was measured."""
    before, after = plan.segments(state, arm)[segment].start, plan.points(state, arm)[segment + 1]
    return mean(_chosen_by(state, before)), mean(_chosen_by(state, after.id))


# ---- what follows ------------------------------------------------------------------------------


def families(event: Observed) -> dict[str, float]:
    """Return family → accuracy, the mean over its levels."""
    rates: dict[str, list[float]] = {}
    for name, rate in event.values.items():
        rates.setdefault(name.partition("/")[0], []).append(rate)
    return {family: sum(some) / len(some) for family, some in rates.items()}


def forgetting(state: CurriculumState, arm: str) -> float:
    """Return the largest drop of a family from its highest accuracy on the selection slice."""
    along = [families(event) for event in course(state, arm)]
    return max(max(one[family] for one in along) - rate for family, rate in along[-1].items())


def tokens_to_equal(state: CurriculumState) -> float | None:
    """Return the share of tokens after which adaptive is as accurate as uniform at its end.

    None if it never is, if the arm uniform gained nothing, or if one of the arms is not trained.
    """
    if not {ADAPTIVE, UNIFORM} <= set(state.submitted.config.arms):
        return None
    ours, theirs = (course(state, arm) for arm in (ADAPTIVE, UNIFORM))
    at = plan.bounds(state.submitted.config, state.started.context)
    for step, event in zip(at, ours, strict=True):
        if mean(event) >= mean(theirs[-1]) > mean(ours[0]):
            return step / at[-1]
    return None


def drawn(seen: Mapping[str, Observed], seed: int) -> dict[str, Counts]:
    """Return arm → accuracy in each resample of the items, which all arms have in common."""
    counts = {name: len(some) for name, some in next(iter(seen.values())).items.items()}
    resamples = draws(counts, plan.PURPOSE, seed)

    def accuracy(event: Observed) -> Counts:
        cells = [
            bootstrap.ratio(some, event.items[name], event.sizes[name])
            for name, some in resamples.items()
        ]
        return np.mean(cells, axis=0)

    return {arm: accuracy(event) for arm, event in seen.items()}


def lead(
    seen: Mapping[str, Observed], resampled: Mapping[str, Counts], ours: str, theirs: str
) -> Figure:
    """Return the accuracy of the arm `ours` minus that of `theirs`, with the interval."""
    return figure(
        mean(seen[ours]) - mean(seen[theirs]),
        resampled[ours] - resampled[theirs],
        comparison.windows(seen[ours]),
    )


def chosen(state: CurriculumState) -> str | None:
    """Return the arm that is the result: the most accurate at its end, on the selection slice.

    Of equal arms it is adaptive. An arm with an addition must pay. None before all are measured.
    """
    config = state.submitted.config
    seen = {arm: course(state, arm) for arm in config.arms}
    if any(len(some) <= config.segments for some in seen.values()):
        return None
    able = [arm for arm in config.arms if arm not in BESIDE or pays(state, arm)]
    return max(able, key=lambda arm: (mean(seen[arm][-1]), arm == ADAPTIVE))


def pays(state: CurriculumState, arm: str) -> bool:
    """Return True if an arm with an addition is more accurate than adaptive beyond the interval.

    At their ends, on the selection slice; True if adaptive is not trained.
    """
    config = state.submitted.config
    if ADAPTIVE not in config.arms:
        return True
    ends = {name: course(state, name)[-1] for name in (ADAPTIVE, arm)}
    low = lead(ends, drawn(ends, config.seed), arm, ADAPTIVE).low
    assert low is not None
    return low > 0


def verdict(one: Figure) -> Verdict:
    """Return what an arm with an addition is beside adaptive, by its lead."""
    assert one.low is not None
    assert one.high is not None
    return panels.verdict(one.low, one.high)


def results(state: CurriculumState) -> dict[str, Result]:
    """Return role → model of a run whose result is chosen."""
    id_ = named(state)[MODEL].id
    return {MODEL: Result(recipe_id=id_, digest=state.made[id_].digest)}


def named(state: CurriculumState) -> dict[str, Making]:
    """Return name → recipe of all that the run makes; the first is its result once it is known."""
    recipes, best = plan.recipes(state), known(state)
    return {**({MODEL: recipes[best]} if best else {}), **recipes}


def known(state: CurriculumState) -> str | None:
    """Return the arm that is the result, as it was recorded or as it follows."""
    done: Any = state.completed
    return done.chosen if done else state.remembered(("chosen",), lambda: chosen(state))


def arms(state: CurriculumState) -> dict[str, Compared]:
    """Return arm → what was compared, as the event of the end has it."""
    return {
        arm: Compared(recipe_id=event.recipe_id, accuracy=mean(event))
        for arm, event in found(state).items()
    }


def figures(state: CurriculumState) -> dict[str, Figure]:
    """Return the figures of a run whose arms are all measured."""
    seen, best = found(state), chosen(state)
    assert best is not None
    resampled = drawn(seen, state.submitted.config.seed)
    told = {
        "accuracy": figure(mean(seen[best]), resampled[best], comparison.windows(seen[best])),
        "gain": lead(seen, resampled, best, plan.START),
        "forgetting": Figure(value=forgetting(state, best)),
    }
    for arm in seen:
        if f"lead_over_{arm}" in FIGURES and ADAPTIVE in seen:
            told[f"lead_over_{arm}"] = lead(seen, resampled, ADAPTIVE, arm)
        if arm in BESIDE and ADAPTIVE in seen:
            told[f"lead_of_{arm}"] = lead(seen, resampled, arm, ADAPTIVE)
    share = tokens_to_equal(state)
    return told | ({} if share is None else {"tokens_to_equal": Figure(value=share)})


def leads(state: CurriculumState) -> dict[str, Figure]:
    """Return arm → the accuracy of the result minus the arm's, with the interval."""
    best, seen = known(state), found(state)
    if best not in seen:
        return {}
    return state.remembered(("leads",), lambda: _leads(seen, best, state.submitted.config.seed))


def _leads(seen: Mapping[str, Observed], ours: str, seed: int) -> dict[str, Figure]:
    resampled = drawn(seen, seed)
    return {arm: lead(seen, resampled, ours, arm) for arm in seen if arm != ours}
