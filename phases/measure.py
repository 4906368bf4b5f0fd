"""Measurement of a model beside others, on the same documents: what gates of a pipeline decide by.

A run trains nothing and makes no model. Every model that it is given is an arm, under its recipe id;
the measured model is the result. Figures are pure functions of what was observed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import override

from agent_forge.evaluation.data.items import Text
from agent_forge.evaluation.data.slices import Slice
from agent_forge.evaluation.kept_items import TaskContext
from agent_forge.evaluation.loading import load_tokenizer
from agent_forge.events import Event
from agent_forge.events.envelope import Data, Plain
from agent_forge.runs.errors import ForgeError, NotFoundError
from agent_forge.runs.event_types import (
    Digest,
    Figure,
    Large,
    Measurement,
    ModelReference,
    Profile,
    SourceRecord,
)
from agent_forge.runs.history.audit import Finding
from agent_forge.runs.kinds import default_panels
from agent_forge.runs.kinds.asked import CheckResult, Plan
from agent_forge.runs.kinds.decide import Start, Task
from agent_forge.runs.kinds.files import Verification
from agent_forge.runs.kinds.forecast import Amount, Forecast
from agent_forge.runs.kinds.origin import AncestorRecipe, RunModels
from agent_forge.runs.kinds.setting_words import DATA, LIMITS, Labels
from agent_forge.runs.kinds.wording import figure_metric, figure_text
from agent_forge.runs.panels.head import Head, Result, listed, measured
from agent_forge.runs.panels.panels import Matrix, Panel, Units, columns
from agent_forge.runs.record import events as common
from agent_forge.runs.record.device_setting import AUTO, DEVICE, on_cpu
from agent_forge.runs.system.durations import duration, least
from agent_forge.studies import arm_panels, comparison, submission
from agent_forge.studies.comparison import draws, figure, rates
from agent_forge.studies.events import Observe, Observed, answered, history
from agent_forge.studies.making.making import MakingState
from agent_forge.studies.run import FigureRule, Script, StudyRun, bits, ratio, share
from agent_forge.studies.study import ItemStudy
from agent_forge.studies.study_view import ItemView, Prose
from agent_forge.studies.training_panels import BITS
from agent_forge.weights.recipes import Source
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.tensors import Tensors

MEASURE = "rolling-bits-per-byte@1"
#: With fewer documents than this in a domain, a note says that intervals are rough.
FEW = 20
#: Documents of a domain that a forecast scores.
PROBED = 8

# ---- settings and events -------------------------------------------------------------------------


class MeasureConfig(BaseModel):
    """Settings of a measurement."""

    labels: ClassVar[Labels] = {
        DATA: {"slice": "Slice of the data", "context": "Tokens of context", "seed": "Seed"},
        LIMITS: {"device": "Device"},
    }

    model_config = ConfigDict(frozen=True, extra="forbid")

    slice: Slice = Field("test", description="The slice of the data that is measured on.")
    context: int = Field(
        1024,
        ge=8,
        le=1 << 20,
        description="Tokens that a prediction may look back on; less if a model takes fewer.",
    )
    seed: int = Field(0, description="Of the resamples that intervals are computed from.")
    device: str = Field(AUTO, description=DEVICE)


#: The parts that models play: the one that is measured, those it is compared with, and those that the
#: pipeline began with.
Role = Literal["model", "against", "first"]
ROLES: tuple[Role, ...] = get_args(Role)


class Submitted(common.Submitted):
    """A measurement was asked for."""

    schema_version = 2

    config: MeasureConfig
    #: One model.
    model: tuple[ModelReference, ...]
    against: tuple[ModelReference, ...] = ()
    first: tuple[ModelReference, ...] = ()
    #: Files and folders of items; none: the built-in ones.
    data: tuple[str, ...] = ()

    def given(self) -> dict[Role, tuple[ModelReference, ...]]:
        """Return role → tuple of references to its models."""
        return {"model": self.model, "against": self.against, "first": self.first}


class Started(common.Started):
    """Models, items and profile were pinned."""

    #: Every model once, in the order in which it was given.
    sources: tuple[SourceRecord, ...]
    #: Role → recipe ids of `sources`, one for each model that was given.
    roles: dict[Role, tuple[Digest, ...]]
    #: SHA-256 of all items (`evaluation.data.items.digest`).
    data_digest: Digest
    #: Domain → number of documents that are measured on.
    documents: dict[str, Large]
    profile: Profile
    #: Recipe id → bytes of the model's tensors.
    bytes: dict[Digest, Large]


class Completed(common.Completed):
    """All models are measured and compared."""

    figures: dict[str, Figure]


# ---- figures -------------------------------------------------------------------------------------


def _kept(role: Role, words: str) -> FigureRule:
    """Return the rule of the best bits per byte of a role's models over the measured model's."""

    def rule(run: StudyRun) -> Figure | None:
        ids = run.started.roles.get(role, ())
        return ratio(min(ids, key=run.mean), words).value(run) if ids else None

    return share(words, rule)


def _regression(run: StudyRun) -> Figure | None:
    """Return as a Figure the largest relative rise in a domain over the worst rival's bits, or None."""
    rivals = [run.seen[id_] for id_ in run.started.roles.get("against", ())]
    if not rivals:
        return None
    event = run.seen[str(run.result)]
    drawn = draws(run.started.documents, run.study.purpose, run.settings.seed)
    own_rates, rival_rates = rates(event, drawn), [rates(other, drawn) for other in rivals]
    rises = [own_rates[d] / np.max([rival[d] for rival in rival_rates], axis=0) - 1 for d in drawn]
    point = max(event.values[d] / max(other.values[d] for other in rivals) - 1 for d in drawn)
    return figure(point, np.max(rises, axis=0), run.windows)


