"""Head and panels of a student run: arms, training curves, quality by domain. Pure."""

from __future__ import annotations

from phases.student import findings, plan
from phases.student.events import StudentState
from phases.student.report import ARMS
from runs.panels.head import Fact, Result
from runs.panels.panels import Panel
from studies import comparison, paired_bits, training_panels
from studies import panels as panels_of
from studies.training_panels import BITS, Curves


def result(state: StudentState) -> Result | None:
    """Return the student's bits per byte beside the given model's; None until both are known."""
    seen = findings.found(state) if state.started else {}
    best = findings.chosen(state) if state.started else None
    if best is None or best not in seen or plan.TEACHER not in seen:
        return None
    return Result(
        name="student",
        model=seen[best].recipe_id,
        metric=BITS,
        value=paired_bits.mean(seen[best]),
        over=ARMS[plan.TEACHER],
        lead=panels_of.lead(findings.leads(state)[plan.TEACHER]),
        on=comparison.TEST,
        n=panels_of.items(seen[best]),
    )


def facts(state: StudentState) -> tuple[Fact, ...]:
    """Return the sizes of both models, and the tokens that each training reads."""
    if state.started is None:
        return ()
    started, recipe = state.started, plan.distilled(state.submitted, state.started)
    return (
        *training_panels.speed(state, plan.recipes(state).values()),
        Fact(name="parameters", value=started.parameters),
        Fact(name="of the given model", value=started.model.parameters),
        Fact(name="times fewer", value=started.model.parameters / started.parameters),
        Fact(name="tokens of a training", value=recipe.steps * recipe.batch * recipe.context),
    )


def panels(state: StudentState, curves: Curves) -> list[Panel]:
    """Return the panels of what is there: arms, domains, curves, models."""
    if state.started is None:
        return []
    found: list[Panel] = []
    seen, best = findings.found(state), findings.chosen(state)
    if best in seen:
        groups = {arm: "given" if arm == plan.TEACHER else "student" for arm in ARMS}
        title, leads = "Student beside the given model", findings.leads(state)
        found.append(panels_of.arms(title, ARMS, seen, leads, groups, best, plan.TEACHER))
        found.append(panels_of.domains(ARMS, seen, best))
    found += training_panels.curves(curves, [plan.ALONE], state, plan.recipes(state))
    return [*found, training_panels.models(state, plan.recipes(state))]
