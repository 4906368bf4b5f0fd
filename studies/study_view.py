"""Views and prose of runs of studies: names, lines, curves, tables, panels, report, card. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import override

from agent_forge.events import Envelope, Event
from agent_forge.events.envelope import Data, Plain
from agent_forge.runs.event_types import Figure
from agent_forge.runs.kinds import default_panels
from agent_forge.runs.kinds.decide import Start
from agent_forge.runs.kinds.tracking import Parts, Tracking
from agent_forge.runs.kinds.view import OTHER_DATA, AnyView, Outlook, Scores, UnderWay, View
from agent_forge.runs.kinds.wording import figure_text
from agent_forge.runs.lists.tables import Kind, Row, Table
from agent_forge.runs.panels.head import Fact, Head, Result, listed
from agent_forge.runs.panels.panels import Panel
from agent_forge.studies import arm_panels, comparison, training_panels, training_plan
from agent_forge.studies import run as tables
from agent_forge.studies.comparison import TEST
from agent_forge.studies.events import (
    MODEL,
    RULES,
    Arm,
    ModelsCompleted,
    Observed,
    nats_per_token,
    solved,
)
from agent_forge.studies.making.making import Advanced, MakingState
from agent_forge.studies.run import StudyRun
from agent_forge.studies.training_panels import outlook
from agent_forge.studies.training_plan import as_float32
from agent_forge.weights.recipes import Train

if TYPE_CHECKING:
    from agent_forge.studies import AnyStudy

S = TypeVar("S", bound=MakingState)
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


def curves(state: MakingState, trainings: Mapping[str, Sequence[Train]]) -> Curves:
    """Return name → points (dicts) of a training's curve; `trainings`: name → recipes of its parts."""
    return {
        name: [
            point.model_dump()
            for recipe in chain
            for _, event in sorted(state.advanced.get(recipe.stem, {}).items())
            for point in event.curve
        ]
        for name, chain in trainings.items()
    }


