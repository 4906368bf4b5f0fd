"""The measurement as a kind of run: settings, events, a script of one question, and figures.

Models are compared by `studies/comparison.py`, on documents. Figures are pure functions of what was
observed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from agent_forge.events import Envelope, Event, New
from agent_forge.phases.measure.figures import (
    FIGURES,
    ROLES,
    SHARES,
    Completed,
    Forked,
    MeasureConfig,
    MeasureState,
    Started,
    Submitted,
    figures,
    observations,
    observed,
)
from agent_forge.runs.errors import ConfigError, NotFoundError
from agent_forge.runs.event_types import Figure, Measurement
from agent_forge.runs.history.audit import Finding
from agent_forge.runs.kinds import default_panels
from agent_forge.runs.kinds.asked import Checked, Lookup, Plan, RunRequest
from agent_forge.runs.kinds.decide import Decision, Start, Task
from agent_forge.runs.kinds.figure_words import figure_metric, figure_text
from agent_forge.runs.kinds.files import Verification
from agent_forge.runs.kinds.forecast import Forecast
from agent_forge.runs.kinds.kind import Kind
from agent_forge.runs.kinds.origin import Ancestor, RunModels
from agent_forge.runs.kinds.view import OTHER_DATA, View
from agent_forge.runs.panels.head import Fact, Head, Result, listed, measured
from agent_forge.runs.panels.panels import Matrix, Panel, Units, columns
from agent_forge.runs.system.rounding import alike
from agent_forge.studies import arm_panels, comparison
from agent_forge.studies.events import Observe, Observed
from agent_forge.studies.events import validate_answer as wrong_observation
from agent_forge.studies.run import Ask, Script, follow
from agent_forge.studies.study_view import Plain
from agent_forge.studies.submission import ItemRequests
from agent_forge.studies.training_panels import BITS
from agent_forge.weights.recipes import Source
from agent_forge.weights.storage.weight_cache import Artifacts


class MeasureView(View[MeasureState]):
    """The views of a measurement."""

    @override
    def names(self, state: MeasureState) -> dict[str, str]:
        """Return recipe id → the model's name as it was given, or as the run's pipeline calls it.

        Equal names get the id's beginning.
        """
        sources, whole = (
            state.started.sources if state.started else (),
            state.run.rpartition(".")[0],
        )
        called = [state.called.get(s.digest, s.name.removeprefix(f"{whole}.")) for s in sources]
        return {
            s.recipe_id: name if called.count(name) == 1 else f"{name} ({s.recipe_id[:6]})"
            for s, name in zip(sources, called, strict=True)
        }

    @override
    def summary_line(self, type_: str, data: Mapping[str, Any], names: Mapping[str, str]) -> str | None:
        match type_:
            case "submitted":
                return next(iter(names.values()), data["model"][0]["name"])
            case "started":
                count = sum(data["documents"].values())
                return f"{len(data['sources'])} models, {count:,} documents"
            case "observed":
                values = data["values"].values()
                bits = math.fsum(values) / len(values)
                name = names.get(str(data["recipe_id"]), str(data["recipe_id"])[:12])
                return f"{name}: {bits:.4f} bits per byte"
            case "completed":
                values = {name: Figure(value=v["value"]) for name, v in data["figures"].items()}
                return ", ".join(
                    figure_text(self.kind, name, figure) for name, figure in values.items()
                )
        return None

    @override
    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        if key.startswith("observe/"):
            id_ = key.rpartition("/")[2]
            return f"measure {names.get(id_, id_[:12])}"
        return "read models and items" if key == Start.key else ""

    @override
    def row(self, entry: Plain, event: Event) -> None:
        """Note measured models and the bits per byte in the run's row of the run list."""
        match event:
            case Submitted() | Forked():
                entry["measured_on"] = f"{event.config.slice} slice"
            case Started():
                entry["result"] = event.roles["model"][0]
            case Observed():
                entry["done"] = (entry["done"] or 0) + 1
            case Completed():
                entry |= listed(BITS, event.figures["bits_per_byte"].value, entry["measured_on"])

    @override
    def yardstick(self, state: MeasureState) -> dict[str, object]:
        """Return the items that results are measured on."""
        return {OTHER_DATA: state.started.data_digest if state.started else None}

    @override
    def progress(self, state: MeasureState) -> tuple[int, int | None]:
        """Return (models that are measured, all models)."""
        return len(observed(state)), len(state.started.sources) if state.started else None

    @override
    def head(self, state: MeasureState) -> Head:
        """Return the head: the model's bits per byte once all are measured."""
        if not state.completed:
            return default_panels.head(self.kind, state)
        (id_,), values = state.started.roles["model"], state.completed.figures
        bits = values["bits_per_byte"]
        result = Result(
            name=self.names(state)[id_],
            metric=BITS,
            value=bits.value,
            low=bits.low,
            high=bits.high,
            on=f"{state.submitted.config.slice} slice",
            n=bits.n,
            items="documents",
        )
        facts = [
            Fact(name=metric.name, value=values[name].value, unit=metric.unit)
            for name in (*SHARES, "bytes")
            if name in values and (metric := figure_metric(self.kind, name))
        ]
        head = default_panels.head(self.kind, state, result, facts)
        if id_ not in state.started.roles.get("against", ()):
            return head
        verdict = f"{result.name} is itself among those that it is compared with: it passed unchanged."
        return head.model_copy(update={"verdict": verdict})

    @override
    def panels(self, state: MeasureState, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        """Return the figures, and every model by domain."""
        shown: list[Panel] = []
        if state.completed:
            shown.append(self._figures(state))
        if observed(state):
            shown.append(_domains_panel(state, self.names(state)))
        return [*shown, default_panels.tasks(self.kind, state)]

    @override
    def report(self, state: MeasureState, rows: Sequence[Envelope]) -> dict[str, object]:
        """Return the figures and every model's bits per byte by domain."""
        values = {name: figure.model_dump() for name, figure in state.completed.figures.items()}
        return {**super().report(state, rows), "figures": values, **self.fields(state)}

    @override
    def summary(self, state: MeasureState, rows: Sequence[Envelope]) -> list[str]:
        """Return the figures, of a completed run."""
        values = state.completed.figures if state.completed else {}
        return [f"- {figure_text(self.kind, name, figure)}" for name, figure in values.items()]

    @override
    def fields(self, state: MeasureState) -> dict[str, object]:
        """Return every model's bits per byte by domain, of those that are measured."""
        names = self.names(state)
        return {"models": {names[i]: dict(event.values) for i, event in observed(state).items()}}

    def _figures(self, state: MeasureState) -> Units:
        """Return the figures with their intervals, as texts: each has a unit of its own."""
        rows = []
        for name, outcome in state.completed.figures.items():
            metric = figure_metric(self.kind, name)
            value = measured(outcome.value, metric.unit, outcome.low, outcome.high)
            rows.append((metric.name, value, FIGURES[name].partition(": ")[2]))
        return Units(
            name="figures",
            title="Figures",
            says="Intervals are the middle 95 % of a paired bootstrap over documents.",
            unit="figure",
            columns=columns(figure="text", value="text", what_it_is="text"),
            rows=tuple(rows),
        )


class MeasuredModels(RunModels[MeasureState]):
    """The models that a measurement is of."""

    @override
    def ancestry(self, state: MeasureState, name: str) -> list[Ancestor]:
        """Return the models that are measured, or the one that an id or its beginning means."""
        return [
            Ancestor(
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
    def measurements(self, state: MeasureState, digest: str) -> list[Measurement]:
        """Return the bits per byte and the bytes of a model that is measured."""
        sources = state.started.sources if state.started else ()
        ids = {source.recipe_id for source in sources if source.digest == digest}
        answers, seed = state.answers.values(), state.submitted.config.seed
        sizes = [Figure(value=state.started.bytes[id_]) for id_ in sorted(ids)]
        return [
            *comparison.measurements(answers, ids, "measure", seed),
            *(Measurement(name="bytes of the tensors", figure=size) for size in sizes),
        ]


class MeasureVerification(Verification[MeasureState]):
    """The rules by which a measurement is taken again."""

    @override
    def reopened(self, state: MeasureState, cache: Artifacts) -> tuple[Any, Sequence[str]]:
        from agent_forge.phases.measure.work import Context

        return Context.opened(state, cache), ()

    @override
    def rebuild(
        self, state: MeasureState, cache: Any, ids: Sequence[str], say: Any
    ) -> Iterator[Finding]:
        """Compare the weights of models with the pinned ones: a measurement makes none."""
        from agent_forge.phases.measure.work import same_weights

        yield from same_weights(state, cache, ids, say)

    @override
    def chosen(self, state: MeasureState, which: str) -> list[str]:
        """Return the recipe ids that "all", "champion" (the measured model) or an id means."""
        ids = [source.recipe_id for source in state.started.sources] if state.started else []
        if which != "all":
            ids = ids[:1] if which == "champion" else [i for i in ids if i.startswith(which)]
        if not ids:
            raise NotFoundError(f"run {state.run} has measured no model {which!r}.")
        return ids


class Measure(Kind[MeasureState]):
    """Measurement of a model beside others."""

    name = "measure"
    title = "a measurement"
    main_role = "model"
    line = "measure a model beside others on the same documents"
    unit = "model"
    config = MeasureConfig
    submitted = Submitted
    forked = Forked
    state = MeasureState
    answers: ClassVar[Mapping[type[Event], type]] = {Started: Start, Observed: Observe}
    figures_of: ClassVar[Mapping[str, str]] = FIGURES
    figure_units: ClassVar[Mapping[str, str]] = {
        "bits_per_byte": "bits/byte",
        "bytes": "bytes",
        **dict.fromkeys(SHARES, "share"),
    }
    listed = frozenset({Observed.type})
    view = cached_property(MeasureView)
    models = cached_property(MeasuredModels)
    requests = cached_property(ItemRequests)
    verification = cached_property(MeasureVerification)

    # ---- deciding --------------------------------------------------------------------------------

    def script(self, state: MeasureState) -> Script:
        """Measure every model, then compare; return the figures."""
        yield Ask(observations(state))
        return figures(state)

    @override
    def due(self, state: MeasureState) -> Decision:
        """Return what the script waits for, or the event that ends the run."""
        decision, values = follow(self.script(state), state)
        if values is None:
            return decision
        done = Completed(lineage_digest=state.lineage_digest(), chain_head=state.head, figures=values)
        return Decision(facts=[New(done, f"{state.run}/completed")])

    @override
    def essential(self, state: MeasureState, task: str) -> bool:
        """Return True: a comparison needs every model."""
        return True

    @override
    def validate_answer(self, state: MeasureState, task: Task, event: Event) -> str | None:
        if isinstance(task, Observe) and isinstance(event, Observed):
            counts = {domain: len(losses) for domain, losses in event.items.items()}
            if counts != state.started.documents:
                return "it has other documents than those that `started` pins"
            return wrong_observation(task, event)
        return None

    @override
    def wrong_result(self, state: MeasureState) -> Iterator[str]:
        if not alike(state.completed.figures, figures(state)):
            yield "the figures are not those of the events before"

    # ---- asking for a run ------------------------------------------------------------------------

    @override
    def plan(self, request: RunRequest, lookup: Lookup) -> Plan:
        """Return the plan of a run over a `model`, and others to compare it with.

        Raises ConfigError or UnavailableError.
        """
        from agent_forge.weights.devices import check_device
        from agent_forge.weights.folders.sources import ALIASES, resolve

        config = self.settings.parse(request.config)
        if unknown := sorted(set(request.models) - set(ROLES)):
            roles = ", ".join(ROLES)
            raise ConfigError(f"a measurement has no models {unknown[0]!r}: it has {roles}.")
        if len(request.models.get("model", ())) != 1:
            raise ConfigError("a measurement is of one model: --model model=MODEL.")
        check_device(config.device, lookup.elsewhere)
        aliases = {**ALIASES, **lookup.aliases}
        names = {role: tuple(map(str, request.models.get(role, ()))) for role in ROLES}
        # Each name once: to find a model may take long.
        every = dict.fromkeys(name for group in names.values() for name in group)
        models = {name: resolve(name, aliases, lookup.named) for name in every}
        models_by_role = {role: tuple(models[name] for name in group) for role, group in names.items()}
        data = tuple(self.requests.placed(str(place)) for place in request.data)
        return Plan(self.name, config, {**models_by_role, "data": data}, request.output_dir)

    @override
    def check(self, plan: Plan) -> Checked:
        """Open models (headers only), tokenizers and data; raise the errors of a start."""
        from agent_forge.evaluation.loading import load_items, load_tokenizer, texts_of
        from agent_forge.weights.folders import model_config
        from agent_forge.weights.folders.checkpoint import open_checkpoint

        parameters, notes = 0, list[str]()
        for model in (model for role in ROLES for model in plan.fields[role]):
            opened = open_checkpoint(Path(model.path))
            model_config.check_predicts_tokens(opened.given, opened.config)
            load_tokenizer(model.path)
            parameters = max(parameters, opened.parameters)
            notes += opened.warnings
        on, data = plan.config.slice, plan.fields["data"]
        items = load_items(data, parameters=parameters, note=notes.append, needed=(on,))
        counts = {domain: {on: len(texts)} for domain, texts in texts_of(items, on).items()}
        return Checked(tuple(notes), parameters, counts)

    # ---- results and work ------------------------------------------------------------------------

    @override
    def memory(self, state: MeasureState) -> int:
        """Return the bytes of the largest model's weights, twice: read, and in the model's object."""
        sizes = [source.parameters for source in state.started.sources] if state.started else [0]
        return 8 * max(sizes)

    @override
    def figures(self, state: MeasureState) -> dict[str, Figure]:
        """Return what the comparison found."""
        return dict(state.completed.figures)

    @override
    def inputs(self, state: MeasureState) -> dict[str, list[str]]:
        """Return the digests of the models of each role."""
        digests = {source.recipe_id: source.digest for source in state.started.sources}
        return {role: [digests[id_] for id_ in ids] for role, ids in state.started.roles.items()}

    @override
    def forecast(self, submitted: Submitted, cache: Artifacts, folder: Path) -> Forecast:
        """Return what a measurement costs here, by some of its documents."""
        from agent_forge.phases.measure.work import forecast

        return forecast(self, submitted, cache)

    @override
    def context(self, state: MeasureState, cache: Artifacts) -> Any:
        """Open the run's items in this process."""
        from agent_forge.phases.measure.work import Context
        from agent_forge.weights.threads import set_threads

        set_threads()
        return Context(state, cache)


def _domains_panel(state: MeasureState, names: Mapping[str, str]) -> Matrix:
    """Return bits per byte by domain and model."""
    events = {names[id_]: event for id_, event in observed(state).items()}
    first, (model_id,) = next(iter(events.values())), state.started.roles["model"]
    count, read = comparison.windows(first), sum(map(sum, first.sizes.values()))
    says = (
        f"On {count:,} whole documents of the {first.on} slice, {read:,} bytes of text; fewer bits are "
        "better. Figures of the same model on other documents, or on windows, differ."
    )
    return arm_panels.groups_by_arm(
        *("quality", "Bits per byte by domain", says, BITS, events, names[model_id])
    )
