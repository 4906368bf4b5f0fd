"""Head and panels of a bitnet run: arms, training curves, quality by domain, ways of rounding. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaluation import paired_bits
from phases.bitnet import findings, plan
from phases.bitnet.events import BitnetState
from phases.bitnet.report import ARMS
from runs.event_types import Figure
from runs.panels.head import Fact, Result
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
from weights.recipes import Train

BITS = Metric(name="bits per byte", unit="bit/B", better="down")
STEPS = Axis(name="step", whole=True)

Curves = Mapping[str, list[dict[str, Any]]]


def result(state: BitnetState) -> Result | None:
    """Return the ternary model's bits per byte beside full precision's; None until both are known."""
    seen = findings.found(state) if state.started else {}
    if plan.MODEL not in seen or plan.FULL not in seen:
        return None
    return Result(
        name="ternary model",
        model=seen[plan.MODEL].recipe_id,
        metric=BITS,
        value=paired_bits.mean(seen[plan.MODEL]),
        over=ARMS[plan.FULL],
        lead=_lead(findings.leads(state)[plan.FULL]),
        on=findings.TEST,
        n=sum(map(len, seen[plan.MODEL].items.values())),
    )


def _lead(figure: Figure) -> Lead:
    """Return the bits per byte that the ternary model needs less than another."""
    assert figure.low is not None
    assert figure.high is not None
    verdict = "better" if figure.low > 0 else "worse" if figure.high < 0 else "level"
    return Lead(value=figure.value, low=figure.low, high=figure.high, verdict=verdict)


def facts(state: BitnetState) -> tuple[Fact, ...]:
    """Return the size of the model, and the tokens that each training reads."""
    if state.started is None:
        return ()
    started, recipe = state.started, plan.trainings(state)[plan.MASTER]
    return (
        Fact(name="parameters", value=started.model.parameters),
        Fact(name="of them ternary", value=started.ternary),
        Fact(name="packed", value=started.packed, unit="bytes"),
        Fact(name="tokens of a training", value=recipe.steps * recipe.batch * recipe.context),
    )


def panels(state: BitnetState, curves: Curves) -> list[Panel]:
    """Return the panels of what is there: arms, curves, domains, ways of rounding, models."""
    found: list[Panel] = []
    if state.started is None:
        return found
    if plan.MODEL in findings.found(state):
        found += [_arms(state), _domains(state)]
    if any(curves.values()):
        found += [
            _curve(curves, "loss", Axis(name="loss", unit="nat/token", better="down"), "Loss"),
            _curve(curves, "norm", Axis(name="norm", log=True), "Norm of the gradient"),
            _curve(curves, "rate", Axis(name="learning rate"), "Learning rate"),
        ]
    if findings.chosen(state) is not None:
        found.append(_rounding(state))
    return [*found, _models(state)]


def _arms(state: BitnetState) -> Arms:
    """Return the arms with the leads of the ternary model over them."""
    seen, leads = findings.found(state), findings.leads(state)
    arms = tuple(
        Arm(
            name=name,
            group="ternary" if name in (plan.MODEL, plan.SCRATCH, findings.UNTRAINED) else "float",
            value=paired_bits.mean(seen[name]),
            n=sum(map(len, seen[name].items.values())),
            lead=_lead(leads[name]) if name in leads else None,
        )
        for name in ARMS
        if name in seen
    )
    words = "; ".join(f"{name}: {ARMS[name]}" for name in ARMS if name in seen)
    return Arms(
        name="arms",
        title="Ternary beside its alternatives",
        says=f"{words}. Each training reads the same windows.",
        metric=BITS,
        ours=plan.MODEL,
        baseline=plan.FULL if plan.FULL in seen else None,
        arms=arms,
    )


def _domains(state: BitnetState) -> Matrix:
    """Return bits per byte by domain and arm."""
    seen = findings.found(state)
    names = [name for name in ARMS if name in seen]
    domains = tuple(seen[plan.MODEL].values)
    return Matrix(
        name="quality",
        title="Bits per byte by domain",
        says="On the test slice; fewer bits are better.",
        rows=domains,
        columns=tuple(names),
        metrics=(BITS,),
        values=tuple(tuple(seen[name].values[d] for name in names) for d in domains),
        ours=plan.MODEL,
    )


def _curve(curves: Curves, field: str, y: Axis, title: str) -> Lines:
    """Return a quantity along the steps of every training."""
    series = tuple(
        Series(
            name=name,
            role="reference" if name == plan.FULL else "ours",
            x=tuple(point["step"] for point in points),
            y=tuple(point[field] for point in points),
        )
        for name, points in curves.items()
        if points
    )
    says = f"{title} along the steps of each training; a point is the mean of the steps before it."
    return Lines(name=field, title=title, says=says, x=STEPS, y=y, series=series)


def _rounding(state: BitnetState) -> Units:
    """Return the ways of rounding without training, and which one was chosen."""
    best, rows = findings.chosen(state), []
    for way, task in findings.choosing(state).items():
        event: Any = state.answers[task.key]
        rows.append((way, paired_bits.mean(event), way == best))
    return Units(
        name="rounding",
        title="Rounding without training",
        says=f"On the slice {findings.CHOOSING}: the best one is the arm {findings.UNTRAINED}.",
        unit="way",
        columns=(
            Column(name="way", type="text"),
            Column(name="bits per byte", type="number", unit="bit/B", better="down"),
            Column(name="chosen", type="flag"),
        ),
        rows=tuple(rows),
    )


def _models(state: BitnetState) -> Units:
    """Return all models with their steps and weights."""
    rows = []
    for name, recipe in plan.recipes(state).items():
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
