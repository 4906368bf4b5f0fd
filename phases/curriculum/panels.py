"""Head and panels of a curriculum run: arms, levels by time, success by family and level. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from phases.curriculum import additions_panels, findings, plan
from phases.curriculum.events import CurriculumState
from phases.curriculum.mixing.mix import TEXT
from phases.curriculum.report import ARMS, frontiers, reason
from runs.event_types import Figure
from runs.panels.head import Fact, Result
from runs.panels.panels import (
    Arm,
    Arms,
    Axis,
    Column,
    Lead,
    Lines,
    Matrix,
    Metric,
    Panel,
    Part,
    Series,
    Shares,
    Units,
)
from studies import comparison, given_dtype, training_panels
from studies.observing import Observed
from studies.paired_bits import mean
from studies.training_panels import Curves

ACCURACY = Metric(name="accuracy", better="up")
SEGMENT = Axis(name="segment", whole=True)
TOKENS = Axis(name="tokens", whole=True)


def lead(one: Figure) -> Lead:
    """Return the lead that a figure with an interval is."""
    assert one.low is not None
    assert one.high is not None
    return training_panels.lead(one.value, one.low, one.high)


def result(state: CurriculumState) -> Result | None:
    """Return the result's accuracy beside the given model's; None until the run has completed."""
    if state.completed is None:
        return None
    best, seen = state.completed.chosen, findings.found(state)
    one = state.completed.figures["accuracy"]
    return Result(
        name="model",
        model=seen[best].recipe_id,
        metric=ACCURACY,
        value=one.value,
        low=one.low,
        high=one.high,
        over=ARMS[plan.START],
        lead=lead(state.completed.figures["gain"]),
        on=comparison.TEST,
        n=comparison.windows(seen[best]),
    )


def facts(state: CurriculumState) -> tuple[Fact, ...]:
    """Return the number of cells and items, and the tokens that each training reads."""
    if state.started is None:
        return ()
    config, started = state.submitted.config, state.started
    steps = plan.bounds(config, started.context)[-1]
    return (
        Fact(name="families", value=len(config.families)),
        Fact(name="levels", value=config.levels),
        Fact(name="items to train on", value=sum(started.pool.values())),
        Fact(name="tokens of a training", value=steps * config.batch * started.context),
    )


def panels(state: CurriculumState, curves: Curves) -> list[Panel]:
    """Return the panels of what is there."""
    if state.started is None:
        return []
    found: list[Panel] = []
    seen, best = findings.found(state), findings.known(state)
    if best in seen and plan.START in seen:
        found.append(_arms(state, seen, best))
    if any(findings.course(state, arm) for arm in state.submitted.config.arms):
        found.append(_course(state))
    shown = next((arm for arm in state.submitted.config.arms if frontiers(state, arm)), None)
    if shown is not None:
        found += [_levels(state, shown), _mix(state, shown), _reasons(state, shown)]
    found += additions_panels.panels(state)
    for arm in state.submitted.config.arms:
        if some := findings.course(state, arm):
            found.append(_matrix(arm, seen.get(arm), some[-1]))
    others = [arm for arm in curves if arm != "adaptive"]
    found += training_panels.curves(curves, others, state, {})
    trained = given_dtype.trainings(plan.recipes(state))
    return [*found, training_panels.models(state, plan.last(state), trainings=trained)]


def _arms(state: CurriculumState, seen: Mapping[str, Observed], best: str) -> Arms:
    leads = findings.leads(state)
    return Arms(
        name="arms",
        title="Accuracy after as many tokens",
        says="; ".join(f"{arm}: {ARMS[arm]}" for arm in seen)
        + ". The share of test items that are solved, the mean over families and levels.",
        metric=ACCURACY,
        ours=best,
        baseline=plan.START,
        arms=tuple(
            Arm(
                name=arm,
                group="given" if arm == plan.START else "trained",
                value=mean(event),
                n=comparison.windows(event),
                lead=lead(leads[arm]) if arm in leads else None,
            )
            for arm, event in seen.items()
        ),
    )


def _course(state: CurriculumState) -> Lines:
    """Return accuracy over tokens, on the selection slice."""
    config, context = state.submitted.config, state.started.context
    at = [step * config.batch * context for step in plan.bounds(config, context)]
    series = []
    for arm in config.arms:
        y = [mean(event) for event in findings.course(state, arm)]
        role = "ours" if arm == findings.ADAPTIVE else "alternative"
        series.append(Series(name=arm, role=role, x=tuple(at[: len(y)]), y=tuple(y)))
    return Lines(
        name="course",
        title="Accuracy over tokens",
        says="On the selection slice, the mean over families and levels, after each segment.",
        x=TOKENS,
        y=Axis(name="accuracy", better="up"),
        series=tuple(series),
    )


def _levels(state: CurriculumState, arm: str) -> Lines:
    """Return the frontier of each family by segment."""
    return Lines(
        name="levels",
        title="Levels by time",
        says=f"The highest level that a family is to learn, in each segment of the arm {arm}.",
        x=SEGMENT,
        y=Axis(name="level", whole=True, better="up"),
        series=tuple(
            Series(name=family, x=tuple(range(1, len(levels) + 1)), y=tuple(levels))
            for family, levels in frontiers(state, arm).items()
        ),
    )


def _mix(state: CurriculumState, arm: str) -> Shares:
    """Return the share of each family by segment."""
    events = state.mixes[arm]
    config = state.submitted.config
    families = [*sorted(config.families), *([TEXT] if config.text else [])]
    return Shares(
        name="mix",
        title="Mix by time",
        says=f"Share of a family's items in each segment of the arm {arm}.",
        metric=Metric(name="share"),
        x=SEGMENT,
        at=tuple(event.segment + 1 for event in events),
        parts=tuple(
            Part(name=family, values=tuple(_share(event.mix, family) for event in events))
            for family in families
        ),
    )


def _share(mix: Mapping[str, float], family: str) -> float:
    return sum(share for cell, share in mix.items() if cell.partition("/")[0] == family)


def _reasons(state: CurriculumState, arm: str) -> Units:
    """Return why frontiers moved."""
    rows = [
        (event.segment + 1, family, one.level, one.change, reason(family, one))
        for event in state.mixes[arm]
        for family, one in event.frontiers.items()
        if one.change != "held"
    ]
    return Units(
        name="changes",
        title="Levels gained, opened, lost",
        says=f"Each move of a frontier in the arm {arm}, and the success that it follows from.",
        unit="change",
        columns=(
            Column(name="segment", type="integer"),
            Column(name="family", type="text"),
            Column(name="level", type="integer"),
            Column(name="change", type="text"),
            Column(name="reason", type="text"),
        ),
        rows=tuple(rows),
    )


def _matrix(arm: str, test: Observed | None, newest: Observed) -> Matrix:
    """Return success by family and level: on the test slice, or the newest on the selection slice."""
    event = test or newest
    names = [cell.partition("/") for cell in event.values]
    families = sorted({family for family, _, _ in names})
    levels = sorted({int(level) for _, _, level in names})
    return Matrix(
        name=f"success-{arm.replace('_', '-')}",
        title=f"Success by family and level: {arm}",
        says=f"Share of the items of the slice {event.on} that are solved.",
        rows=tuple(families),
        columns=tuple(map(str, levels)),
        metrics=(ACCURACY,),
        values=tuple(tuple(event.values[f"{f}/{n}"] for n in levels) for f in families),
        band=(0.0, 1.0),
    )
