"""Head and panels of a bake: the strength curve, divergences by prompt, arms, training curves. Pure."""

from __future__ import annotations

from phases.bake import findings, plan, prompts, report, stages
from phases.bake.events import BakeState
from phases.bake.findings import LIMITS
from runs import kinds
from runs.kinds.outcome import figure_metric
from runs.panels.head import Fact, Result
from runs.panels.panels import Lines, Matrix, Panel, Series
from runs.panels.shapes import Axis, Limit, Metric
from studies import arm_panels as panels_of
from studies import comparison, training_panels
from studies.observing import Observed
from studies.training_panels import Curves

RATIO = Metric(name="ratio of divergences", better="down")
NATS = Metric(name="divergence", unit="nat/token", better="down")


def result(state: BakeState) -> Result | None:
    """Return the ratio of divergences; None until it is known."""
    done = state.completed
    if done is None or "ratio" not in done.figures:
        return None
    ratio = done.figures["ratio"]
    return Result(
        name="baked model",
        model=done.models["model"].recipe_id,
        metric=RATIO,
        value=ratio.value,
        low=ratio.low,
        high=ratio.high,
        on=f"{comparison.TEST} slice",
        n=ratio.n,
    )


def facts(state: BakeState) -> tuple[Fact, ...]:
    """Return the sizes of model and prompts, and the figures of the result."""
    if state.started is None:
        return ()
    told = [
        Fact(name="parameters", value=state.started.model.parameters),
        Fact(name="tokens of the prompts", value=state.started.prompt_tokens),
    ]
    if state.started.trainable is not None:
        told.append(Fact(name="trained parameters", value=state.started.trainable))
    if stages.changes(state) is False:
        told.append(Fact(name="the prompts change", value="nothing: nothing was trained"))
    if state.completed is not None:
        for name in ("strength", "drift", "others", "kept", "success", "far_ratio"):
            if figure := state.completed.figures.get(name):
                metric = figure_metric(kinds.of(state.kind), name)
                told.append(Fact(name=metric.name, value=figure.value, unit=metric.unit))
    return tuple(told)


def panels(state: BakeState, curves: Curves) -> list[Panel]:
    """Return the panels of what is there."""
    if state.started is None:
        return []
    found: list[Panel] = []
    if any(one.curve for one in stages.known(state)):
        found += _strengths(state)
    if findings.apart(state):
        found.append(_divergences(state))
    if behaved := findings.behaved(state):
        found.append(_behaviour(behaved))
    best, seen = findings.chosen(state), findings.found(state)
    if best in seen:
        words = {name: report.words(name) for name in seen}
        groups = {name: "given" if name == plan.PARENT else "baked" for name in seen}
        title, leads = "Ordinary text", findings.leads(state)
        found.append(panels_of.arms(title, words, seen, leads, groups, best, plan.PARENT))
        found.append(panels_of.domains(words, seen, best))
    found += training_panels.curves(curves, [], state, stages.trainings(state))
    return [*found, training_panels.models(state, stages.recipes(state))]


def _strengths(state: BakeState) -> list[Panel]:
    """Return ratio and drift along the strength, with their limits; a series for each way to it."""
    best = findings.chosen(state)
    told = f" Chosen: {report.words(best)}." if best else ""
    x = Axis(name="strength")
    return [
        Lines(
            name=name,
            title=f"{axis.name[:1].upper()}{axis.name[1:]} by strength",
            says=f"{says} On the {comparison.CHOOSING} slice.{told}",
            x=x,
            y=axis,
            series=tuple(
                Series(
                    name=title,
                    role="ours" if title == report.INTERPOLATED else "alternative",
                    x=tuple(points),
                    y=tuple(pair[index] for pair in points.values()),
                )
                for title, points in report.curves(state).items()
            ),
            limits=(Limit(at=LIMITS[name], says="limit"),),
        )
        for index, (name, axis, says) in enumerate(
            (
                (
                    "ratio",
                    Axis(name="ratio of divergences", better="down"),
                    "KL from the prompted model, over that of the given model without the prompt.",
                ),
                (
                    "drift",
                    Axis(name="change of bits per byte", better="down"),
                    "Largest relative change of a domain of ordinary text.",
                ),
            )
        )
    ]


def _behaviour(seen: dict[str, Observed]) -> Matrix:
    """Return the share of replies that pass the prompts' checks, by check, place and model."""
    groups = tuple(seen[plan.PARENT].values)
    return Matrix(
        name="behaviour",
        title="Replies that pass",
        says="Share of greedy replies on the test slice that pass a prompt's check: with and without "
        "the prompts, at the beginning (near) and after ordinary text (far).",
        rows=groups,
        columns=tuple(seen),
        metrics=(Metric(name="replies that pass", better="up"),),
        values=tuple(tuple(event.values.get(group) for event in seen.values()) for group in groups),
    )


def _divergences(state: BakeState) -> Matrix:
    """Return the divergences on the test slice by prompt and arm."""
    seen = findings.apart(state)
    own = seen.get(findings.chosen(state) or plan.PARENT, seen[plan.PARENT])
    groups = tuple(own.values)
    others = prompts.measured(state.submitted.config)
    listed = "; ".join(f"{findings.OTHER}{n}: {p.strip()[:60]}" for n, p in enumerate(others, 1))
    return Matrix(
        name="divergences",
        title="Divergence from the given model under prompts",
        says=f"On the test slice. prompt: the model without it, from the given one with it. {listed}",
        rows=groups,
        columns=tuple(seen),
        metrics=(NATS,),
        values=tuple(tuple(event.values[group] for event in seen.values()) for group in groups),
        ours=findings.chosen(state) if findings.chosen(state) in seen else None,
    )
