"""Report of a curriculum run: arms with intervals, accuracy by family and level. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from phases.curriculum import findings, plan
from phases.curriculum.events import CurriculumState
from runs.event_types import Figure
from studies.paired_bits import mean

#: Arm → what it is, in words.
ARMS = {
    plan.START: "the model that was given",
    "adaptive": "trained at the edge of what it can do",
    "uniform": "trained on all levels alike",
    "easy_to_hard": "trained on level after level",
    "chaos": "as adaptive, with bursts of noise and learning rate",
    "dreams": "as adaptive, and on its own answers to what it has passed",
    "self_model": "as adaptive, with a loss on its own activations",
    "stages": "trained in stages, with each of these in one of them",
}


class Burst(BaseModel):
    """A segment with a burst, and accuracy on the selection slice before and after it."""

    #: Number of the segment, from 1.
    segment: int
    before: float
    after: float
    #: True if the next segment began with the model before it.
    returned: bool


class Dreams(BaseModel):
    """Dreams of an arm before one of its segments."""

    #: Number of the segment, from 1.
    segment: int
    cells: int
    items: int
    #: Those of them whose answer is the right one.
    right: int


class Report(BaseModel):
    """Measurements of a curriculum run, as curriculum.json has them."""

    model_config = ConfigDict(extra="forbid")

    model: str
    seed: int
    #: Tokens of each training, padding included.
    tokens: int
    #: Arm → "FAMILY/LEVEL" → share of the test items that are solved.
    accuracy: dict[str, dict[str, float]]
    #: Arm → accuracy on the selection slice before the first segment and after each.
    course: dict[str, list[float]]
    #: Arm → family → level of its frontier in each segment.
    frontiers: dict[str, dict[str, list[int]]]
    #: Arm → the most accuracy that a family has lost since an earlier segment.
    forgetting: dict[str, float]
    #: Arm with an addition → "better", "level" or "worse" than adaptive, by its lead.
    verdicts: dict[str, str]
    #: Arm → its bursts.
    bursts: dict[str, list[Burst]]
    #: Arm → its dreams.
    dreams: dict[str, list[Dreams]]
    #: Arm → the accuracy of the result minus the arm's.
    leads: dict[str, Figure]
    #: The arm that is the result.
    chosen: str
    figures: dict[str, Figure]
    #: Of all tasks of the run.
    seconds: float


def report(state: CurriculumState) -> Report:
    """Return the report of a run that has completed."""
    config, done = state.submitted.config, state.completed
    at = plan.bounds(config, state.started.context)
    return Report(
        model=state.started.model.name,
        seed=config.seed,
        tokens=at[-1] * config.batch * state.started.context,
        accuracy={arm: event.values for arm, event in findings.found(state).items()},
        course={arm: [mean(one) for one in findings.course(state, arm)] for arm in config.arms},
        frontiers={arm: frontiers(state, arm) for arm in config.arms if frontiers(state, arm)},
        forgetting={arm: findings.forgetting(state, arm) for arm in config.arms},
        verdicts=verdicts(state),
        bursts={arm: found for arm in config.arms if (found := bursts(state, arm))},
        dreams={arm: found for arm in config.arms if (found := dreams(state, arm))},
        leads=findings.leads(state),
        chosen=done.chosen,
        figures=done.figures,
        seconds=state.spent.device,
    )


def verdicts(state: CurriculumState) -> dict[str, str]:
    """Return arm with an addition → what its lead over adaptive says."""
    told = state.completed.figures
    leads = {arm: told.get(f"lead_of_{arm}") for arm in findings.BESIDE}
    return {arm: findings.verdict(one) for arm, one in leads.items() if one is not None}


def bursts(state: CurriculumState, arm: str) -> list[Burst]:
    """Return the bursts of an arm that are measured."""
    mixes, measured = state.mixes.get(arm, ()), len(findings.course(state, arm)) - 1
    found = []
    for event in mixes[:measured]:
        if "chaos" in event.added:
            before, after = findings.burst(state, arm, event.segment)
            left = any(one.returned for one in mixes[event.segment + 1 :][:1])
            found.append(
                Burst(segment=event.segment + 1, before=before, after=after, returned=left)
            )
    return found


def dreams(state: CurriculumState, arm: str) -> list[Dreams]:
    """Return what an arm dreamt, by the segment that it was dreamt for."""
    found = []
    for event, recipe in zip(state.mixes.get(arm, ()), plan.segments(state, arm), strict=True):
        told = plan.dreamt(state, recipe.start) if "dreams" in event.added else None
        if told is not None and told.cells:
            items, right = (
                sum(getattr(one, key) for one in told.cells.values()) for key in ("items", "right")
            )
            found.append(
                Dreams(segment=event.segment + 1, cells=len(told.cells), items=items, right=right)
            )
    return found


def frontiers(state: CurriculumState, arm: str) -> dict[str, list[int]]:
    """Return family → level of its frontier in each segment so far."""
    found: dict[str, list[int]] = {}
    for event in state.mixes.get(arm, ()):
        for family, one in event.frontiers.items():
            found.setdefault(family, []).append(one.level)
    return found


def lines(report: Report) -> list[str]:
    """Return the report as lines of text for users."""
    families = sorted({name.partition("/")[0] for name in next(iter(report.accuracy.values()))})
    out = ["share of the test items that are solved, in percent:"]
    width = max(map(len, families)) + 2
    out.append(f"{'':14s}" + "".join(f"{f:>{width}s}" for f in (*families, "mean")))
    for arm, cells in report.accuracy.items():
        values = [
            _mean([v for n, v in cells.items() if n.partition("/")[0] == f]) for f in families
        ]
        shown = "".join(
            f"{100 * value:{width}.1f}" for value in (*values, _mean([*cells.values()]))
        )
        out.append(f"{arm:14s}{shown}")
    for arm, one in report.leads.items():
        span = f"{100 * one.value:+.1f} [{_points(one.low)}, {_points(one.high)}]"
        out.append(f"{report.chosen} over {arm}, {ARMS[arm]}: {span} points")
    out += [f"{arm}: {word}" for arm, word in report.verdicts.items()]
    out.append(f"result: {report.chosen}, after {report.tokens:,} tokens, as each other arm")
    return out


def _points(value: float | None) -> str:
    assert value is not None
    return f"{100 * value:+.1f}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def sentences(report: Report) -> list[str]:
    """Return what a completed run has found, as a list."""
    figures = report.figures
    own, gain = figures["accuracy"], figures["gain"]
    out = [
        f"- The result, the arm {report.chosen}, solves {100 * own.value:.1f} % of the test items, the "
        f"mean over families and levels; the given model {100 * (own.value - gain.value):.1f} %."
    ]
    for arm in ("uniform", "easy_to_hard"):
        one = figures.get(f"lead_over_{arm}")
        if one is not None:
            out.append(
                f"- The arm adaptive is {100 * one.value:+.1f} points ({_points(one.low)} to "
                f"{_points(one.high)}) from the arm {arm}, after as many tokens."
            )
    for arm, word in report.verdicts.items():
        one = figures[f"lead_of_{arm}"]
        out.append(
            f"- The arm {arm} is {100 * one.value:+.1f} points ({_points(one.low)} to "
            f"{_points(one.high)}) from the arm adaptive: {word}."
        )
    share = figures.get("tokens_to_equal")
    if share is not None:
        out.append(
            f"- It is as accurate as the arm uniform at its end after {100 * share.value:.0f} % of the "
            "tokens."
        )
    out.append(
        f"- A family of the result has lost {100 * figures['forgetting'].value:.1f} points at most "
        "since an earlier segment."
    )
    return out


def card(report: Report) -> str:
    """Return the model's card."""
    families = ", ".join(sorted({cell.partition("/")[0] for cell in report.accuracy[plan.START]}))
    return "\n".join(
        [
            *("---", "library_name: transformers", "---", ""),
            f"# {report.model} after a curriculum, seed {report.seed}",
            "",
            f"Trained on {report.tokens:,} tokens of the task families {families}: the arm "
            f"{report.chosen}, {ARMS[report.chosen]}.",
            "",
            *sentences(report),
            "",
        ]
    )


def reason(family: str, one: Any) -> str:
    """Return why a family's frontier is where it is, in words. `one` is a `Frontier`."""
    seen = f"{one.success:.0%} of {one.items} items of level {one.by}"
    return f"{family} {one.change} at level {one.level}: {seen}"