class StudyView(View[S]):
    """View of runs of a study."""

    kind: AnyStudy

    # ---- names and lines -------------------------------------------------------------------------

    @override
    def names(self, state: S) -> dict[str, str]:
        """Return recipe id → name, of snapshots too, and of the given model if that has a name."""
        study, run = self.kind, self.kind.begun(state)
        if run is None:
            return {}
        is_named = study.baseline in study.arms and study.baseline not in run.recipes
        names = {run.started.model.recipe_id: study.baseline} if is_named else {}
        for name, recipe in study.trainings(state).items():
            for step, event in state.advanced.get(recipe.stem, {}).items():
                names[event.recipe_id] = f"{name} after {step} steps"
        return names | {recipe.id: name for name, recipe in run.recipes.items()}

    @override
    def summary_line(self, type_: str, data: Data, names: Mapping[str, str]) -> str | None:
        name = names.get(str(data.get("recipe_id")), str(data.get("recipe_id"))[:12])
        match type_:
            case "submitted":
                return f"{data['model']['name']}, {data['config']['tokens']:,} tokens"
            case "started":
                return self.kind.started_line(data)
            case "made" | "trained":
                return f"{name}: {data['digest'][:12]}"
            case "advanced":
                curve = data["curve"]
                return f"{name}, loss {curve[-1]['loss']:.3f}" if curve else name
            case "observed":
                values = data["values"].values()
                mean, rule = sum(values) / len(values), RULES.get(data["measure"])
                if rule is solved:
                    return f"{name}, {data['on']}: {100 * mean:.1f} % right"
                unit = "nats a token" if rule is nats_per_token else "bits per byte"
                return f"{name}, {data['on']}: {mean:.4f} {unit}"
            case "sampled":
                streams = data["streams"].values()
                count = sum(stream["trajectories"] for stream in streams)
                return f"{name}: {count:,} replies, {sum(s['tokens'] for s in streams):,} tokens"
            case "completed":
                figures = {n: Figure(value=value["value"]) for n, value in data["figures"].items()}
                texts = (figure_text(self.kind, n, figure) for n, figure in figures.items())
                return ", ".join(texts)
            case _:
                return None

    @override
    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        first, _, rest = key.partition("/")
        name = names.get(rest.rpartition("/")[2], "the next segment")
        if first == "make":
            return f"make: {name}"
        if first == "observe":
            return f"measure {name}"
        if first == "sample":
            return f"let {name} write replies"
        return "prepare text and model" if key == Start.key else ""

    @override
    def row(self, entry: Plain, event: Event) -> None:
        if isinstance(event, Advanced) and event.curve:
            entry["curve"] = json.dumps([*json.loads(entry["curve"]), event.curve[-1].loss])
            entry["done"] = (entry["done"] or 0) + event.step - event.begin
        if isinstance(event, ModelsCompleted):
            figure, metric = self.kind.row_figure
            entry |= {"result": event.models[MODEL].recipe_id}
            if figure in event.figures:
                entry |= listed(metric, event.figures[figure].value, f"{TEST} slice")

    @override
    def tokens(self, event: Event) -> int:
        return event.tokens if isinstance(event, Advanced) else 0

    # ---- progress, curves and tables -------------------------------------------------------------

    @override
    def progress(self, state: S) -> tuple[int, int | None]:
        if state.started is None:
            return 0, None
        every = self.kind.trainings(state).values()
        return sum(map(state.steps, every)), sum(recipe.upto for recipe in every)

    @override
    def outlook(self, state: S, rehearsal: object, under_way: UnderWay = ()) -> Outlook:
        study = self.kind
        trainings = () if state.started is None else tuple(study.trainings(state).values())
        if not trainings and not state.completed:
            return super().outlook(state, rehearsal, under_way)
        unit, tasks = f"{study.unit}s", study.observations(state)
        return outlook(state, trainings, tasks, under_way, unit)

    def curves(self, state: S) -> Curves:
        """Return name → points of its training: step, loss, norm of the gradient, rate."""
        trainings = self.kind.trainings(state).items() if state.started else ()
        return curves(state, {name: (recipe,) for name, recipe in trainings})

    @override
    def tables(self) -> Mapping[str, Callable[[S, Sequence[Envelope]], Table]]:

        def training(state: S, _rows: Sequence[Envelope]) -> Table:
            curves = self.curves(state).items()
            return Table(CURVE, [{"model": name, **p} for name, points in curves for p in points])

        def figures(state: S, _rows: Sequence[Envelope]) -> Table:
            names, of = self.names(state), self.kind.figure_of
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

    # ---- result and panels -----------------------------------------------------------------------

    def headline(self, run: StudyRun) -> Result | None:
        """Return the `Result`: our arm's figure beside the baseline's; None until both are measured."""
        study = self.kind
        arms = tables.words(study.arms_of(run))
        return arm_panels.headline(run, study.result_title, arms, study.baseline)

    @override
    def head(self, state: S) -> Head:
        run = self.kind.begun(state)
        if run is None:
            return default_panels.head(self.kind, state)
        speed = training_panels.speed(state, self.kind.trainings(state).values())
        shown = self.kind.facts(run).items()
        facts = [*speed, *(Fact(name=n, value=v, unit=unit) for n, (v, unit) in shown)]
        result = self.headline(run)
        if result is not None and result.model:
            result = result.model_copy(update={"called": self.names(state).get(result.model, "")})
        return default_panels.head(self.kind, state, result, facts)

    @override
    def unchanged(self, state: S) -> str | None:
        """Return the given model's name if the result is that model or its copy in float32."""
        result, start = state.completed.models[MODEL], state.started.model
        same = result.digest == start.digest or result.recipe_id == as_float32(state.started).id
        return state.called.get(start.digest, start.name) if same else None

    def comparison_panels(self, run: StudyRun, result: str) -> Sequence[Panel]:
        """Return the panels of arms and of domains, of a run whose arm `result` is measured."""
        study = self.kind
        text = study.comparison_title, study.comparison_note
        return arm_panels.compared(run, study.arms_of(run), result, study.baseline, *text)

    def references(self, run: StudyRun) -> Sequence[str]:
        """Return the names of the trainings that curves show as references."""
        return self.kind.references

    @override
    def panels(self, state: S, curve: Scores = ()) -> Sequence[Panel]:
        run = self.kind.begun(state)
        if run is None:
            return []
        shown: list[Panel] = []
        if run.ours is not None and run.ours in run.seen:
            shown += self.comparison_panels(run, run.ours)
        curves, references = self.curves(state), self.references(run)
        shown += training_panels.curves(curves, references, run.state, run.trainings)
        return [*shown, *self.kind.own_panels(run), training_panels.models(run.state, run.recipes)]

    @override
    def yardstick(self, state: S) -> Plain:
        return {OTHER_DATA: state.started.items if state.started else None}

    @override
    def fields(self, state: S) -> Plain:
        observations = run.seen if (run := self.kind.begun(state)) else {}
        bits = {arm: dict(event.values) for arm, event in observations.items()}
        return {"curves": self.curves(state), "bits_per_byte": bits}

    @override
    def part(self, state: S, name: str, **options: object) -> Plain:
        if name != "lineage" or state.started is None:
            return super().part(state, name, **options)
        recipes = self.kind.run(state).recipes.items()
        return {n: {"id": recipe.id, "recipe": recipe.model_dump(mode="json")} for n, recipe in recipes}

    # ---- report ----------------------------------------------------------------------------------

    @override
    def report(self, state: S, rows: Sequence[Envelope]) -> Plain:
        return {**super().report(state, rows), **self.kind.prose.report(self.kind.run(state))}

    @override
    def summary(self, state: S, rows: Sequence[Envelope]) -> list[str]:
        return self.kind.prose.sentences(self.kind.run(state)) if state.completed else []


