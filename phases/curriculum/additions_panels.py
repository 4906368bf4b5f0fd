"""Panels of what arms have beside their mix: verdicts, bursts, dreams, stages. Pure."""

from __future__ import annotations

from typing import Literal

from phases.curriculum import findings, report
from phases.curriculum.events import CurriculumState
from runs.panels.panels import Column, Panel, Units


def panels(state: CurriculumState) -> list[Panel]:
    """Return the panels of what is there."""
    found = [_verdicts(state), _bursts(state), _dreams(state), _stages(state)]
    return [one for one in found if one is not None]


def _verdicts(state: CurriculumState) -> Units | None:
    """Return what each addition has brought."""
    if state.completed is None:
        return None
    told, figures = report.verdicts(state), state.completed.figures
    rows = []
    for arm, word in told.items():
        one = figures[f"lead_of_{arm}"]
        rows.append((arm, one.value, one.low, one.high, word))
    if not rows:
        return None
    return Units(
        name="verdicts",
        title="Additions",
        says="Accuracy on the test slice minus that of the arm adaptive, with its interval: an "
        "addition is better if the whole interval is above zero, and worse if it is below.",
        unit="addition",
        columns=_columns(arm="text", lead="number", low="number", high="number", verdict="text"),
        rows=tuple(rows),
    )


def _bursts(state: CurriculumState) -> Units | None:
    """Return the bursts of all arms, and accuracy before and after each."""
    rows = [
        (arm, one.segment, one.before, one.after, "yes" if one.returned else "no")
        for arm in state.submitted.config.arms
        for one in report.bursts(state, arm)
    ]
    if not rows:
        return None
    return Units(
        name="bursts",
        title="Bursts of chaos",
        says="Accuracy on the selection slice before and after the segment of a burst. If it lost more "
        "than the setting relapse, the next segment began with the model before it.",
        unit="burst",
        columns=_columns(
            arm="text", segment="integer", before="number", after="number", left="text"
        ),
        rows=tuple(rows),
    )


def _dreams(state: CurriculumState) -> Units | None:
    """Return the dreams of all arms, and how many of them are right."""
    rows = [
        (arm, one.segment, one.cells, one.items, one.right)
        for arm in state.submitted.config.arms
        for one in report.dreams(state, arm)
    ]
    if not rows:
        return None
    return Units(
        name="dreams",
        title="Dreams",
        says="What the model of an arm answered to tasks that it had passed, before each segment.",
        unit="segment",
        columns=_columns(
            arm="text", segment="integer", cells="integer", items="integer", right="integer"
        ),
        rows=tuple(rows),
    )


def _stages(state: CurriculumState) -> Units | None:
    """Return the stages of the arm `stages`, with accuracy at the end of each segment."""
    course = findings.course(state, "stages") if "stages" in state.submitted.config.arms else []
    if not course:
        return None
    accuracy = [findings.mean(event) for event in course]
    mixes = state.mixes.get("stages", ())
    rows = [(0, "assessment", accuracy[0])]
    rows += [
        (event.segment + 1, (event.stage or "").replace("_", " "), accuracy[event.segment + 1])
        for event in mixes[: len(accuracy) - 1]
    ]
    return Units(
        name="stages",
        title="Stages",
        says="The stage of each segment of the arm stages, and accuracy on the selection slice at its "
        "end.",
        unit="segment",
        columns=_columns(segment="integer", stage="text", accuracy="number"),
        rows=tuple(rows),
    )


def _columns(**types: Literal["text", "number", "integer"]) -> tuple[Column, ...]:
    """Return columns by name and type."""
    return tuple(Column(name=name, type=type_) for name, type_ in types.items())
