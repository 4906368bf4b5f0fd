"""Measurements of a student run, and the conclusions from them. Pure.

A model's bits per byte are the mean over domains.
"""

from __future__ import annotations

from phases.student import plan
from phases.student.events import StudentState
from runs.event_types import Figure
from studies import comparison
from studies.comparison import CHOOSING, TEST
from studies.events import MODEL, Result
from studies.making.events import Making
from studies.observing import Observe, Observed
from studies.paired_bits import figure, mean

MEASURE = "bits-per-byte@1"

#: Figure → what it is, in words.
FIGURES = {
    "retention": "bits per byte of the given model over the student's own",
    "bits_per_byte": "bits per byte of the student, the mean over domains",
    "parameters": "parameters of the student",
    "ratio": "parameters of the given model over the student's",
}


def choosing(state: StudentState) -> dict[str, Observe]:
    """Return student → its measurement on the selection slice."""
    students = plan.students(state).items()
    return {arm: Observe(recipe.id, MEASURE, CHOOSING) for arm, recipe in students}


def chosen(state: StudentState) -> str | None:
    """Return the student that is the better one; None before all are measured."""
    tasks = choosing(state)
    found = {arm: mean(event) for arm, event in comparison.observed(state, tasks).items()}
    return min(found, key=lambda arm: found[arm]) if len(found) == len(tasks) else None


def comparing(state: StudentState) -> dict[str, Observe]:
    """Return arm → its measurement on the test slice."""
    ids = {plan.TEACHER: state.started.model.recipe_id}
    ids |= {arm: recipe.id for arm, recipe in plan.students(state).items()}
    return {arm: Observe(id_, MEASURE, TEST) for arm, id_ in ids.items()}


def observations(state: StudentState) -> list[Observe]:
    """Return everything that is measured."""
    return [*choosing(state).values(), *comparing(state).values()]


def found(state: StudentState) -> dict[str, Observed]:
    """Return arm → what was observed on the test slice, of those that are measured."""
    return comparison.observed(state, comparing(state))


def named(state: StudentState) -> dict[str, Making]:
    """Return name → recipe of all that the run makes; the first is its result once it is known."""
    recipes, best = plan.recipes(state), chosen(state)
    return {**({MODEL: recipes[best]} if best else {}), **recipes}


def results(state: StudentState) -> dict[str, Result]:
    """Return role → model of a run whose result is chosen."""
    id_ = named(state)[MODEL].id
    return {MODEL: Result(recipe_id=id_, digest=state.made[id_].digest)}


def figures(state: StudentState) -> dict[str, Figure]:
    """Return the figures of a run whose arms are all measured. Counts have no interval."""
    seen, started, best = found(state), state.started, chosen(state)
    assert best is not None
    drawn = comparison.drawn(seen, plan.PURPOSE, state.submitted.config.seed)
    own, mine, count = mean(seen[best]), drawn[best], comparison.windows(seen[best])
    kept = mean(seen[plan.TEACHER]) / own
    return {
        "retention": figure(kept, drawn[plan.TEACHER] / mine, count),
        "bits_per_byte": figure(own, mine, count),
        "parameters": Figure(value=started.parameters),
        "ratio": Figure(value=started.model.parameters / started.parameters),
    }


def leads(state: StudentState) -> dict[str, Figure]:
    """Return arm → the bits per byte that it needs more than the result, with the interval."""
    best = chosen(state)
    seed = state.submitted.config.seed
    return comparison.leads(found(state), best, plan.PURPOSE, seed) if best else {}
