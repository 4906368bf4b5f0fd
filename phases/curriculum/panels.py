"""Panels of a curriculum run: arms, levels success by cell, additions. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from phases.curriculum import recipes
from phases.curriculum.figures import ADAPTIVE, Course, CurriculumRun
from phases.curriculum.mixing.mix import TEXT
from phases.curriculum.recipes import START
from phases.curriculum.report import bursts, dreams, frontiers, reason, verdicts
from runs.panels.head import Result
from runs.panels.panels import (
    Arms,
    Axis,
    Lines,
    Matrix,
    Metric,
    Panel,
    Part,
    Series,
    Shares,
    Units,
    columns,
)
from studies import arm_panels, comparison, tables, training_panels
from studies.declaration import Declaration
from studies.observing import Observed
from studies.training_panels import Curves

ACCURACY = Metric(name="accuracy", better="up")
SEGMENT = Axis(name="segment", whole=True)
TOKENS = Axis(name="tokens", whole=True)


def headline(run: CurriculumRun, over: str) -> Result | None:
    """Return the result's accuracy beside the given model's; None until the run has completed."""
    if run.state.completed is None or run.result is None:
        return None
    figures = run.state.completed.figures
    gain = arm_panels.lead(figures["gain"])
    return arm_panels.figured(run, run.result, ACCURACY, figures["accuracy"], over, gain)


def panels(study: Declaration, run: CurriculumRun, curves: Curves) -> list[Panel]:
    """Return the panels of what is there."""
    return [*_panels(study, run, curves)]


def _panels(study: Declaration, run: CurriculumRun, curves: Curves) -> Iterator[Panel]:
    courses = run.courses.values()
    if run.result in run.seen and START in run.seen:
        yield _arms(study, run)
    if any(course.measured for course in courses):
        yield _course(run)
    following = next((course for course in courses if frontiers(course)), None)
    if following is not None:
        yield _levels(following)
        yield _mix(run, following)
        yield _reasons(run, following)
    yield from additions(run)
    for arm, course in run.courses.items():
        if course.measured:
            yield _matrix(arm, run.seen.get(arm, course.measured[-1]))
    rivals = [arm for arm in curves if arm != ADAPTIVE]
    yield from training_panels.curves(curves, rivals, run.state, {})
    ends = {arm: run.recipes[arm] for arm in (START, *run.courses) if arm in run.recipes}
    chains = {arm: course.segments for arm, course in run.courses.items()}
    yield training_panels.models(run.state, ends, chains=chains)


def _arms(study: Declaration, run: CurriculumRun) -> Arms:
    compared = tables.words(study.arms), run.seen, run.leads, arm_panels.groups(study.arms)
    return arm_panels.arms(
        *(study.comparison_title, *compared, str(run.result), START),
        "The share of test items that are solved, the mean over families and levels.",
        replace(comparison.BITS_PER_BYTE, metric=ACCURACY),
    )


def _course(run: CurriculumRun) -> Lines:
    """Return accuracy over tokens, on the selection slice."""
    at = recipes.tokens(run.settings, run.started.context)
    series = []
    for arm, course in run.courses.items():
        y = tuple(course.accuracy)
        role = "ours" if arm == ADAPTIVE else "alternative"
        series.append(Series(name=arm, role=role, x=tuple(at[: len(y)]), y=y))
    return Lines(
        name="course",
        title="Accuracy over tokens",
        says="On the selection slice, the mean over families and levels, after each segment.",
        x=TOKENS,
        y=Axis(name="accuracy", better="up"),
        series=tuple(series),
    )


def _levels(course: Course) -> Lines:
    """Return the frontier of each family by segment."""
    return Lines(
        name="levels",
        title="Levels by time",
        says=f"The highest level that a family is to learn, in each segment of the arm {course.arm}.",
        x=SEGMENT,
        y=Axis(name="level", whole=True, better="up"),
        series=tuple(
            Series(name=family, x=tuple(range(1, len(levels) + 1)), y=tuple(levels))
            for family, levels in frontiers(course).items()
        ),
    )


def _mix(run: CurriculumRun, course: Course) -> Shares:
    """Return the share of each family by segment."""
    config = run.settings
    families = [*sorted(config.families), *([TEXT] if config.text else [])]
    return Shares(
        name="mix",
        title="Mix by time",
        says=f"Share of each family's items in each segment of the arm {course.arm}.",
        metric=Metric(name="share"),
        x=SEGMENT,
        at=tuple(event.segment + 1 for event in course.mixes),
        parts=tuple(
            Part(name=family, values=tuple(_share(event.mix, family) for event in course.mixes))
            for family in families
        ),
    )


def _share(mix: Mapping[str, float], family: str) -> float:
    return sum(share for cell, share in mix.items() if cell.partition("/")[0] == family)


def _matrix(arm: str, event: Observed) -> Matrix:
    """Return success by family and level: on the test slice, or the newest on the selection slice."""
    names = [cell.partition("/") for cell in event.values]
    families = sorted({family for family, _, _ in names})
    levels = sorted({int(level) for _, _, level in names})
    return Matrix(
        name=f"success-{arm.replace('_', '-')}",
        title=f"Success by family and level: {arm}",
        says=f"Share of the items of the {event.on} slice that are solved.",
        rows=tuple(families),
        columns=tuple(f"level {level}" for level in levels),
        metrics=(ACCURACY,),
        values=tuple(tuple(event.values[f"{f}/{n}"] for n in levels) for f in families),
        band=(0.0, 1.0),
    )


# ---- tables ------------------------------------------------------------------------------------


def _reasons(run: CurriculumRun, course: Course) -> Units:
    """Return why frontiers moved."""
    rows = tuple(
        (event.segment + 1, family, frontier.level, frontier.change, reason(run.settings, frontier))
        for event in course.mixes
        for family, frontier in event.frontiers.items()
        if frontier.change != "held"
    )
    return Units(
        name="changes",
        title="Levels gained, opened, lost",
        says=f"Each move of a family's frontier, the highest level that it is to learn, in the arm "
        f"{course.arm}, and the rule by which it moved.",
        unit="change",
        columns=columns(
            segment="integer", family="text", level="integer", change="text", reason="text"
        ),
        rows=rows,
    )


def additions(run: CurriculumRun) -> Iterator[Units]:
    """Yield what additions have brought, bursts, dreams and stages, of those that are there."""
    leads = run.state.completed.figures if run.state.completed else {}
    if words := verdicts(leads):
        yield Units(
            name="verdicts",
            title="Additions",
            says="Accuracy on the test slice minus that of the arm adaptive, with its interval: an "
            "addition is better if the whole interval is above zero, and worse if it is below.",
            unit="addition",
            columns=columns(arm="text", lead="number", low="number", high="number", verdict="text"),
            rows=tuple(
                (arm, lead.value, lead.low, lead.high, word)
                for arm, word in words.items()
                for lead in [leads[f"lead_of_{arm}"]]
            ),
        )
    yield from _bursts(run)
    yield from _dreams(run)
    if stages := run.courses.get("stages"):
        yield from _stages(stages)


def _bursts(run: CurriculumRun) -> Iterator[Units]:
    """Yield the bursts of all arms, and accuracy before and after each."""
    rows = tuple(
        (arm, row["segment"], row["before"], row["after"], "yes" if row["returned"] else "no")
        for arm, course in run.courses.items()
        for row in bursts(course)
    )
    if rows:
        yield Units(
            name="bursts",
            title="Bursts of chaos",
            says="Accuracy on the selection slice before and after the segment of a burst. If it lost "
            "more than the setting relapse, the next segment began with the model before it.",
            unit="burst",
            columns=columns(
                arm="text", segment="integer", before="number", after="number", left="text"
            ),
            rows=rows,
        )


def _dreams(run: CurriculumRun) -> Iterator[Units]:
    """Yield the dreams of all arms, and how many of them are right."""
    rows = tuple(
        (arm, *row.values()) for arm, course in run.courses.items() for row in dreams(course)
    )
    if rows:
        yield Units(
            name="dreams",
            title="Dreams",
            says="What the model of an arm answered to tasks that it had passed, before each segment.",
            unit="segment",
            columns=columns(
                arm="text", segment="integer", cells="integer", items="integer", right="integer"
            ),
            rows=rows,
        )


def _stages(course: Course) -> Iterator[Units]:
    """Yield the stages of the arm `stages`, with accuracy at the end of each segment."""
    if not course.measured:
        return
    names = ["assessment", *((event.stage or "").replace("_", " ") for event in course.mixes)]
    yield Units(
        name="stages",
        title="Stages",
        says="The stage of each segment of the arm stages, and accuracy on the selection slice at its "
        "end.",
        unit="segment",
        columns=columns(segment="integer", stage="text", accuracy="number"),
        rows=tuple(
            (number, stage, accuracy)
            for number, (stage, accuracy) in enumerate(zip(names, course.accuracy, strict=False))
        ),
    )
