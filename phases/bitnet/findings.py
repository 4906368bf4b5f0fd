"""Measurements of a bitnet run, and the conclusions from them. Pure.

A model's bits per byte are the mean over domains. Intervals are the middle 95 % of a paired bootstrap:
windows are resampled within each domain, the same for all models (`evaluation/measures/bootstrap.py`).
"""

from __future__ import annotations

from phases.bitnet import plan
from phases.bitnet.events import BitnetState
from runs.event_types import Figure
from studies import comparison
from studies.comparison import CHOOSING, TEST
from studies.events import MODEL, Result
from studies.observing import Observe, Observed
from studies.paired_bits import figure, mean

#: Measures of models in full precision, and of ternary ones that read int8 activations.
FLOAT, INT8 = "bits-per-byte@1", "int8-bits-per-byte@1"
#: The arm that is the best way of rounding without training.
UNTRAINED = "untrained"

#: Figure → what it is, in words.
FIGURES = {
    "bits_per_byte": "bits per byte of the ternary model, the mean over domains",
    "retention": "bits per byte after continued training in full precision with as many tokens, over "
    "the ternary model's own",
    "retention_of_start": "bits per byte of the model that the run started from, over the ternary "
    "model's own",
    "lead_over_untrained": "bits per byte that the best rounding without training needs more",
    "size": "bytes of the packed tensors, over those of the tensors in float32",
}


def measure(state: BitnetState, ternary: bool) -> str:
    """Return the measure of a model."""
    return INT8 if ternary and state.submitted.config.int8_activations else FLOAT


def choosing(state: BitnetState) -> dict[str, Observe]:
    """Return way of rounding without training → its measurement on the selection slice."""
    how, ways = measure(state, True), plan.untrained(state.submitted, state.started)
    return {way: Observe(recipe.id, how, CHOOSING) for way, recipe in ways.items()}


def chosen(state: BitnetState) -> str | None:
    """Return the way of rounding without training that is the best; None before all are measured."""
    tasks = choosing(state)
    found = {way: mean(event) for way, event in comparison.observed(state, tasks).items()}
    return min(found, key=lambda way: found[way]) if len(found) == len(tasks) else None


def comparing(state: BitnetState) -> dict[str, Observe]:
    """Return arm → its measurement on the test slice; without the untrained one before it is chosen."""
    recipes, way = plan.recipes(state), chosen(state)
    float_, ternary = measure(state, False), measure(state, True)
    tasks = {name: Observe(recipes[name].id, float_, TEST) for name in (plan.START, plan.FULL)}
    tasks[MODEL] = Observe(recipes[MODEL].id, ternary, TEST)
    if plan.SCRATCH in recipes:
        tasks[plan.SCRATCH] = Observe(recipes[plan.SCRATCH].id, ternary, TEST)
    if way is not None:
        tasks[UNTRAINED] = Observe(recipes[way].id, ternary, TEST)
    return tasks


def observations(state: BitnetState) -> list[Observe]:
    """Return everything that is measured, as far as it is known yet."""
    return [*choosing(state).values(), *comparing(state).values()]


def found(state: BitnetState) -> dict[str, Observed]:
    """Return arm → what was observed on the test slice, of those that are measured."""
    return comparison.observed(state, comparing(state))


def results(state: BitnetState) -> dict[str, Result]:
    """Return role → model of a run whose models are made."""
    recipes = plan.recipes(state)
    return {
        role: Result(recipe_id=recipes[role].id, digest=state.made[recipes[role].id].digest)
        for role in (MODEL, plan.MASTER)
    }


def figures(state: BitnetState) -> dict[str, Figure]:
    """Return the figures of a run whose arms are all measured. The size has no interval."""
    seen, started = found(state), state.started
    drawn = comparison.drawn(seen, plan.PURPOSE, state.submitted.config.seed)
    own, mine = mean(seen[MODEL]), drawn[MODEL]
    count = comparison.windows(seen[MODEL])
    told = {"bits_per_byte": figure(own, mine, count)}
    for name, rival in (("retention", plan.FULL), ("retention_of_start", plan.START)):
        told[name] = figure(mean(seen[rival]) / own, drawn[rival] / mine, count)
    lead = mean(seen[UNTRAINED]) - own
    told["lead_over_untrained"] = figure(lead, drawn[UNTRAINED] - mine, count)
    return {**told, "size": Figure(value=started.packed / started.bytes)}


def leads(state: BitnetState) -> dict[str, Figure]:
    """Return arm → the bits per byte that it needs more than the ternary model, with the interval."""
    seed = state.submitted.config.seed
    return comparison.leads(found(state), MODEL, plan.PURPOSE, seed)