def _size(run: StudyRun) -> Figure | None:
    """Return as a Figure the model's bytes over those of the largest it is compared with, or None."""
    sizes, ids = run.started.bytes, run.started.roles.get("against", ())
    return Figure(value=sizes[run.result] / max(sizes[id_] for id_ in ids)) if ids else None


# ---- the work, in a process that may load torch --------------------------------------------------


class Context(TaskContext[MakingState]):
    """The opened items of a measurement, and the work on its tasks."""

    @property
    @override
    def needed(self) -> Sequence[Slice]:
        return (self.state.submitted.config.slice,)

    @property
    @override
    def largest(self) -> int:
        from agent_forge.weights.folders.checkpoint import open_checkpoint

        if self.state.started is not None:
            return max(source.parameters for source in self.state.started.sources)
        models = [reference for group in self.state.submitted.given().values() for reference in group]
        return max(open_checkpoint(self._cache.supply.model(m, None)).parameters for m in models)

    @property
    def documents(self) -> dict[str, list[Text]]:
        """Domain → the documents that are measured on."""
        return self.texts(*self.needed)

    def carry_out(self, task: Task) -> Event:
        """Do the task and return its event; append nothing. Raises the errors of the work."""
        if isinstance(task, Start):
            return self.started()
        assert isinstance(task, Observe)
        began = time.monotonic()
        return answered(task, *self.scored(task.recipe_id, self.documents), began)

    def started(self) -> Started:
        """Read models and items; return the event that pins them. Raises SourceError, DataError."""
        from agent_forge.weights.folders import gguf_note

        sources: dict[str, SourceRecord] = {}
        roles: dict[Role, tuple[str, ...]] = {}
        sizes: dict[str, int] = {}
        rounded: list[str] = []
        for role, models in self.state.submitted.given().items():
            records = [self._record(model) for model in models]
            rounded += [w for model in models for w in gguf_note.warnings(Path(model.path))]
            for record, size in records:
                sources.setdefault(record.recipe_id, record)
                sizes[record.recipe_id] = size
            roles[role] = tuple(record.recipe_id for record, _ in records)
        counts = {domain: len(texts) for domain, texts in self.documents.items()}
        rough = (
            f"domain {domain} has {count} documents: intervals are rough."
            for domain, count in counts.items()
            if count < FEW
        )
        return Started(
            warnings=(*dict.fromkeys(rounded), *rough),
            sources=tuple(sources.values()),
            roles=roles,
            data_digest=self.keep_items(),
            documents=counts,
            profile=self.profile(),
            bytes=sizes,
        )

    def _record(self, reference: ModelReference) -> tuple[SourceRecord, int]:
        """Return (record, bytes of tensors) of a model, whose copy is shared. Raises SourceError."""
        from agent_forge.weights.folders.checkpoint import open_checkpoint
        from agent_forge.weights.storage.inputs import recorded

        place = self._cache.supply.model(reference, None)
        checkpoint = open_checkpoint(place, Path(reference.path))
        record = recorded(reference, place, checkpoint)
        self._cache.supply.share_model(place)
        return record, checkpoint.bytes

    def scored(
        self, recipe_id: str, texts: Mapping[str, Sequence[Text]]
    ) -> tuple[dict[str, tuple[float, ...]], dict[str, tuple[int, ...]]]:
        """Return (domain → −log p in nats of each document, domain → their bytes).

        Raises SourceError for a model that gives no finite numbers.
        """
        from agent_forge.evaluation.backends.local_backend import ResidentModel
        from agent_forge.evaluation.measures import perplexity
        from agent_forge.weights.folders.checkpoint import open_checkpoint

        record, place, opened = self.pinned(recipe_id)
        model = ResidentModel(place, self.device, open_checkpoint(place).tied)
        model.load(opened.weights)
        window = min(self.state.submitted.config.context, model.positions or 1 << 30)
        return perplexity.scored(model, texts, load_tokenizer(str(place)), window, record.name)

    def pinned(self, recipe_id: str) -> tuple[SourceRecord, Path, Tensors]:
        """Return (record, folder, opened model) of a pinned model. Raises SourceChangedError."""
        started, given = self.state.started, self.state.submitted.given()
        record = next(source for source in started.sources if source.recipe_id == recipe_id)
        pairs = (pair for role in ROLES for pair in zip(started.roles[role], given[role], strict=True))
        reference = next(reference for id_, reference in pairs if id_ == recipe_id)
        place = self._cache.supply.model(reference, record)
        return record, place, self._cache.supply.checked(place, record)


