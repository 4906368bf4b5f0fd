"""Head and panels of a bake: the strength curve, divergences by prompt, replies that pass. Pure."""

from __future__ import annotations

from agent_forge.phases.prompt_baking import figures, recipes, words
from agent_forge.phases.prompt_baking.figures import LIMITS
from agent_forge.phases.prompt_baking.recipes import PARENT
from agent_forge.runs.kinds.outcome import figure_metric
from agent_forge.runs.panels.head import Result, quantity
from agent_forge.runs.panels.panels import Lines, Matrix, Panel, Series
from agent_forge.runs.panels.shapes import Axis, Limit, Metric
from agent_forge.studies import arm_panels, comparison
from agent_forge.studies.events import Observed
from agent_forge.studies.run import Run

RATIO = Metric(name="ratio of divergences", better="down")
NATS = Metric(name="divergence", unit="nat/token", better="down")
#: Figures of the result that are shown as facts.
SHOWN = ("strength", "drift", "others", "kept", "success", "far_ratio")
#: Panel along the strength → axis, and what it is.
ALONG = {
    "ratio": (
        Axis(name="ratio of divergences", better="down"),
        "KL from the prompted model, over that of the given model without the prompt.",
    ),
    "drift": (
        Axis(name="change of bits per byte", better="down"),
        "Largest relative change of a domain of ordinary text.",
    ),
}


def headline(run: Run, title: str) -> Result | None:
    """Return the ratio of divergences; None until it is known."""
    done = run.state.completed
    if done is None or "ratio" not in done.figures:
        return None
    return arm_panels.figured(run, title, RATIO, done.figures["ratio"])


def facts(run: Run) -> dict[str, tuple[float | str, str]]:
    """Return the sizes of model and prompts, and the figures of the result."""
    started, done = run.started, run.state.completed
    shown: dict[str, tuple[float | str, str]] = {
        "parameters": (started.model.parameters, ""),
        "tokens of the prompts": (started.prompt_tokens, ""),
    }
    if started.trainable is not None:
        shown["trained parameters"] = started.trainable, ""
    if run.result == PARENT:
        shown["the prompts change"] = "nothing: nothing was trained", ""
    figures = done.figures if done is not None else {}
    for name in SHOWN:
        if figure := figures.get(name):
            metric = figure_metric(run.study, name)
            shown[metric.name] = figure.value, metric.unit
    return shown


def panels(run: Run) -> list[Panel]:
    """Return the panels of strengths, divergences and replies, of what is there."""
    shown: list[Panel] = []
    curves, apart, behaved = words.curves(run), figures.apart(run), figures.behaved(run)
    if curves:
        shown += [_along(run, name, index, curves) for index, name in enumerate(ALONG)]
    if PARENT in apart:
        shown.append(_divergences(run, apart))
    if PARENT in behaved:
        shown.append(_behaviour(behaved))
    return shown


def _along(
    run: Run, name: str, index: int, curves: dict[str, dict[float, tuple[float, float]]]
) -> Lines:
    """Return ratio or drift along the strength, with its limit; a series for each way to it."""
    (axis, says), done = ALONG[name], run.state.completed
    chosen = f" Chosen: {words.of_arm(run.result)}." if run.result else ""
    if done and name in done.met:
        value = quantity(done.figures[name].value, figure_metric(run.study, name).unit)
        how = f"{words.MET[done.met[name]]} the limit of {words.LIMIT[name]}"
        chosen += f" On the test slice the value is {value}, {how}."
    return Lines(
        name=name,
        title=f"{axis.name[:1].upper()}{axis.name[1:]} by strength",
        says=f"{says} On the {comparison.CHOOSING} slice.{chosen}",
        x=Axis(name="strength"),
        y=axis,
        series=tuple(
            Series(
                name=title,
                role="ours" if title == words.INTERPOLATED else "alternative",
                x=tuple(points),
                y=tuple(pair[index] for pair in points.values()),
            )
            for title, points in curves.items()
        ),
        limits=(Limit(at=LIMITS[name], says="limit"),),
    )


def _behaviour(behaved: dict[str, Observed]) -> Matrix:
    """Return the share of replies that pass the prompts' checks, by check, place and model."""
    says = (
        "Share of greedy replies on the test slice that pass a prompt's check: with and without the "
        "prompts, at the beginning (near) and after ordinary text (far)."
    )
    metric = Metric(name="replies that pass", better="up")
    return arm_panels.groups_by_arm("behaviour", "Replies that pass", says, metric, behaved)


def _divergences(run: Run, apart: dict[str, Observed]) -> Matrix:
    """Return the divergences on the test slice by prompt and arm."""
    numbered_prompts = enumerate(recipes.measured(run.settings), 1)
    listed = "; ".join(f"{figures.OTHER}{n}: “{text.strip()[:60]}”" for n, text in numbered_prompts)
    says = (
        "On the test slice. prompt: how far a model without the baked prompt is from the given one "
        f"with it. The others: how far each is from the given one, both with that prompt. {listed}."
    )
    title = "Divergence from the given model under prompts"
    return arm_panels.groups_by_arm("divergences", title, says, NATS, apart, run.result)
