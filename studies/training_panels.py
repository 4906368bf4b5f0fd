"""Panels and tracker rows of runs that train, their speed, and the time that they have left. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean
from types import MappingProxyType

from agent_forge.events.envelope import Plain
from agent_forge.runs.kinds.tracking import TrackedName
from agent_forge.runs.kinds.view import Outlook, UnderWay
from agent_forge.runs.panels.head import Fact
from agent_forge.runs.panels.panels import (
    Axis,
    Column,
    Lead,
    Lines,
    Metric,
    Panel,
    Series,
    Units,
    verdict,
)
from agent_forge.runs.panels.shapes import Cell
from agent_forge.studies.events import Observe, Observed
from agent_forge.studies.making.making import Advanced, Making, MakingState
from agent_forge.weights.recipes import Train

BITS = Metric(name="bits per byte", better="down")
STEPS = Axis(name="step", whole=True)

Curves = Mapping[str, list[Plain]]
#: Sentence about models without other words.
MADE = "All that the run makes; `forge lineage` has the recipes."


def lead(value: float, low: float, high: float) -> Lead:
    """Return a `Lead`: the value, its interval from `low` to `high`, and the verdict by that."""
    return Lead(value=value, low=low, high=high, verdict=verdict(low, high))


def curves(
    points_by_name: Curves,
    references: Collection[str],
    state: MakingState,
    recipes: Mapping[str, Making],
) -> list[Panel]:
    """Return panels of loss, speed, gradient norm and learning rate along steps; [] without points."""
    if not any(points_by_name.values()):
        return []
    return [
        _curve(points_by_name, references, "loss", Axis(name="loss", unit="nat/token", better="down")),
        *_speed(state, recipes, references),
        _curve(points_by_name, references, "norm", Axis(name="norm", log=True), "Norm of the gradient"),
        _curve(points_by_name, references, "rate", Axis(name="learning rate"), "Learning rate"),
    ]


def speed(state: MakingState, recipes: Iterable[Making]) -> tuple[Fact, ...]:
    """Return a tuple of one fact, the speed of the trainings under way; empty if none is known."""
    tokens = newest(state, recipes)
    return (Fact(name="training at", value=round(tokens), unit="tokens/s"),) if tokens else ()


def _speed(
    state: MakingState, recipes: Mapping[str, Making], references: Collection[str]
) -> list[Panel]:
    """Return one panel, tokens a second of all trainings' segments; [] if no time was measured."""
    series: list[Series] = []
    for name, recipe in recipes.items():
        events = segments(state, recipe) if isinstance(recipe, Train) else []
        segment_speeds = [(e, v) for e in events if (v := pace(e)) is not None]
        points = [(at, v) for e, v in segment_speeds for at in sorted({e.begin + 1, e.step})]
        if points:
            steps, speeds = zip(*points, strict=True)
            role = "reference" if name in references else "ours"
            series.append(Series(name=name, role=role, x=steps, y=speeds))
    says = "Tokens a second of each training, from the first step of a segment to its last."
    y = Axis(name="speed", unit="tokens/s", better="up")
    lines = Lines(name="speed", title="Speed", says=says, x=STEPS, y=y, series=tuple(series))
    return [lines] if series else []


def _curve(
    points_by_name: Curves, references: Collection[str], field: str, y: Axis, title: str = "Loss"
) -> Lines:
    series = tuple(
        Series(
            name=name,
            role="reference" if name in references else "ours",
            x=tuple(point["step"] for point in points),
            y=tuple(point[field] for point in points),
        )
        for name, points in points_by_name.items()
        if points
    )
    says = f"{title} along the steps of each training; a point is the mean of the steps before it."
    return Lines(name=field, title=title, says=says, x=STEPS, y=y, series=series)