# ---- what is shown -------------------------------------------------------------------------------


def report(run: StudyRun) -> Plain:
    """Return {"figures": name → figure, "models": name → domain → bits per byte}."""
    study: Any = run.study
    figures = {name: figure.model_dump() for name, figure in run.state.completed.figures.items()}
    return {"figures": figures, **study.view.fields(run.state)}


def sentences(run: StudyRun) -> list[str]:
    """Return the figures of a completed run, a Markdown list item for each."""
    figures = run.state.completed.figures.items()
    return [f"- {figure_text(run.study, name, figure)}" for name, figure in figures]


def figures_panel(run: StudyRun) -> Units:
    """Return the table panel of figures with intervals, as texts: each has a unit of its own."""
    rows: list[tuple[str, str, str]] = []
    for name, outcome in run.state.completed.figures.items():
        metric = figure_metric(run.study, name)
        value = measured(outcome.value, metric.unit, outcome.low, outcome.high)
        rows.append((metric.name, value, run.study.figures_of[name].partition(": ")[2]))
    return Units(
        name="figures",
        title="Figures",
        says="Intervals are the middle 95 % of a paired bootstrap over documents.",
        unit="figure",
        columns=columns(figure="text", value="text", what_it_is="text"),
        rows=tuple(rows),
    )


def domains_panel(run: StudyRun, names: Mapping[str, str]) -> Matrix:
    """Return the table panel of bits per byte by domain and model, of those that are measured."""
    events = {names[id_]: event for id_, event in run.seen.items()}
    first = next(iter(events.values()))
    count, read = comparison.windows(first), sum(map(sum, first.sizes.values()))
    says = (
        f"On {count:,} whole documents of the {first.on} slice, {read:,} bytes of text; fewer bits are "
        "better. Figures of the same model on other documents, or on windows, differ."
    )
    return arm_panels.groups_by_arm(
        *("quality", "Bits per byte by domain", says, BITS, events, names[str(run.result)])
    )


