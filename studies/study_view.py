"""Views and prose of runs of studies: names, lines, curves, tables, panels, report, card. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_forge.events import Envelope, Event
from agent_forge.events.envelope import Data, Plain
from agent_forge.runs.event_types import Figure, Measurement
from agent_forge.runs.kinds.decide import Start
from agent_forge.runs.kinds.outcome import figure_text
from agent_forge.runs.lists.tables import Kind, Row, Table
from agent_forge.runs.panels.head import Fact, Result, listed
from agent_forge.runs.panels.panels import Metric, Panel
from agent_forge.studies import comparison, training_panels, training_plan
from agent_forge.studies import run as tables
from agent_forge.studies.comparison import TEST
from agent_forge.studies.events import MODEL, Arm, ModelsCompleted, Observed
from agent_forge.studies.making.making import Advanced, MakingState
from agent_forge.studies.run import Run
from agent_forge.studies.training_plan import as_float32
from agent_forge.weights.recipes import Train

#: Columns of the table of training curves.
CURVE: dict[str, Kind] = {
    "model": "text",
    "step": "int",
    "loss": "float",
    "norm": "float",
    "rate": "float",
}
#: Name → points of a training: step, loss, norm of the gradient, rate.
Curves = Mapping[str, list[dict[str, float]]]

# ---- names and lines -----------------------------------------------------------------------------


def names(run: Run, trainings: Mapping[str, Train]) -> dict[str, str]:
    """Return recipe id → name, of snapshots too, and of the given model if that is the baseline."""
    baseline = _study(run).baseline
    is_given = baseline in run.study.arms and baseline not in run.recipes
    names = {run.started.model.recipe_id: baseline} if is_given else {}
    for name, recipe in trainings.items():
        for step, event in run.state.advanced.get(recipe.stem, {}).items():
            names[event.recipe_id] = f"{name} after {step} steps"
    return names | {recipe.id: name for name, recipe in run.recipes.items()}


def summary_line(study: Any, type_: str, data: Data, names: Mapping[str, str]) -> str | None:
    """Return the telling part of an event on one line; None for a type that not every study has."""
    name = names.get(str(data.get("recipe_id")), str(data.get("recipe_id"))[:12])
    match type_:
        case "submitted":
            return f"{data['model']['name']}, {data['config']['tokens']:,} tokens"
        case "started":
            return study.started_line(data)
        case "made" | "trained":
            return f"{name}: {data['digest'][:12]}"
        case "advanced":
            curve = data["curve"]
            return f"{name}, loss {curve[-1]['loss']:.3f}" if curve else name
        case "observed":
            values = data["values"].values()
            return f"{name}, {data['on']}: {sum(values) / len(values):.4f} bits per byte"
        case "completed":
            figures = {n: Figure(value=value["value"]) for n, value in data["figures"].items()}
            return ", ".join(figure_text(study, n, figure) for n, figure in figures.items())
        case _:
            return None


def task_words(key: str, names: Mapping[str, str]) -> str:
    """Return a task's key in words; empty if there are none."""
    first, _, rest = key.partition("/")
    name = names.get(rest.rpartition("/")[2], "the next segment")
    if first == "make":
        return f"make: {name}"
    if first == "observe":
        return f"measure {name}"
    return "prepare text and model" if key == Start.key else ""


def row(entry: Plain, event: Event, figure: str, metric: Metric) -> None:
    """Note steps, the last loss and the figure of the result in the run's row of the run list."""
    if isinstance(event, Advanced) and event.curve:
        entry["curve"] = json.dumps([*json.loads(entry["curve"]), event.curve[-1].loss])
        entry["done"] = (entry["done"] or 0) + event.step - event.begin
    if isinstance(event, ModelsCompleted):
        entry |= {"result": event.models[MODEL].recipe_id}
        if figure in event.figures:
            entry |= listed(metric, event.figures[figure].value, f"{TEST} slice")


