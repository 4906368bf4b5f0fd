"""Head and panels of a bake: the strength curve, divergences by prompt, arms, training curves. Pure."""

from __future__ import annotations

from evaluation.given_model_runs import comparison
from evaluation.given_model_runs import panels as panels_of
from evaluation.training_runs import training_panels
from evaluation.training_runs.training_panels import Curves
from phases.bake import findings, plan, prompts, report
from phases.bake.events import BakeState
from phases.bake.findings import LIMITS
from runs.panels.head import Fact, Result
from runs.panels.panels import Lines, Matrix, Panel, Series
from runs.panels.shapes import Axis, Limit, Metric

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
        on=comparison.TEST,
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
    if findings.changes(state) is False:
        told.append(Fact(name="the prompts change", value="nothing: nothing was trained"))
    if state.completed is not None:
        figures = state.completed.figures
        for name in ("strength", "drift", "others"):
            if name in figures:
                told.append(Fact(name=name, value=figures[name].value))
    return tuple(told)


def panels(state: BakeState, curves: Curves) -> list[Panel]:
    """Return the panels of what is there."""
    if state.started is None:
        return []
    found: list[Panel] = []
    if len(findings.curve(state)) > 1:
        found += _strengths(state)
    if findings.apart(state):
        found.append(_divergences(state))
    best, seen = findings.chosen(state), findings.found(state)
    if best in seen:
        words = {name: report.words(name) for name in seen}
        groups = {name: "given" if name == plan.PARENT else "baked" for name in seen}
        title, leads = "Ordinary text", findings.leads(state)
        found.append(panels_of.arms(title, words, seen, leads, groups, best, plan.PARENT))
        found.append(panels_of.domains(words, seen, best))
    found += training_panels.curves(curves, [], state, plan.recipes(state))
    return [*found, training_panels.models(state, plan.recipes(state))]


def _strengths(state: BakeState) -> list[Panel]:
    """Return ratio and drift along the strength, with their limits."""
    points = sorted(findings.curve(state).items())
    at = tuple(strength for strength, _ in points)
    best = findings.chosen(state)
    told = f" Chosen: {findings.strength(state, best):g}." if best else ""
    x = Axis(name="strength")
    return [
        Lines(
            name=name,
            title=f"{axis.name[:1].upper()}{axis.name[1:]} by strength",
            says=f"{says} On the slice {comparison.CHOOSING}.{told}",
            x=x,
            y=axis,
            series=(Series(name=name, x=at, y=tuple(pair[index] for _, pair in points)),),
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


def _divergences(state: BakeState) -> Matrix:
    """Return the divergences on the test slice by prompt and arm."""
    seen = findings.apart(state)
    groups = tuple(next(iter(seen.values())).values)
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
