"""Panels of a run that trains from a given model: arms, curves, quality by domain, models. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from evaluation import paired_bits
from evaluation.observing import Observed
from runs.event_types import Figure
from runs.panels.panels import (
    Arm,
    Arms,
    Axis,
    Column,
    Lead,
    Lines,
    Matrix,
    Metric,
    Panel,
    Series,
    Units,
)
from weights.making.events import Making
from weights.recipes import Train

BITS = Metric(name="bits per byte", unit="bit/B", better="down")
STEPS = Axis(name="step", whole=True)

Curves = Mapping[str, list[dict[str, Any]]]
Seen = Mapping[str, Observed]


def lead(figure: Figure) -> Lead:
    """Return the bits per byte that the run's model needs less than another."""
    assert figure.low is not None
    assert figure.high is not None
    verdict = "better" if figure.low > 0 else "worse" if figure.high < 0 else "level"
    return Lead(value=figure.value, low=figure.low, high=figure.high, verdict=verdict)


def arms(
    title: str,
    words: Mapping[str, str],
    seen: Seen,
    leads: Mapping[str, Figure],
    groups: Mapping[str, str],
    ours: str,
    baseline: str,
) -> Arms:
    """Return the arms with the leads of the arm `ours` over them; `words`: arm → what it is."""
    found = tuple(
        Arm(
            name=name,
            group=groups[name],
            value=paired_bits.mean(seen[name]),
            n=items(seen[name]),
            lead=lead(leads[name]) if name in leads else None,
        )
        for name in words
        if name in seen
    )
    said = "; ".join(f"{name}: {words[name]}" for name in words if name in seen)
    return Arms(
        name="arms",
        title=title,
        says=f"{said}. Each training reads the same windows.",
        metric=BITS,
        ours=ours,
        baseline=baseline if baseline in seen else None,
        arms=found,
    )


def items(event: Observed) -> int:
    """Return the number of items that a model was measured on."""
    return sum(map(len, event.items.values()))


def domains(words: Mapping[str, str], seen: Seen, ours: str) -> Matrix:
    """Return bits per byte by domain and arm."""
    names = [name for name in words if name in seen]
    found = tuple(seen[ours].values)
    return Matrix(
        name="quality",
        title="Bits per byte by domain",
        says="On the test slice; fewer bits are better.",
        rows=found,
        columns=tuple(names),
        metrics=(BITS,),
        values=tuple(tuple(seen[name].values[d] for name in names) for d in found),
        ours=ours,
    )


def curves(found: Curves, references: Collection[str]) -> list[Panel]:
    """Return loss, norm of the gradient and learning rate along the steps of every training."""
    if not any(found.values()):
        return []
    return [
        _curve(found, references, "loss", Axis(name="loss", unit="nat/token", better="down")),
        _curve(found, references, "norm", Axis(name="norm", log=True), "Norm of the gradient"),
        _curve(found, references, "rate", Axis(name="learning rate"), "Learning rate"),
    ]


def _curve(
    found: Curves, references: Collection[str], field: str, y: Axis, title: str = "Loss"
) -> Lines:
    series = tuple(
        Series(
            name=name,
            role="reference" if name in references else "ours",
            x=tuple(point["step"] for point in points),
            y=tuple(point[field] for point in points),
        )
        for name, points in found.items()
        if points
    )
    says = f"{title} along the steps of each training; a point is the mean of the steps before it."
    return Lines(name=field, title=title, says=says, x=STEPS, y=y, series=series)


def models(state: Any, recipes: Mapping[str, Making]) -> Units:
    """Return all models with their steps and weights."""
    rows = []
    for name, recipe in recipes.items():
        steps = of = seconds = None  # of what no training makes
        if isinstance(recipe, Train):
            events = state.advanced.get(recipe.stem, {}).values()
            steps, of = state.steps(recipe), recipe.upto
            seconds = sum(event.seconds for event in events)
        made = state.made.get(recipe.id)
        rows.append((name, steps, of, seconds, made.digest[:12] if made else None))
    return Units(
        name="models",
        title="Models",
        says="All that the run makes; `forge lineage` has the recipes.",
        unit="model",
        columns=(
            Column(name="model", type="text"),
            Column(name="steps", type="integer"),
            Column(name="of", type="integer"),
            Column(name="seconds", type="number", unit="s"),
            Column(name="weights", type="text"),
        ),
        rows=tuple(rows),
    )
