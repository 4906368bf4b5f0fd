"""Panels of a run that trains from a given model: arms, and quality by domain. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from agent_forge.runs.event_types import Figure
from agent_forge.runs.panels.head import Result
from agent_forge.runs.panels.panels import Arm, Arms, Lead, Matrix, Metric, Panel
from agent_forge.studies import comparison, training_panels
from agent_forge.studies.comparison import BITS_PER_BYTE, Scale
from agent_forge.studies.events import MODEL, Observed
from agent_forge.studies.run import ArmLabel as StudyArm
from agent_forge.studies.run import StudyRun, words
from agent_forge.studies.training_panels import BITS

Seen = Mapping[str, Observed]
#: Sentence about arms whose trainings are alike.
SAME_WINDOWS = "All trainings read the same windows."


def lead(figure: Figure) -> Lead:
    """Return a figure and its interval as a lead, with the verdict that follows from them."""
    assert figure.low is not None
    assert figure.high is not None
    return training_panels.lead(figure.value, figure.low, figure.high)


def headline(run: StudyRun, name: str, words: Mapping[str, str], baseline: str) -> Result | None:
    """Return our arm's figure as the run's result, beside the baseline's; None until both are measured.

    The baseline itself, as a result, stands beside nothing.
    """
    if run.ours not in run.seen or baseline not in run.seen:
        return None
    event, scale, more = run.seen[run.ours], run.study.scale, run.leads.get(baseline)
    return Result(
        name=name,
        model=event.recipe_id,
        metric=scale.metric,
        value=scale.mean(event),
        over=words[baseline] if more else None,
        lead=lead(more) if more else None,
        on=f"{comparison.TEST} slice",
        n=scale.count(event),
        items=scale.items,
    )


def figured(
    run: StudyRun,
    name: str,
    metric: Metric,
    figure: Figure,
    over: str | None = None,
    lead: Lead | None = None,
) -> Result:
    """Return a figure of a completed run as the run's result, beside the alternative `over`."""
    model, on = run.state.completed.models[MODEL].recipe_id, f"{comparison.TEST} slice"
    fields = {"name": name, "model": model, "metric": metric, "over": over, "lead": lead, "on": on}
    return Result.model_validate({**fields, **figure.model_dump()})


def groups(arms: Mapping[str, StudyArm]) -> dict[str, str]:
    """Return arm → its group in pictures."""
    return {name: arm.group for name, arm in arms.items()}


def arms(
    title: str,
    words: Mapping[str, str],
    observations: Seen,
    leads: Mapping[str, Figure],
    groups: Mapping[str, str],
    own_arm: str,
    baseline: str,
    note: str = SAME_WINDOWS,
    scale: Scale = BITS_PER_BYTE,
    cost: Metric | None = None,
    costs: Mapping[str, float] = MappingProxyType({}),
) -> Arms:
    """Return the panel of arms with the leads of `own_arm` over them; `words`: arm → what it is.

    `note` is a sentence on all of them; `costs`: arm → what it cost, by the metric `cost`.
    """
    panel_arms = tuple(
        Arm(
            name=name,
            group=groups[name],
            value=scale.mean(observations[name]),
            n=scale.count(observations[name]),
            lead=lead(leads[name]) if name in leads else None,
            cost=costs.get(name),
        )
        for name in words
        if name in observations
    )
    legend = "; ".join(f"{name}: {words[name]}" for name in words if name in observations)
    return Arms(
        name="arms",
        title=title,
        says=f"{legend}. {note}",
        metric=scale.metric,
        ours=own_arm,
        baseline=baseline if baseline in observations else None,
        arms=panel_arms,
        cost=cost,
    )


def domains(words: Mapping[str, str], observations: Seen, own_arm: str) -> Matrix:
    """Return the matrix of bits per byte by domain (rows) and arm (columns)."""
    count, read = (
        comparison.windows(observations[own_arm]),
        sum(map(sum, observations[own_arm].sizes.values())),
    )
    says = (
        f"On {count:,} windows of the test slice, {read:,} bytes of text; fewer bits are better. "
        "Figures of the same model on other windows, or on whole documents, differ."
    )
    arms = {name: observations[name] for name in words if name in observations}
    return groups_by_arm("quality", "Bits per byte by domain", says, BITS, arms, own_arm)


def groups_by_arm(
    name: str,
    title: str,
    says: str,
    metric: Metric,
    observations: Seen,
    own_arm: str | None = None,
    band: tuple[float, float] | None = None,
) -> Matrix:
    """Return the matrix of figures by group and arm; its groups are those of `own_arm` or the first."""
    own_arm = own_arm if own_arm in observations else None
    groups = tuple(observations[own_arm or next(iter(observations))].values)
    values = tuple(tuple(arm.values.get(g) for arm in observations.values()) for g in groups)
    return Matrix(
        name=name,
        title=title,
        says=says,
        rows=groups,
        columns=tuple(observations),
        metrics=(metric,),
        values=values,
        ours=own_arm,
        band=band,
    )


def compared(
    run: StudyRun, table: Mapping[str, StudyArm], result: str, baseline: str, title: str, note: str
) -> Sequence[Panel]:
    """Return (panel of arms, matrix by domain) of a run whose arm `result` is measured."""
    arm_words = words(table)
    shown = (arm_words, run.seen, run.leads, groups(table), result, baseline)
    return arms(title, *shown, note), domains(arm_words, run.seen, result)
