"""Comparison of a task's answer with what was asked, for the audit. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phases.experts import dispatch, stages
from phases.experts.events import ExpertsState, Fit, Fitted, Routed, Score, Scored
from phases.experts.search.objectives import whole


def wrong_scores(state: ExpertsState, task: Score, event: Scored) -> str | None:
    """Return why scores do not answer the task; None if they do."""
    if (event.arm, event.number, event.first) != (task.arm, task.number, task.first):
        return "other mixtures were measured than those that were asked for"
    if len(event.items) != task.last - task.first:
        return "it has another number of mixtures than was asked for"
    search = stages.searches(state)[task.arm]
    bar, probe = search.bar(task.number), state.submitted.config.probe
    wanted = {d: len(some) for d, some in search.given.items.items()}
    least = {d: min(probe, count) for d, count in wanted.items()}
    for items in event.items:
        if not items:
            continue
        if set(items) != set(search.given.items):
            return "a mixture was measured on other domains than the given model"
        if any(len(items[domain]) < count for domain, count in least.items()):
            return "a mixture was measured on too few windows"
        stopped = any(len(items[d]) == count for d, count in least.items()) and not whole(
            items, search.given
        )
        if not whole(items, search.given) and not stopped:
            return "a mixture was measured on another number of windows than was asked for"
        if least == wanted:  # the probe is the whole: a mixture that is given up has no less
            continue
        if bar.gives_up(items, search.given) == whole(items, search.given):
            return "a mixture was given up, or was not, against the rule"
    return None


def wrong_fit(state: ExpertsState, task: Fit, event: Fitted) -> str | None:
    """Return why a mixture does not answer the task; None if it does."""
    config = state.submitted.config
    if event.domain != task.domain:
        return "a mixture was found for another domain than was asked for"
    if [len(row) for row in event.losses] != [config.points] * config.rounds:
        return "it has another number of losses than rounds have points"
    found = dispatch.factors(config, task.domain, len(stages.kept(state) or ()), event.losses)
    return None if found == event.factors else "its factors do not follow from its losses"


def wrong_routes(state: ExpertsState, event: Routed) -> str | None:
    """Return why choices of experts do not answer the task; None if they do."""
    parts: Sequence[Mapping[str, Sequence[float]]] = (event.items, event.given, event.sizes)
    counts = {domain: len(some) for domain, some in event.choices.items()}
    if any({domain: len(some) for domain, some in part.items()} != counts for part in parts):
        return "its choices, items and sizes are not of the same windows"
    last = len(stages.kept(state) or ())
    if any(choice > last for some in event.choices.values() for choice in some):
        return "an expert was chosen that there is not"
    return None
