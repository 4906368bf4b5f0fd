"""Head and panels of a bitnet run: arms, training curves, quality by domain, ways of rounding. Pure."""

from __future__ import annotations

from typing import Any

from phases.bitnet import findings, plan
from phases.bitnet.events import BitnetState
from phases.bitnet.report import ARMS
from runs.panels.head import Fact, Result
from runs.panels.panels import Arms, Column, Panel, Units
from studies import comparison, paired_bits, training_panels
from studies import panels as panels_of
from studies.events import MODEL
from studies.training_panels import BITS, Curves


def result(state: BitnetState) -> Result | None:
    """Return the ternary model's bits per byte beside full precision's; None until both are known."""
    seen = findings.found(state) if state.started else {}
    if MODEL not in seen or plan.FULL not in seen:
        return None
    return Result(
        name="ternary model",
        model=seen[MODEL].recipe_id,
        metric=BITS,
        value=paired_bits.mean(seen[MODEL]),
        over=ARMS[plan.FULL],
        lead=panels_of.lead(findings.leads(state)[plan.FULL]),
        on=comparison.TEST,
        n=panels_of.items(seen[MODEL]),
    )


def facts(state: BitnetState) -> tuple[Fact, ...]:
    """Return the size of the model, and the tokens that each training reads."""
    if state.started is None:
        return ()
    started, recipe = state.started, plan.trainings(state)[plan.MASTER]
    return (
        *training_panels.speed(state, plan.recipes(state).values()),
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
    seen = findings.found(state)
    if MODEL in seen:
        found += [_arms(state), panels_of.domains(ARMS, seen, MODEL)]
    found += training_panels.curves(curves, [plan.FULL], state, plan.recipes(state))
    if findings.chosen(state) is not None:
        found.append(_rounding(state))
    return [*found, training_panels.models(state, plan.recipes(state))]


def _arms(state: BitnetState) -> Arms:
    """Return the arms with the leads of the ternary model over them."""
    ternary = (MODEL, plan.SCRATCH, findings.UNTRAINED)
    groups = {name: "ternary" if name in ternary else "float" for name in ARMS}
    seen, leads = findings.found(state), findings.leads(state)
    title = "Ternary beside its alternatives"
    return panels_of.arms(title, ARMS, seen, leads, groups, MODEL, plan.FULL)


def _rounding(state: BitnetState) -> Units:
    """Return the ways of rounding without training, and which one was chosen."""
    best, rows = findings.chosen(state), []
    for way, task in findings.choosing(state).items():
        event: Any = state.answers[task.key]
        rows.append((way, paired_bits.mean(event), way == best))
    return Units(
        name="rounding",
        title="Rounding without training",
        says=f"On the slice {comparison.CHOOSING}: the best one is the arm {findings.UNTRAINED}.",
        unit="way",
        columns=(
            Column(name="way", type="text"),
            Column(name="bits per byte", type="number", unit="bit/B", better="down"),
            Column(name="chosen", type="flag"),
        ),
        rows=tuple(rows),
    )
