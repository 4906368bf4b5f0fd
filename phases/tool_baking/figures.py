"""Measurements of a baking run, and the figures that follow from them. Pure.

A model's success is the mean over families of the share of tasks that it solves. Intervals are the
middle 95 % of a paired bootstrap over tasks within each family (`evaluation/measures/bootstrap.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from agent_forge.evaluation.measures import bootstrap
from agent_forge.evaluation.measures.bootstrap import Counts
from agent_forge.phases.tool_baking.recipes import PURPOSE, START, Proposed
from agent_forge.runs.event_types import Figure
from agent_forge.studies import comparison
from agent_forge.studies.comparison import CHOOSING, TEST, draws, figure, mean
from agent_forge.studies.events import Observe, Observed
from agent_forge.studies.making.making import Making
from agent_forge.studies.run import FigureRule, StudyRun, ratio

#: Tasks solved without a prompt, under the prompt of the tools, and under each persona.
SUCCESS, UNDER_PROMPT, PERSONAS = (
    "tool-success@1",
    "prompted-tool-success@1",
    "persona-tool-success@1",
)
BITS, DIVERGENCE = "bits-per-byte@1", "prompt-divergence@1"
#: Group of the divergence from the given model under the prompt of the tools.
PROMPT = "prompt"
#: The arm of the given model under the prompt of the tools.
PROMPTED = "prompted"
#: Nats a token below which the prompt counts as changing nothing.
LEAST = 1e-4


# ---- what is measured --------------------------------------------------------------------------


def scored(recipe: Making, on: str = CHOOSING) -> Observe:
    """Return the task that measures which tasks a model solves without a prompt."""
    return Observe(recipe.id, SUCCESS, on)


def apart(recipe: Making, on: str = CHOOSING) -> Observe:
    """Return the task that measures a model's divergence from the given one under the tools' prompt."""
    return Observe(recipe.id, DIVERGENCE, on)


def success(event: Observed) -> float:
    """Return the share of tasks that a model solves, the mean over families."""
    return mean(event)


def auditions(proposed: Proposed, event: Observed) -> dict[str, float]:
    """Return persona → share of tasks solved under it, in the order of the proposals."""
    shares = {}
    for number, text in enumerate(proposed.personas, 1):
        rates = [v for g, v in event.values.items() if g.partition("/")[0] == str(number)]
        shares[text] = math.fsum(rates) / len(rates)
    return shares


# ---- figures -----------------------------------------------------------------------------------


def solved(run: StudyRun) -> dict[str, Observed]:
    """Return arm → the `observed` event of its success on the test slice, of measured arms."""
    return comparison.observed(run.state, run.known.get("solved", {}))


def _drawn(run: StudyRun) -> Mapping[str, Counts]:
    """Return arm → success in each resample of the tasks; all arms share the resamples."""
    events = solved(run)
    counts = {name: len(items) for name, items in next(iter(events.values())).items.items()}
    resamples = draws(counts, PURPOSE, run.settings.seed)
    return {
        arm: np.mean(
            [
                bootstrap.ratio(resample, event.items[name], event.sizes[name])
                for name, resample in resamples.items()
            ],
            axis=0,
        )
        for arm, event in events.items()
    }


def drawn(run: StudyRun) -> Mapping[str, Counts]:
    """Return arm → success in each resample, float64 [resamples], from a cache."""
    return run.state.remembered(("success",), lambda: _drawn(run))


def lead(run: StudyRun, over: str) -> Figure:
    """Return as a Figure the result's success minus that of the arm `over`, with the interval."""
    assert run.result is not None
    events, spread = solved(run), drawn(run)
    more = success(events[run.result]) - success(events[over])
    return figure(more, spread[run.result] - spread[over], comparison.windows(events[over]))


def _share(arm: Callable[[StudyRun], str | None]) -> Callable[[StudyRun], Figure]:
    """Return a function of a run: the success of the arm that `arm` names."""

    def value(run: StudyRun) -> Figure:
        name = arm(run)
        assert name is not None
        event = solved(run)[name]
        return figure(success(event), drawn(run)[name], comparison.windows(event))

    return value


def _ratio(run: StudyRun) -> Figure | None:
    """Return as a Figure the result's divergence over the given model's; None if that is near 0."""
    assert run.result is not None
    tasks = {name: apart(run.recipes[name], TEST) for name in (START, run.result)}
    events = comparison.observed(run.state, tasks)
    base = events[START]
    if base.values[PROMPT] < LEAST:
        return None
    above, below = events[run.result].items[PROMPT], base.items[PROMPT]
    counts = bootstrap.draws(len(above), PURPOSE, run.settings.seed, PROMPT)
    spread = bootstrap.ratio(counts, above, below)
    return figure(math.fsum(above) / math.fsum(below), spread, len(above))


RULES = {
    "success": FigureRule(
        "success: share of the test tasks that the result solves without a prompt, mean of families",
        _share(lambda run: run.result),
    ),
    "gain": FigureRule(
        "success gained: that of the result minus that of the given model, both without a prompt",
        lambda run: lead(run, START),
    ),
    "prompted": FigureRule(
        "success under the prompt: share of the test tasks that the given model solves with it",
        _share(lambda run: PROMPTED),
    ),
    "over_prompted": FigureRule(
        "lead over the prompted model: success of the result without the prompt minus that with it",
        lambda run: lead(run, PROMPTED),
    ),
    "drift": FigureRule(
        "drift on ordinary text: largest relative change of bits per byte of a domain",
        lambda run: Figure(value=comparison.drift(run.seen[START], run.seen[str(run.result)])),
        "share",
    ),
    "retention": ratio(
        START, "quality kept on ordinary text: bits per byte of the given model over the result's"
    ),
    "ratio": FigureRule(
        "ratio of divergences: that of the result without the prompt from the given model with it, "
        "over that of the given model without; missing if the prompt changes nothing",
        _ratio,
    ),
}
