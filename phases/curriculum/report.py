"""Report of a curriculum run: arms with intervals, accuracy by family and level. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from phases.curriculum import figures, recipes
from phases.curriculum.events import Frontier, MixChosen
from phases.curriculum.figures import BESIDE, Course, CurriculumRun
from phases.curriculum.settings import CurriculumConfig
from runs.event_types import Figure


def report(run: CurriculumRun) -> dict[str, Any]:
    """Return the report of a run that has completed, as plain data."""
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
    """Return arm with an addition → what its lead over adaptive says."""
    leads = {arm: figures_.get(f"lead_of_{arm}") for arm in BESIDE}
    return {arm: figures.verdict(lead) for arm, lead in leads.items() if lead is not None}


def bursts(course: Course) -> list[dict[str, Any]]:
    """Return the bursts of an arm that are measured, with accuracy before and after each.

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


def dreams(course: Course) -> list[dict[str, Any]]:
    """Return what an arm dreamt before a segment, which counts from 1, and how much is right."""
    rows = []
    for number, event in course.dreamt.items():
        if number < len(course.mixes) and event.cells:
            cells = event.cells.values()
            items, right = sum(cell.items for cell in cells), sum(cell.right for cell in cells)
            row = {"segment": number + 1, "cells": len(cells), "items": items, "right": right}
            rows.append(row)
    return rows


def frontiers(course: Course) -> dict[str, list[int]]:
    """Return family → level of its frontier in each segment so far."""
    levels: dict[str, list[int]] = {}
    for event in course.mixes:
        for family, frontier in event.frontiers.items():
            levels.setdefault(family, []).append(frontier.level)
    return levels


# ---- words -------------------------------------------------------------------------------------


def lines(run: CurriculumRun, words: Mapping[str, str]) -> list[str]:
    """Return the report as lines of text for users; `words`: arm → what it is."""
    families = sorted(run.settings.families)
    out = ["share of the test items that are solved, in percent:"]
    width = max(map(len, families)) + 2
    out.append(f"{'':14s}" + "".join(f"{f:>{width}s}" for f in (*families, "mean")))
    for arm, event in run.seen.items():
        rates = figures.families(event)
        values = [*(rates[family] for family in families), _mean([*event.values.values()])]
        out.append(f"{arm:14s}" + "".join(f"{100 * value:{width}.1f}" for value in values))
    for arm, lead in run.leads.items():
        span = f"{100 * lead.value:+.1f} [{_points(lead.low)}, {_points(lead.high)}]"
        out.append(f"{run.result} over {arm}, {words[arm]}: {span} points")
    out += [f"{arm}: {word}" for arm, word in verdicts(run.state.completed.figures).items()]
    tokens = recipes.tokens(run.settings, run.started.context)[-1]
    return [*out, f"result: {run.result}, after {tokens:,} tokens, as each other arm"]


def sentences(run: CurriculumRun) -> list[str]:
    """Return what a completed run has found, as a list in Markdown."""
    run_figures = run.state.completed.figures
    accuracy, gain = run_figures["accuracy"], run_figures["gain"]
    out = [
        f"- The result, the arm {run.result}, solves {100 * accuracy.value:.1f} % of the test items, the "
        f"mean over families and levels; the given model {100 * (accuracy.value - gain.value):.1f} %."
    ]
    for arm in ("uniform", "easy_to_hard"):
        if lead := run_figures.get(f"lead_over_{arm}"):
            out.append(
                f"- The arm adaptive is {_span(lead)} from the arm {arm}, after as many tokens."
            )
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
    """Return the arm and segment of a mix, what the segment has beside it, and moved frontiers."""
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
    """Return the rule by which a family's frontier moved, with the success that it follows from."""
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


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
