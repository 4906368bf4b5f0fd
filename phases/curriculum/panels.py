"""Panels and report of a curriculum run: arms with intervals, success by family and level. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from agent_forge.phases.curriculum import figures, recipes
from agent_forge.phases.curriculum.figures import ADAPTIVE, BESIDE, ArmCourse, CurriculumRun
from agent_forge.phases.curriculum.mixing.mix import TEXT
from agent_forge.phases.curriculum.recipes import START, Frontier, MixChosen
from agent_forge.phases.curriculum.settings import CurriculumConfig
from agent_forge.runs.event_types import Figure
from agent_forge.runs.panels.head import Result
from agent_forge.runs.panels.panels import (
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
from agent_forge.studies import arm_panels, comparison, training_panels
from agent_forge.studies import run as tables
from agent_forge.studies.events import Observed
from agent_forge.studies.making.making import MakingState
from agent_forge.studies.study import Study
from agent_forge.studies.study_view import Plain
from agent_forge.studies.training_panels import Curves

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


def panels(study: Study[MakingState], run: CurriculumRun, curves: Curves) -> list[Panel]:
    """Return the panels that the events so far allow: arms, courses, mixes, success, models."""
    return [*_panels(study, run, curves)]


def _panels(study: Study[MakingState], run: CurriculumRun, curves: Curves) -> Iterator[Panel]:
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


def _arms(study: Study[MakingState], run: CurriculumRun) -> Arms:
    compared = tables.words(study.arms), run.seen, run.leads, arm_panels.groups(study.arms)
    return arm_panels.arms(
        *(study.comparison_title, *compared, str(run.result), START),
        "The share of test items that are solved, the mean over families and levels.",
        replace(comparison.BITS_PER_BYTE, metric=ACCURACY),
    )


def _course(run: CurriculumRun) -> Lines:
    """Return the panel of curves: each arm's accuracy on the selection slice, over tokens."""
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


def _levels(course: ArmCourse) -> Lines:
    """Return the panel of curves: the frontier of each family by segment."""
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


def _mix(run: CurriculumRun, course: ArmCourse) -> Shares:
    """Return the panel of stacked shares: the share of each family by segment."""
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
    """Return the table panel of success by family and level, on the slice of the event."""
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


def _reasons(run: CurriculumRun, course: ArmCourse) -> Units:
    """Return the table panel of frontier moves: segment, family, new level, and the rule."""
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
    """Yield the table panels of additions: verdicts, bursts, dreams and stages, if there are any."""
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
    """Yield the table panel of bursts, with accuracy before and after each; nothing without bursts."""
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
    """Yield the table panel of dreams, with how many are right; nothing without dreams."""
    rows = tuple((arm, *row.values()) for arm, course in run.courses.items() for row in dreams(course))
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


def _stages(course: ArmCourse) -> Iterator[Units]:
    """Yield the table panel of the arm's stages, with accuracy at the end of each segment."""
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


# ---- report ------------------------------------------------------------------------------------


def report(run: CurriculumRun) -> dict[str, object]:
    """Return the report of a completed run as JSON data."""
    courses, done = run.courses.items(), run.state.completed
    return {
        "model": run.started.model.name,
        "seed": run.settings.seed,
        #: Tokens of each training, padding included.
        "tokens": recipes.tokens(run.settings, run.started.context)[-1],
        #: Arm → "FAMILY/LEVEL" → share of the test items that are solved.
        "accuracy": {arm: event.values for arm, event in run.seen.items()},
        #: Arm → accuracy on the selection slice before the first segment and after each.
        "course": {arm: course.accuracy for arm, course in courses},
        #: Arm → family → level of its frontier in each segment.
        "frontiers": {arm: levels for arm, course in courses if (levels := frontiers(course))},
        #: Arm → the most accuracy that a family has lost since an earlier segment.
        "forgetting": {arm: figures.forgetting(course) for arm, course in courses},
        #: Arm with an addition → "better", "level" or "worse" than adaptive, by its lead.
        "verdicts": verdicts(done.figures),
        "bursts": {arm: rows for arm, course in courses if (rows := bursts(course))},
        "dreams": {arm: rows for arm, course in courses if (rows := dreams(course))},
        #: Arm → the accuracy of the result minus the arm's.
        "leads": {arm: figure.model_dump() for arm, figure in run.leads.items()},
        "chosen": done.chosen,
        "figures": {name: figure.model_dump() for name, figure in done.figures.items()},
        #: Of all tasks of the run.
        "seconds": run.state.spent.device,
    }


def verdicts(figures_: Mapping[str, Figure]) -> dict[str, str]:
    """Return arm with an addition → "better", "worse" or "level" beside the arm adaptive."""
    leads = {arm: figures_.get(f"lead_of_{arm}") for arm in BESIDE}
    return {arm: figures.verdict(lead) for arm, lead in leads.items() if lead is not None}


def bursts(course: ArmCourse) -> list[Plain]:
    """Return a row, field → value, for each measured burst: accuracy before and after.

    Segments count from 1; `returned`: the next one began with the model before the burst.
    """
    rows = []
    for event in course.mixes[: len(course.measured) - 1]:
        if "chaos" in event.added:
            before, after = course.burst(event.segment)
            left = any(later.returned for later in course.mixes[event.segment + 1 :][:1])
            number = event.segment + 1
            rows.append({"segment": number, "before": before, "after": after, "returned": left})
    return rows