def called(result: Result | None, names: Mapping[str, str]) -> Result | None:
    """Return a result with the name of its model."""
    if result is None or not result.model:
        return result
    return result.model_copy(update={"called": names.get(result.model, "")})


def facts(
    state: MakingState, trainings: Mapping[str, Train], shown: Mapping[str, tuple[float | str, str]]
) -> list[Fact]:
    """Return the speed of trainings, and what a study shows beside its result."""
    speed = training_panels.speed(state, trainings.values())
    return [*speed, *(Fact(name=n, value=v, unit=unit) for n, (v, unit) in shown.items())]


# ---- curves and tables ---------------------------------------------------------------------------


def curves(state: MakingState, trainings: Mapping[str, Sequence[Train]]) -> Curves:
    """Return the curves of trainings, each by the recipes of its parts."""
    return {
        name: [
            point.model_dump()
            for recipe in chain
            for _, event in sorted(state.advanced.get(recipe.stem, {}).items())
            for point in event.curve
        ]
        for name, chain in trainings.items()
    }


def progress(state: MakingState, trainings: Mapping[str, Train]) -> tuple[int, int]:
    """Return (steps of all trainings that are done, steps in all)."""
    every = trainings.values()
    return sum(map(state.steps, every)), sum(recipe.upto for recipe in every)


def tables_of(study: Any) -> dict[str, Callable[[Any, Sequence[Envelope]], Table]]:
    """Return the tables of a study: the points of all trainings, and every figure of a measurement."""

    def training(state: MakingState, _rows: Sequence[Envelope]) -> Table:
        curves: Curves = study.curves(state)
        rows: list[Row] = [{"model": name, **point} for name in curves for point in curves[name]]
        return Table(CURVE, rows)

    def figures(state: MakingState, _rows: Sequence[Envelope]) -> Table:
        names, of = study.names(state), study.figure_of
        rows: list[Row] = [
            {
                "model": names[event.recipe_id],
                "measure": event.measure,
                "slice": event.on,
                of: what,
                "value": value,
            }
            for event in state.answers.values()
            if isinstance(event, Observed)
            for what, value in event.values.items()
        ]
        text: dict[str, Kind] = dict.fromkeys(("model", "measure", "slice", of), "text")
        return Table({**text, "value": "float"}, rows)

    return {"training": training, "figures": figures}


# ---- results and panels --------------------------------------------------------------


def unchanged(state: MakingState) -> str | None:
    """Return the given model's name if the result is that model or its copy in float32."""
    result, start = state.completed.models[MODEL], state.started.model
    same = result.digest == start.digest or result.recipe_id == as_float32(state.started).id
    return state.called.get(start.digest, start.name) if same else None


def measurements(state: MakingState, digest: str) -> list[Measurement]:
    """Return the bits per byte of the models of a run with these weights, made or given."""
    ids = {id_ for id_, event in state.made.items() if event.digest == digest}
    return comparison.measurements(state.answers.values(), ids, state.submitted.config.seed)


def models(study: Any, event: Any, state: MakingState) -> list[Plain]:
    """Return the models that a run gives, as the model registry has them."""
    folder, id_ = state.submitted.output_dir, event.models[MODEL].recipe_id
    metrics = next(study.measured(arm) for arm in event.arms.values() if arm.recipe_id == id_)
    return [
        {
            "name": f"{state.run}-{role}",
            "kind": "champion" if role == MODEL else "base",
            "digest": model.digest,
            "parameters": study.parameters(state),
            "path": f"{folder}/{role}" if folder else None,
            "metrics": metrics if role == MODEL else {},
            "lineage": [state.started.model.digest],
        }
        for role, model in event.models.items()
    ]


def panels(study: Any, run: Run, curves: training_panels.Curves) -> list[Panel]:
    """Return the panels of what is there: arms, domains, curves, the study's own, models."""
    shown: list[Panel] = []
    if run.ours in run.seen:
        shown += study.comparison_panels(run, run.ours)
    shown += training_panels.curves(curves, study.references_of(run), run.state, run.trainings)
    return [*shown, *study.own_panels(run), training_panels.models(run.state, run.recipes)]


