"""Head and panels of a baking run: scores by iteration, success by tool, personas, cycles. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from phases.tool_baking import figures, recipes, words
from phases.tool_baking.figures import PROMPT
from phases.tool_baking.recipes import START
from runs.kinds.outcome import figure_metric
from runs.panels.head import Result
from runs.panels.panels import Arms, Lines, Matrix, Panel, Series, Units, columns
from runs.panels.shapes import Axis, Metric
from studies import arm_panels, comparison, tables, training_panels
from studies.observing import Observed
from studies.run import Run
from studies.tables import Arm as StudyArm
from studies.training_panels import Curves

SUCCESS = Metric(name="success", better="up")
ITERATION = Axis(name="iteration", whole=True)


def headline(run: Run, title: str, over: str) -> Result | None:
    """Return the result's success beside the given model's; None until the run has completed."""
    done = run.state.completed
    if done is None:
        return None
    success, gain = done.figures["success"], arm_panels.lead(done.figures["gain"])
    if run.result == START:
        return arm_panels.figured(run, "given model", SUCCESS, success)
    return arm_panels.figured(run, title, SUCCESS, success, over=over, lead=gain)


def facts(run: Run) -> dict[str, tuple[str | float, str]]:
    """Return the tasks, the cycle that is under way, and the figures of the result."""
    done, iterations = run.state.completed, run.known["iterations"]
    shown: dict[str, str | float] = {
        "families": len(run.settings.families),
        "calls are written as": run.started.form,
        "iterations": len(words.ends(run)),
        "bakes kept": sum(end.outcome == "kept" for end in words.ends(run)),
    }
    if run.started.trainable is not None:
        shown["trained parameters"] = run.started.trainable
    if done is None:
        shown["cycle"] = iterations[-1].cycle if iterations else run.settings.cycles[0]
    facts_by_name = {name: (value, "") for name, value in shown.items()}
    for name in ("prompted",) if run.result == START else ("prompted", "ratio", "drift"):
        if done and name in done.figures:
            metric = figure_metric(run.study, name)
            facts_by_name[metric.name] = (done.figures[name].value, metric.unit)
    return facts_by_name


def panels(run: Run, arms: Mapping[str, StudyArm], title: str, curves: Curves) -> list[Panel]:
    """Return the panels of what is there."""
    shown: list[Panel] = []
    done, solved, result = run.state.completed, figures.solved(run), run.result
    if done is not None and result is not None:
        shown += [_arms(run, arms, title, result), _families(solved, result)]
    if words.ends(run):
        shown += [_scores(run), _cycles(run)]
    if points := _divergences(run):
        shown.append(points)
    if words.personas(run):
        shown.append(_personas(run))
    if done is not None and result is not None:
        both = {START: arms[START].words, result: "the result"}
        shown.append(arm_panels.domains(both, run.seen, result))
    shown += training_panels.curves(curves, [], run.state, run.recipes)
    return [*shown, training_panels.models(run.state, run.recipes)]


def _arms(run: Run, arms: Mapping[str, StudyArm], title: str, result: str) -> Arms:
    solved = figures.solved(run)
    every = {**arms, result: arms.get(result, StudyArm("the result, without a prompt", "baked"))}
    leads = {arm: figures.lead(run, arm) for arm in solved if arm != result}
    compared = tables.words(every), solved, leads, arm_panels.groups(every), result, START
    remark = "" if result != START else " No bake was kept: the result is the given model."
    note = f"The share of test tasks, the mean over families.{remark}"
    scale = replace(comparison.BITS_PER_BYTE, metric=SUCCESS)
    return arm_panels.arms(title, *compared, note, scale)


def _families(solved: Mapping[str, Observed], result: str) -> Matrix:
    """Return success by family and arm."""
    says = "Share of the test tasks that are solved: a call ran, and the end is right."
    head = ("success", "Success by family of tasks", says)
    return arm_panels.groups_by_arm(*head, SUCCESS, solved, result, band=(0.0, 1.0))


def _scores(run: Run) -> Lines:
    """Return the score before and after each iteration, by cycle."""
    series = []
    for cycle in run.settings.cycles:
        points: dict[int, float] = {}
        for end in (end for end in words.ends(run) if end.cycle == cycle):
            points.setdefault(end.iteration - 1, end.before)
            points[end.iteration] = end.before if end.after is None else end.after
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


def _divergences(run: Run) -> Lines | None:
    """Return the divergence from the prompted model by iteration; None before it is measured."""
    names = [START, *(recipes.name(end.iteration) for end in words.ends(run))]
    tasks = {name: figures.apart(run.recipes[name]) for name in names if name in run.recipes}
    observations = comparison.observed(run.state, tasks)
    points = {
        n: observations[name].values[PROMPT] for n, name in enumerate(names) if name in observations
    }
    if not points:
        return None
    return Lines(
        name="divergence",
        title="Divergence from the prompted model",
        says="KL of each iteration's model without a prompt from the given model under the prompt of "
        "the tools, on turns of the selection slice.",
        x=ITERATION,
        y=Axis(name="divergence", unit="nat/token", better="down"),
        series=(Series(name="KL", x=tuple(points), y=tuple(points.values())),),
    )


def _cycles(run: Run) -> Units:
    """Return how each iteration ended, and why cycles did."""
    whys = {switch.iteration: words.reason(switch) for switch in run.known["switches"]}
    rows = [
        (end.iteration, end.cycle, end.outcome, end.before, end.after, whys.get(end.iteration))
        for end in words.ends(run)
    ]
    return Units(
        name="cycles",
        title="Cycles",
        says="Each iteration, and why a cycle ended with it.",
        unit="iteration",
        columns=columns(
            iteration="integer",
            cycle="text",
            outcome="text",
            before="number",
            after="number",
            end="text",
        ),
        rows=tuple(rows),
    )


def _personas(run: Run) -> Units:
    """Return the personas with their scores."""
    rows = [
        (
            *(row.iteration, row.text.strip(), row.score, row.score - row.bare),
            "yes" if row.baked else "no",
        )
        for row in words.personas(run)
    ]
    return Units(
        name="personas",
        title="Personas",
        says="What the model proposed, and its success on the selection slice under each; `forge bake "
        "--prompt` bakes any of them.",
        unit="persona",
        columns=columns(
            iteration="integer",
            persona="text",
            success="number",
            over_none="number",
            baked="text",
        ),
        rows=tuple(rows),
    )
