"""Speed of trainings and the time that they have left, by the seconds that the log has. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from agent_forge.runs.kinds.view import Outlook, UnderWay
from agent_forge.studies.events import Observe, Observed
from agent_forge.studies.making.making import Advanced, Making, MakingState
from agent_forge.weights.recipes import Train


def segments(state: MakingState, recipe: Train) -> list[Advanced]:
    """Return the recorded segments of a training, the earliest first."""
    return [event for _, event in sorted(state.advanced.get(recipe.stem, {}).items())]


def speed(segment: Advanced) -> float | None:
    """Return the tokens a second of a segment; None if it took no time that was measured."""
    return segment.tokens / segment.seconds if segment.seconds > 0 else None


def newest(state: MakingState, recipes: Iterable[Making]) -> float | None:
    """Return the mean tokens a second of the newest segments of unfinished trainings; None: none has.

    A mean over trainings is the speed of one device.
    """
    begun = [
        segments(state, recipe)[-1]
        for recipe in recipes
        if isinstance(recipe, Train) and recipe.first < state.steps(recipe) < recipe.upto
    ]
    paces = [pace for end in begun if (pace := speed(end)) is not None]
    return fmean(paces) if paces else None


def outlook(
    state: MakingState,
    trainings: Sequence[Train],
    observations: Sequence[Observe],
    under_way: UnderWay,
    unit: str,
) -> Outlook:
    """Return how far a started run is: steps done and in all, share done, seconds left if known.

    A step costs the average seconds of the training's own steps. If the training has not begun, it is
    the average of the trainings of its objective, or of all, for windows of the same size. A measure
    that was never taken has no price: it is left out, and `besides` says so. `under_way` has the tasks
    of devices, each with its seconds. Devices share the rest; no training ends before its own steps.
    """
    done, of = sum(map(state.steps, trainings)), sum(recipe.upto for recipe in trainings)
    if state.completed:
        return Outlook(done, of, 1.0, 0.0, unit)
    ahead = _trainings(state, trainings)
    prices = _prices(state)
    tasks = [task for task in observations if task.key not in state.answers]
    measuring = [left for task in tasks if (left := _left(state, task, prices)) is not None]
    besides = len(measuring) < len(tasks)
    if ahead is None or (besides and not ahead and not measuring):
        return Outlook(done, of, done / of if of else None, None, unit)
    whole = math.fsum([*ahead, *measuring])
    segments_done = (event for advances in state.advanced.values() for event in advances.values())
    longest = max((event.seconds for event in segments_done), default=0.0)
    begun = math.fsum(min(seconds, longest) for key, seconds in under_way if key.startswith("make/"))
    left = max(0.0, whole - begun)
    spent = math.fsum(e.seconds for recipe in trainings for e in segments(state, recipe))
    spent += math.fsum(e.seconds for e in state.answers.values() if isinstance(e, Observed))
    spent += math.fsum(part.seconds for parts in state.parts.values() for part in parts.values())
    share = 1 - left / (spent + whole) if spent + whole else 1.0
    hands = max(1, len(under_way))
    alone = max(ahead, default=0.0) - begun if hands > 1 else 0.0
    return Outlook(done, of, share, max(left / hands, alone), unit, besides=besides)


def _trainings(state: MakingState, trainings: Sequence[Train]) -> list[float] | None:
    """Return the seconds left of each unfinished training; None if a training's steps have no price."""
    prices = {recipe.stem: _price(state, [recipe]) for recipe in trainings}
    every = _price(state, trainings)
    left: list[float] = []
    for recipe in trainings:
        steps = recipe.upto - max(state.steps(recipe), recipe.first)
        if not steps:
            continue
        alike = [other for other in trainings if other.objective == recipe.objective]
        price = next(
            (p for p in (prices[recipe.stem], _price(state, alike), every) if p is not None), None
        )
        if price is None:
            return None
        left.append(price * steps * recipe.batch * recipe.context)
    return left


def _price(state: MakingState, trainings: Iterable[Train]) -> float | None:
    """Return the mean seconds for one token of a window, by the log; None if no step was done."""
    costs = [
        (event.seconds, (event.step - event.begin) * recipe.batch * recipe.context)
        for recipe in trainings
        for event in segments(state, recipe)
    ]
    places = sum(count for _, count in costs)
    return math.fsum(seconds for seconds, _ in costs) / places if places else None


def _prices(state: MakingState) -> Mapping[str, float]:
    """Return name of a measure → mean seconds of its measurements so far."""
    seconds: dict[str, list[float]] = {}
    for key, event in state.answers.items():
        if isinstance(event, Observed):
            spent = math.fsum(part.seconds for part in state.parts.get(key, {}).values())
            seconds.setdefault(event.measure, []).append(event.seconds + spent)
    return {measure: fmean(times) for measure, times in seconds.items()}


def _left(state: MakingState, task: Observe, prices: Mapping[str, float]) -> float | None:
    """Return the seconds that a measurement has left, by its parts or others; None: not known."""
    parts = state.parts.get(task.key, {}).values()
    if done := sum(part.end - part.begin for part in parts):
        pieces = max(part.of for part in parts)
        return math.fsum(part.seconds for part in parts) / done * (pieces - done)
    return prices.get(task.measure)