def _study(run: Run) -> Any:
    """Return the study that a run is of."""
    return run.study


def fields(run: Run) -> Plain:
    """Return no fields of the report beside those that every study has."""
    return {}


def arms(arms: Mapping[str, Arm]) -> Plain:
    """Return the fields of the report with what was measured of the arms of `completed`."""
    return {"bits_per_byte": {name: dict(arm.bits_per_byte) for name, arm in arms.items()}}


def report(run: Run) -> Plain:
    """Return the report of a run that has completed, as plain data."""
    study, done = _study(run), run.state.completed
    training = study.slowest_of(run.recipes)
    return {
        "model": run.started.model.name,
        "seed": run.settings.seed,
        #: Of each training.
        **({"tokens": training_plan.tokens(training)} if training else {}),
        #: Arm → domain → bits per byte on the test slice.
        **study.prose.arms(done.arms),
        #: Arm → what it needs more than the arm that the others are compared with.
        "more": {name: figure.model_dump() for name, figure in run.leads.items()},
        "figures": {name: figure.model_dump() for name, figure in done.figures.items()},
        #: Of all tasks of the run.
        "seconds": run.state.spent.device,
        **study.prose.fields(run),
    }


def sentences(run: Run) -> list[str]:
    """Return the figures of a run, as a list in Markdown."""
    out, study = list[str](), run.study
    for name, figure in run.state.completed.figures.items():
        text, words = figure_text(study, name, figure), study.figures_of[name].rpartition(": ")[2]
        out.append(f"- {text[:1].upper()}{text[1:]}: {words}.")
    return out


def lines(run: Run) -> list[str]:
    """Return the comparison of a run as lines of text for a terminal."""
    measured, words = run.state.completed.arms, tables.words(_study(run).arms_of(run))
    rows = {name: measured[name].bits_per_byte for name in words if name in measured}
    more = ((name, run.leads[name]) for name in rows if name in run.leads)
    title = _study(run).result_title
    return [
        *comparison.table(rows),
        *(comparison.lead_line(name, words[name], figure, f"the {title}") for name, figure in more),
    ]


def paragraphs(run: Run, role: str) -> list[str]:
    """Return what a model's card says before what the run has found: the arm that it is."""
    return [f"The {tables.words(_study(run).arms_of(run)).get(str(run.result), role)}."]


def card(run: Run, role: str) -> str:
    """Return a model's card: what it is, and what the run has found."""
    study = _study(run)
    tags = ("tags:", f"- {study.name}")
    head = ("---", "library_name: transformers", *tags, "---", "")
    what = f"{study.result_title[:1].upper()}{study.result_title[1:]}"
    title = f"# {what} of {run.started.model.name}, seed {run.settings.seed}"
    words, finding_sentences = study.prose.paragraphs(run, role), study.prose.sentences(run)
    return "\n".join([*head, title, "", *words, "", *finding_sentences, ""])


def next_steps(run: Run, name: str) -> list[str]:
    """Return no commands that make sense after a run."""
    return []


@dataclass(frozen=True)
class Prose:
    """Functions of what a study says of a run that has completed; a study gives those of its own."""

    #: Fields of the report beside those that every study has.
    fields: Callable[..., Plain] = fields
    #: Fields of the report with what was measured of the arms of `completed`.
    arms: Callable[..., Plain] = arms
    #: The report as plain data, as the result's folder has it.
    report: Callable[..., Plain] = report
    #: What the run has found, as a list in Markdown.
    sentences: Callable[..., list[str]] = sentences
    #: The report as lines of text for a terminal.
    lines: Callable[..., list[str]] = lines
    #: Paragraphs of a model's card before what the run has found, by its role.
    paragraphs: Callable[..., list[str]] = paragraphs
    #: A model's card.
    card: Callable[..., str] = card
    #: Commands that make sense after the run, by its name.
    next_steps: Callable[..., list[str]] = next_steps