def models(
    state: MakingState,
    recipes: Mapping[str, Making],
    says: str = MADE,
    chains: Mapping[str, Chain] = MappingProxyType({}),
) -> Units:
    """Return the table of all models with their steps, time and weights; `says` is its sentence.

    `chains` are the trainings of models that are made of a training's, or by several.
    """
    rows: list[tuple[Cell, ...]] = []
    for name, recipe in recipes.items():
        steps = of = seconds = None  # of what no training makes
        if chain := chains.get(name, (recipe,) if isinstance(recipe, Train) else ()):
            steps, of = state.steps(chain[-1]), chain[-1].upto
            events = (e for training in chain for e in segments(state, training))
            seconds = sum(event.seconds for event in events if event.step <= of)
        made_event = state.made.get(recipe.id)
        rows.append((name, steps, of, seconds, made_event.digest[:12] if made_event else None))
    return Units(
        name="models",
        title="Models",
        says=says,
        unit="model",
        columns=(
            Column(name="model", type="text"),
            Column(name="steps", type="integer"),
            Column(name="steps in all", type="integer"),
            Column(name="time", type="number", unit="s"),
            Column(name="weights", type="text"),
        ),
        rows=tuple(rows),
    )


#: The trainings of a model, one after the other: curriculum segments, or one whole training.
Chain = Sequence[Train]
#: Name → chain, of models whose trainings stand side by side over the same steps.
Group = Mapping[str, Chain]

NAMES = (
    TrackedName("step", "count", "steps so far; those of models side by side are counted once"),
    TrackedName("{model}/loss", "nats/token", "loss of the training, since the point before"),
    TrackedName("{model}/norm", "1", "norm of the gradient before it is clipped"),
    TrackedName("{model}/rate", "1", "learning rate"),
    TrackedName("{model}/tokens_per_second", "tokens/s", "speed of the last segment"),
)


def rows(
    state: MakingState, groups: Sequence[Group], after: int, last: Mapping[str, int] | None = None
) -> list[tuple[int, Plain]]:
    """Return (step, row for the tracker) pairs of the steps above `after`, group after group.

    A step has a row once every model of its group is behind it, and a group once the one before it has
    ended: several devices may train at once, and a tracker takes no earlier step afterwards.
    `last`: model → its last step, if its chain does not say it yet.
    """
    step_rows: list[tuple[int, Plain]] = []
    before = 0
    for group in groups:
        ends = {name: chain[-1].upto if chain else 0 for name, chain in group.items()}
        ends |= {name: end for name, end in (last or {}).items() if name in group}
        reached = {name: _reached(state, chain) for name, chain in group.items()}
        behind = (reached[name] for name in group if reached[name] < ends[name])
        done = min(behind, default=max(ends.values(), default=0))
        rows_by_step: dict[int, Plain] = {}
        for name, chain in group.items():
            _add(rows_by_step, name, state, chain, before)
        step_rows += [
            (at, rows_by_step[at]) for at in sorted(rows_by_step) if after < at <= before + done
        ]
        if any(reached[name] < ends[name] for name in group):
            break
        before += done
    return step_rows


def _reached(state: MakingState, chain: Chain) -> int:
    """Return the number of steps that a model has done: 0 before its first training has advanced."""
    return max(
        (state.steps(training) for training in chain if state.advanced.get(training.stem)), default=0
    )


def _add(
    rows_by_step: dict[int, Plain], name: str, state: MakingState, chain: Chain, before: int
) -> None:
    """Add a model's points to the rows by step; `before`: steps of the groups before."""
    for recipe in chain:
        for event in state.advanced.get(recipe.stem, {}).values():
            for point in event.curve:
                at = before + point.step
                columns = {f"{name}/{k}": v for k, v in point.model_dump().items() if k != "step"}
                rows_by_step.setdefault(at, {"step": at}).update(columns)
            if event.curve and (tokens := pace(event)) is not None:
                at = before + event.step
                rows_by_step.setdefault(at, {"step": at})[f"{name}/tokens_per_second"] = tokens


def segments(state: MakingState, recipe: Train) -> list[Advanced]:
    """Return the recorded segments of a training, the earliest first."""
    return [event for _, event in sorted(state.advanced.get(recipe.stem, {}).items())]


def pace(segment: Advanced) -> float | None:
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
    paces = [tokens for end in begun if (tokens := pace(end)) is not None]
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
