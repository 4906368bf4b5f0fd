"""Head and panels of a baking run: scores by iteration, success by tool, personas, cycles. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from phases.baking import findings, plan, report
from phases.baking.events import BakingState
from runs.panels.head import Fact, Result
from runs.panels.panels import Arm, Arms, Column, Lines, Matrix, Panel, Series, Units
from runs.panels.shapes import Axis, Metric
from studies import arm_panels as panels_of
from studies import comparison, training_panels
from studies.observing import Observed
from studies.training_panels import Curves

SUCCESS = Metric(name="success", better="up")
ITERATION = Axis(name="iteration", whole=True)
#: Arm → what it is, in words; the result has the name of its iteration.
WORDS = {
    plan.START: "the given model, without a prompt",
    "prompted": "the given model under the prompt of the tools",
}


def result(state: BakingState) -> Result | None:
    """Return the result's success beside the given model's; None until the run has completed."""
    done = state.completed
    if done is None:
        return None
    one = done.figures["success"]
    return Result(
        name="baked model",
        model=done.models["model"].recipe_id,
        metric=SUCCESS,
        value=one.value,
        low=one.low,
        high=one.high,
        over=WORDS[plan.START],
        lead=panels_of.lead(done.figures["gain"]),
        on=comparison.TEST,
        n=one.n,
    )


def facts(state: BakingState) -> tuple[Fact, ...]:
    """Return the tasks, the cycle that is under way, and the figures of the result."""
    if state.started is None:
        return ()
    found = [
        Fact(name="families", value=len(state.submitted.config.families)),
        Fact(name="calls are written as", value=state.started.form),
        Fact(name="iterations", value=len(state.iterations)),
    ]
    if state.started.trainable is not None:
        found.append(Fact(name="trained parameters", value=state.started.trainable))
    if state.completed is None:
        found.append(Fact(name="cycle", value=[*plan.rounds(state)][-1].cycle))
    else:
        figures = state.completed.figures
        found += [
            Fact(name=name, value=figures[name].value)
            for name in ("prompted", "ratio", "drift")
            if name in figures
        ]
    return tuple(found)


def panels(state: BakingState, curves: Curves) -> list[Panel]:
    """Return the panels of what is there."""
    if state.started is None:
        return []
    found: list[Panel] = []
    solved, best = findings.solved(state), plan.newest(state)
    if state.completed is not None:
        found += [_arms(state, solved, best), _families(solved, best)]
    if state.iterations:
        found += [_scores(state), _cycles(state)]
    if points := _divergences(state):
        found.append(points)
    if report.personas(state):
        found.append(_personas(state))
    seen = findings.found(state)
    if state.completed is not None:
        words = {plan.START: WORDS[plan.START], best: "the result"}
        found.append(panels_of.domains(words, seen, best))
    found += training_panels.curves(curves, [], state, plan.recipes(state))
    return [*found, training_panels.models(state, plan.recipes(state))]


def _arms(state: BakingState, solved: Mapping[str, Observed], best: str) -> Arms:
    words = {best: "the result, without a prompt", **WORDS}
    return Arms(
        name="arms",
        title="Tool tasks that are solved",
        says="; ".join(f"{arm}: {words[arm]}" for arm in solved)
        + ". The share of test tasks, the mean over families.",
        metric=SUCCESS,
        ours=best,
        baseline=plan.START,
        arms=tuple(
            Arm(
                name=arm,
                group="baked" if arm == best else "given",
                value=findings.score(event),
                n=comparison.windows(event),
                lead=None if arm == best else panels_of.lead(findings.lead(state, best, arm)),
            )
            for arm, event in solved.items()
        ),
    )


def _families(solved: Mapping[str, Observed], best: str) -> Matrix:
    """Return success by family and arm."""
    families = tuple(next(iter(solved.values())).values)
    return Matrix(
        name="success",
        title="Success by family of tasks",
        says="Share of the test tasks that are solved: a call ran, and the end is right.",
        rows=families,
        columns=tuple(solved),
        metrics=(SUCCESS,),
        values=tuple(tuple(event.values[f] for event in solved.values()) for f in families),
        ours=best,
        band=(0.0, 1.0),
    )


def _scores(state: BakingState) -> Lines:
    """Return the score before and after each iteration, by cycle."""
    series = []
    for cycle in state.submitted.config.cycles:
        own = [one for one in state.iterations if one.cycle == cycle]
        points: dict[int, float] = {}
        for one in own:
            points.setdefault(one.iteration - 1, one.before)
            points[one.iteration] = one.before if one.after is None else one.after
        if points:
            x = tuple(sorted(points))
            series.append(Series(name=cycle, x=x, y=tuple(points[at] for at in x)))
    return Lines(
        name="scores",
        title="Success by iteration",
        says="On the selection slice without a prompt, by cycle; a model that solves less is not kept.",
        x=ITERATION,
        y=Axis(name="success", better="up"),
        series=tuple(series),
    )


def _divergences(state: BakingState) -> Lines | None:
    """Return the divergence from the prompted model by iteration; None before it is measured."""
    every = plan.recipes(state)
    names = [plan.START, *(plan.name(one.iteration) for one in state.iterations)]
    found = {
        number: event.values[findings.PROMPT]
        for number, name in enumerate(names)
        if name in every and (event := findings.seen(state, findings.apart(every[name])))
    }
    if not found:
        return None
    return Lines(
        name="divergence",
        title="Divergence from the prompted model",
        says="KL of each iteration's model without a prompt from the given model under the prompt of "
        "the tools, on turns of the selection slice.",
        x=ITERATION,
        y=Axis(name="divergence", unit="nat/token", better="down"),
        series=(Series(name="KL", x=tuple(found), y=tuple(found.values())),),
    )


def _cycles(state: BakingState) -> Units:
    """Return how each iteration ended, and why cycles did."""
    ends = {one.iteration: report.reason(one) for one in state.switches}
    rows = [
        (one.iteration, one.cycle, one.outcome, one.before, one.after, ends.get(one.iteration))
        for one in state.iterations
    ]
    return Units(
        name="cycles",
        title="Cycles",
        says="Each iteration, and why a cycle ended with it.",
        unit="iteration",
        columns=(
            Column(name="iteration", type="integer"),
            Column(name="cycle", type="text"),
            Column(name="outcome", type="text"),
            Column(name="before", type="number"),
            Column(name="after", type="number"),
            Column(name="end", type="text"),
        ),
        rows=tuple(rows),
    )


def _personas(state: BakingState) -> Units:
    """Return the personas with their scores."""
    rows = [
        (one.iteration, one.text.strip(), one.score, one.score - one.bare, one.baked)
        for one in report.personas(state)
    ]
    return Units(
        name="personas",
        title="Personas",
        says="What the model proposed, and its success on the selection slice under each; `forge bake "
        "--prompt` bakes any of them.",
        unit="persona",
        columns=(
            Column(name="iteration", type="integer"),
            Column(name="persona", type="text"),
            Column(name="success", type="number"),
            Column(name="over none", type="number"),
            Column(name="baked", type="text"),
        ),
        rows=tuple((*row[:4], "yes" if row[4] else "no") for row in rows),
    )