class MeasureView(ItemView[MakingState]):
    """Views of a measurement."""

    @override
    def names(self, state: MakingState) -> dict[str, str]:
        """Return recipe id → the model's name as it was given, or as the run's pipeline calls it.

        Equal names get the id's beginning.
        """
        sources, whole = state.started.sources if state.started else (), state.run.rpartition(".")[0]
        called = [state.called.get(s.digest, s.name.removeprefix(f"{whole}.")) for s in sources]
        return {
            s.recipe_id: name if called.count(name) == 1 else f"{name} ({s.recipe_id[:6]})"
            for s, name in zip(sources, called, strict=True)
        }

    @override
    def summary_line(self, type_: str, data: Data, names: Mapping[str, str]) -> str | None:
        if type_ == "submitted":
            return next(iter(names.values()), data["model"][0]["name"])
        if type_ == "observed":
            values, id_ = data["values"].values(), str(data["recipe_id"])
            return f"{names.get(id_, id_[:12])}: {fmean(values):.4f} bits per byte"
        return super().summary_line(type_, data, names)

    @override
    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        if key.startswith("observe/"):
            id_ = key.rpartition("/")[2]
            return f"measure {names.get(id_, id_[:12])}"
        return "read models and items" if key == Start.key else ""

    @override
    def row(self, entry: Plain, event: Event) -> None:
        if isinstance(event, common.Submitted | common.Forked):
            entry["measured_on"] = f"{event.config.slice} slice"
        elif isinstance(event, Started):
            entry["result"] = event.roles["model"][0]
        elif isinstance(event, Observed):
            entry["done"] = (entry["done"] or 0) + 1
        elif isinstance(event, Completed):
            entry |= listed(BITS, event.figures["bits_per_byte"].value, entry["measured_on"])

    @override
    def progress(self, state: MakingState) -> tuple[int, int | None]:
        run = self.kind.begun(state)
        return (len(run.seen), len(run.arms)) if run else (0, None)

    @override
    def headline(self, run: StudyRun) -> Result | None:
        if not run.state.completed:
            return None
        value: Figure = run.state.completed.figures["bits_per_byte"]
        on = {"on": f"{run.settings.slice} slice", "items": "documents"}
        name = self.names(run.state)[str(run.result)]
        return Result.model_validate({"name": name, "metric": BITS, **on, **value.model_dump()})

    @override
    def head(self, state: MakingState) -> Head:
        head, roles = super().head(state), state.started.roles if state.started else {}
        if head.result is None or not {*roles["model"]} & {*roles.get("against", ())}:
            return head
        name = head.result.name
        verdict = f"{name} is itself among those that it is compared with: it passed unchanged."
        return head.model_copy(update={"verdict": verdict})

    @override
    def panels(self, state: MakingState, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        run, shown = self.kind.begun(state), list[Panel]()
        if run is not None and state.completed:
            shown.append(figures_panel(run))
        if run is not None and run.seen:
            shown.append(domains_panel(run, self.names(state)))
        return [*shown, default_panels.tasks(self.kind, state)]

    @override
    def fields(self, state: MakingState) -> Plain:
        run, names = self.kind.begun(state), self.names(state)
        events = run.seen if run else {}
        return {"models": {names[id_]: dict(event.values) for id_, event in events.items()}}


class MeasuredModels(RunModels[MakingState]):
    """The models that a measurement is of."""

    @override
    def ancestry(self, state: MakingState, name: str) -> list[AncestorRecipe]:
        """Return an AncestorRecipe of each measured model whose recipe id begins with `name`."""
        return [
            AncestorRecipe(
                source.recipe_id,
                "measured",
                f"the model {source.name}, {source.digest[:12]}",
                Source(digest=source.digest).model_dump(mode="json"),
                source.digest,
            )
            for source in (state.started.sources if state.started else ())
            if source.recipe_id.startswith(name)
        ]

    @override
    def measurements(self, state: MakingState, digest: str) -> list[Measurement]:
        sources = state.started.sources if state.started else ()
        ids = {source.recipe_id for source in sources if source.digest == digest}
        answers, seed = state.answers.values(), state.submitted.config.seed
        sizes = [Figure(value=state.started.bytes[id_]) for id_ in sorted(ids)]
        return [
            *comparison.measurements(answers, ids, self.kind.name, seed),
            *(Measurement(name="bytes of the tensors", figure=size) for size in sizes),
        ]


class MeasureVerification(Verification[MakingState]):
    """The rules by which a measurement is taken again."""

    @override
    def reopened(self, state: MakingState, cache: Artifacts) -> tuple[Context, Sequence[str]]:
        return Context.opened(state, cache), ()

    @override
    def chosen(self, state: MakingState, which: str) -> list[str]:
        """Return the recipe ids that "all", "champion" (the measured model) or an id's start means."""
        ids = [source.recipe_id for source in state.started.sources] if state.started else []
        if which != "all":
            ids = ids[:1] if which == "champion" else [i for i in ids if i.startswith(which)]
        if not ids:
            raise NotFoundError(f"run {state.run} has measured no model {which!r}.")
        return ids

    @override
    def rebuild(
        self, state: MakingState, cache: Artifacts, ids: Sequence[str], say: Callable[[str], None]
    ) -> Iterator[Finding]:
        """Yield a finding for each model whose weights are not the pinned ones: none is made again."""
        context = Context(state, cache)
        for id_ in ids:
            try:
                record, _, _ = context.pinned(id_)
            except ForgeError as error:
                yield Finding("unchecked", "weights", str(error))
            else:
                say(f"the weights of {record.name} have the digest {record.digest[:12]} as recorded")


# ---- the study -----------------------------------------------------------------------------------


class Measure(ItemStudy[MakingState]):
    """Measurement of a model beside others."""

    name = "measure"
    title = "a measurement"
    line = "measure a model beside others on the same documents"
    unit = "model"
    state = history(name, Submitted, Started, Completed, requests=(on_cpu,), makes=False)
    figure_rules = {
        "bits_per_byte": bits("bits per byte: those of the measured model, the mean over domains"),
        "retention": _kept(
            "against",
            "quality kept of the best input: bits per byte of the best model that it is compared "
            "with, divided by those of the measured model",
        ),
        "regression": share(
            "loss in the worst domain: rise of bits per byte over the worst input, in the domain "
            "where this rise is largest; below zero it is better than its worst input everywhere",
            _regression,
        ),
        "cumulative": _kept(
            "first",
            "quality kept since the beginning: bits per byte of the best model that the pipeline "
            "began with, divided by those of the measured model",
        ),
        "bytes": FigureRule(
            "size unpacked: bytes of the measured model's tensors, even if its file is packed",
            lambda run: Figure(value=run.started.bytes[run.result]),
            "bytes",
        ),
        "size": share(
            "unpacked size beside the largest input: bytes of the measured model's tensors, divided by "
            "those of the largest model that it is compared with",
            _size,
        ),
    }
    prose = Prose(report=report, sentences=sentences, lines=sentences)
    view = cached_property(MeasureView)
    models = cached_property(MeasuredModels)
    verification = cached_property(MeasureVerification)

    @override
    def script(self, run: StudyRun) -> Script:
        """Yield one step, to measure all models; return a function that gives the figures."""
        (run.result,) = run.started.roles["model"]
        ids, on = (source.recipe_id for source in run.started.sources), run.settings.slice
        yield run.compare({id_: Observe(id_, MEASURE, on) for id_ in ids})
        return lambda: {"figures": run.figures}

    @override
    def validate_answer(self, state: MakingState, task: Task, event: Event) -> str | None:
        if isinstance(task, Observe) and isinstance(event, Observed):
            counts = {domain: len(losses) for domain, losses in event.items.items()}
            if counts != state.started.documents:
                return "it has other documents than those that `started` pins"
        return super().validate_answer(state, task, event)

    @override
    def check(self, plan: Plan) -> CheckResult:
        from agent_forge.weights.folders import model_config
        from agent_forge.weights.folders.checkpoint import open_checkpoint

        folders = [Path(model.path) for role in ROLES for model in plan.fields[role]]
        opened = [open_checkpoint(folder) for folder in folders]
        for checkpoint in opened:
            model_config.check_predicts_tokens(checkpoint.given, checkpoint.config)
            load_tokenizer(str(checkpoint.folder))  # `given` may be a GGUF file in a package
        return submission.checked_on_items(plan, opened, (plan.config.slice,))

    @override
    def inputs(self, state: MakingState) -> dict[str, list[str]]:
        digests = {source.recipe_id: source.digest for source in state.started.sources}
        return {role: [digests[id_] for id_ in ids] for role, ids in state.started.roles.items()}

    @override
    def started_line(self, data: Data) -> str:
        return f"{len(data['sources'])} models, {sum(data['documents'].values()):,} documents"

    @override
    def facts(self, run: StudyRun) -> Mapping[str, tuple[float, str]]:
        figures = run.state.completed.figures if run.state.completed else {}
        names = ("retention", "cumulative", "regression", "size", "bytes")
        metrics = {name: figure_metric(self, name) for name in names if name in figures}
        return {metric.name: (figures[name].value, metric.unit) for name, metric in metrics.items()}

    @override
    def work(self) -> type[Context]:
        return Context

    @override
    def memory_of(self, submitted: Submitted, started: Started) -> int:
        """Return the bytes of the largest model's weights, twice: read, and in the model's object."""
        return 8 * max(source.parameters for source in started.sources)

    @override
    def forecast(self, submitted: Submitted, cache: Artifacts, folder: Path) -> Forecast:
        """Return the time, disk and memory that a measurement takes here, by some of its documents."""
        from agent_forge.studies.work import begun

        context, opening = begun(self, Context, submitted, cache)
        started, documents = context.state.started, context.documents
        probes = {domain: texts[:PROBED] for domain, texts in documents.items()}
        first, sizes = started.sources[0].recipe_id, dict[str, tuple[int, ...]]()
        scoring = least(lambda: sizes.update(context.scored(first, probes)[1]))
        every = (text for texts in documents.values() for text in texts)
        whole = sum(len(item.text.encode("utf-8", "replace")) for item in every)
        read, models = sum(map(sum, sizes.values())), len(started.sources)
        return Forecast(
            Amount(
                opening + models * scoring * whole / read,
                f"timed here: {read:,} bytes of text took one model {duration(scoring)}; {models} "
                f"models are to read {whole:,} bytes each; the start {duration(opening)}",
            ),
            Amount(0.0, "it leaves figures in the log only"),
            Amount(
                self.memory_of(submitted, started),
                "counted: the largest model's weights, twice; activations come on top",
            ),
        )