def dreams(course: ArmCourse) -> list[Plain]:
    """Return a row, field → value, for each segment with dreams: how many, and how many are right."""
    rows = []
    for number, event in course.dreamt.items():
        if number < len(course.mixes) and event.cells:
            cells = event.cells.values()
            items, right = sum(cell.items for cell in cells), sum(cell.right for cell in cells)
            row = {"segment": number + 1, "cells": len(cells), "items": items, "right": right}
            rows.append(row)
    return rows


def frontiers(course: ArmCourse) -> dict[str, list[int]]:
    """Return family → level of its frontier in each segment so far."""
    levels: dict[str, list[int]] = {}
    for event in course.mixes:
        for family, frontier in event.frontiers.items():
            levels.setdefault(family, []).append(frontier.level)
    return levels


# ---- words -------------------------------------------------------------------------------------


def lines(run: CurriculumRun) -> list[str]:
    """Return the report of a completed run as lines of text for a terminal."""
    words = tables.words(run.study.arms)
    families = sorted(run.settings.families)
    out = ["share of the test items that are solved, in percent:"]
    width = max(map(len, families)) + 2
    out.append(f"{'':14s}" + "".join(f"{f:>{width}s}" for f in (*families, "mean")))
    for arm, event in run.seen.items():
        rates = figures.families(event)
        mean = sum(event.values.values()) / len(event.values)
        values = [*(rates[family] for family in families), mean]
        out.append(f"{arm:14s}" + "".join(f"{100 * value:{width}.1f}" for value in values))
    for arm, lead in run.leads.items():
        span = f"{100 * lead.value:+.1f} [{_points(lead.low)}, {_points(lead.high)}]"
        out.append(f"{run.result} over {arm}, {words[arm]}: {span} points")
    out += [f"{arm}: {word}" for arm, word in verdicts(run.state.completed.figures).items()]
    tokens = recipes.tokens(run.settings, run.started.context)[-1]
    return [*out, f"result: {run.result}, after {tokens:,} tokens, as each other arm"]


def sentences(run: CurriculumRun) -> list[str]:
    """Return the findings of a completed run as Markdown list items."""
    run_figures = run.state.completed.figures
    accuracy, gain = run_figures["accuracy"], run_figures["gain"]
    out = [
        f"- The result, the arm {run.result}, solves {100 * accuracy.value:.1f} % of the test "
        "items, the "
        f"mean over families and levels; the given model {100 * (accuracy.value - gain.value):.1f} %."
    ]
    for arm in ("uniform", "easy_to_hard"):
        if lead := run_figures.get(f"lead_over_{arm}"):
            out.append(f"- The arm adaptive is {_span(lead)} from the arm {arm}, after as many tokens.")
    for arm, word in verdicts(run_figures).items():
        out.append(
            f"- The arm {arm} is {_span(run_figures[f'lead_of_{arm}'])} from the arm adaptive: {word}."
        )
    if share := run_figures.get("tokens_to_equal"):
        out.append(
            f"- It is as accurate as the arm uniform at its end after {100 * share.value:.0f} % of the "
            "tokens."
        )
    out.append(
        f"- A family of the result has lost {100 * run_figures['forgetting'].value:.1f} points at most "
        "since an earlier segment."
    )
    return out


def mix_line(event: MixChosen) -> str:
    """Return a line of text: arm and segment of a mix, additions, and frontiers that moved."""
    moved = [
        f"{family} {frontier.change} to level {frontier.level}"
        for family, frontier in event.frontiers.items()
        if frontier.change != "held"
    ]
    beside = [word.replace("_", " ") for word in (event.stage, *event.added) if word]
    if event.returned:
        beside.append("from before the burst")
    about = f"{event.arm}, segment {event.segment + 1}"
    about += f" ({', '.join(dict.fromkeys(beside))})" if beside else ""
    return ": ".join([about, *([", ".join(moved)] if moved else [])])


def reason(config: CurriculumConfig, frontier: Frontier) -> str:
    """Return a sentence: the rule by which a frontier moved, and the success behind the move."""
    solved = f"{100 * frontier.success:.0f} % of its {frontier.items} items are solved"
    passing = f"more than {100 * config.promote:g} %"
    match frontier.change:
        case "placed":
            return f"level {frontier.by} is the lowest not passed ({passing}), or the highest: {solved}"
        case "opened":
            return (
                f"after {config.patience} segments in which level {frontier.by} was not passed "
                f"({passing}), the next one is added all the same: {solved}"
            )
        case "demoted":
            return f"level {frontier.by} fell below {100 * config.demote:g} %: {solved}"
    return f"level {frontier.by} is passed ({passing}): {solved}"


def _span(lead: Figure) -> str:
    return f"{100 * lead.value:+.1f} points ({_points(lead.low)} to {_points(lead.high)})"


def _points(value: float | None) -> str:
    assert value is not None
    return f"{100 * value:+.1f}"


def paragraphs(run: CurriculumRun, role: str) -> list[str]:
    """Return a list of one line for the model card: the training tokens, the families and the arm."""
    families, arm = ", ".join(sorted(run.settings.families)), str(run.result)
    read = recipes.tokens(run.settings, run.started.context)[-1]
    words = f"the arm {arm}, {run.study.arms[arm].words}"
    return [f"Trained on {read:,} tokens of the task families {families}: {words}."]
