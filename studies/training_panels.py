"""Panels and tracker rows of runs that train: curves along the steps, models, leads, speed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from agent_forge.events.envelope import Plain
from agent_forge.runs.kinds.tracking import TrackedName
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
from agent_forge.studies import training_pace
from agent_forge.studies.making.making import Making, MakingState
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
    pace = training_pace.newest(state, recipes)
    return (Fact(name="training at", value=round(pace), unit="tokens/s"),) if pace else ()


def _speed(
    state: MakingState, recipes: Mapping[str, Making], references: Collection[str]
) -> list[Panel]:
    """Return one panel, tokens a second of all trainings' segments; [] if no time was measured."""
    series: list[Series] = []
    for name, recipe in recipes.items():
        segments = training_pace.segments(state, recipe) if isinstance(recipe, Train) else []
        segment_speeds = [(e, v) for e in segments if (v := training_pace.speed(e)) is not None]
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
            events = (e for training in chain for e in training_pace.segments(state, training))
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
            if event.seconds and event.curve:
                at, speed = before + event.step, event.tokens / event.seconds
                rows_by_step.setdefault(at, {"step": at})[f"{name}/tokens_per_second"] = speed