class ItemView(StudyView[S]):
    """Views of runs of a study that trains nothing."""

    unchanged, outlook = AnyView.unchanged, AnyView.outlook
    part, tables = AnyView.part, AnyView.tables

    @override
    def yardstick(self, state: S) -> Plain:
        return {OTHER_DATA: state.started.data_digest if state.started else None}


class StudyTracking(Tracking[S]):
    """Tracker rows of runs of a study."""

    further = training_panels.NAMES

    kind: AnyStudy

    @override
    def rows(self, state: S, after: int) -> list[tuple[int, Plain]]:
        if state.started is None:
            return []
        return training_panels.rows(state, self.kind.groups(state), after)

    @override
    def parts(self, state: S) -> Parts:
        groups = self.kind.groups(state) if state.started else ()
        return {"model": {name for group in groups for name in group}}


# ---- prose ---------------------------------------------------------------------------------------


def _study(run: StudyRun) -> Any:
    """Return the study that a run is of."""
    return run.study


def fields(run: StudyRun) -> Plain:
    """Return {}: the report has no fields beside those that every study has."""
    return {}


def arms(arms: Mapping[str, Arm]) -> Plain:
    """Return {"bits_per_byte": arm → domain → figure}, a field of the report."""
    return {"bits_per_byte": {name: dict(arm.bits_per_byte) for name, arm in arms.items()}}


def report(run: StudyRun) -> Plain:
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


def sentences(run: StudyRun) -> list[str]:
    """Return the figures of a completed run, a Markdown list item for each."""
    out, study = list[str](), run.study
    for name, figure in run.state.completed.figures.items():
        text, words = figure_text(study, name, figure), study.figures_of[name].rpartition(": ")[2]
        out.append(f"- {text[:1].upper()}{text[1:]}: {words}.")
    return out


def lines(run: StudyRun) -> list[str]:
    """Return the comparison of a run as lines of text for a terminal."""
    measured, words = run.state.completed.arms, tables.words(_study(run).arms_of(run))
    rows = {name: measured[name].bits_per_byte for name in words if name in measured}
    more = ((name, run.leads[name]) for name in rows if name in run.leads)
    title = _study(run).result_title
    return [
        *comparison.table(rows),
        *(comparison.lead_line(name, words[name], figure, f"the {title}") for name, figure in more),
    ]


def paragraphs(run: StudyRun, role: str) -> list[str]:
    """Return a list of one sentence for a model's card: what the result's arm is, or else `role`."""
    return [f"The {tables.words(_study(run).arms_of(run)).get(str(run.result), role)}."]


def card(run: StudyRun, role: str) -> str:
    """Return a model's card in Markdown: what it is, and what the run has found."""
    study = _study(run)
    tags = ("tags:", f"- {study.name}")
    head = ("---", "library_name: transformers", *tags, "---", "")
    what = f"{study.result_title[:1].upper()}{study.result_title[1:]}"
    title = f"# {what} of {run.started.model.name}, seed {run.settings.seed}"
    words, finding_sentences = study.prose.paragraphs(run, role), study.prose.sentences(run)
    return "\n".join([*head, title, "", *words, "", *finding_sentences, ""])


def next_steps(run: StudyRun, name: str) -> list[str]:
    """Return []: there are no commands that make sense after a run."""
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
