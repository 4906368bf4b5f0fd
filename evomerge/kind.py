"""EvoMerge as a kind of run: everything that the runner and the lists ask of merging runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from agent_forge.events import Envelope, Event
from agent_forge.events.envelope import Data, Plain
from agent_forge.evomerge import config as settings_of
from agent_forge.evomerge import search, settings_table, submission
from agent_forge.evomerge.config import EvoMergeConfig, parse
from agent_forge.evomerge.recipes.recipe import Source
from agent_forge.evomerge.reports import rows
from agent_forge.evomerge.reports.outputs.wandb_rows import MergeTracking
from agent_forge.evomerge.run import events, tasks
from agent_forge.evomerge.run.answers import ANSWERS, validate_answer
from agent_forge.evomerge.run.rules import fork_rules
from agent_forge.evomerge.run.rules.decide import due
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.run.views import candidates, outlook
from agent_forge.evomerge.view import RunView
from agent_forge.runs.event_types import Figure, MadeModel, Measurement
from agent_forge.runs.kinds.asked import CheckResult, Lookup, Plan, RunRequest
from agent_forge.runs.kinds.controls import Forks
from agent_forge.runs.kinds.decide import NextWork, Start
from agent_forge.runs.kinds.files import Storage, Verification
from agent_forge.runs.kinds.forecast import Architecture, Architectures, Forecast
from agent_forge.runs.kinds.kind import Kind
from agent_forge.runs.kinds.origin import AncestorRecipe, LogModel, RunModels
from agent_forge.runs.kinds.setting_words import KindSettings
from agent_forge.runs.record import events as common
from agent_forge.studies.submission import ItemRequests

if TYPE_CHECKING:
    from agent_forge.evomerge.tasks.execute import Context
    from agent_forge.runs.home import Home
    from agent_forge.weights.storage.weight_cache import Artifacts


class MergeSettings(KindSettings[RunState]):
    """The rules of a merging run's settings, which have those of the search among them."""

    @override
    def parse(self, settings: Mapping[str, object]) -> EvoMergeConfig:
        return parse(dict(settings))

    @override
    def fault(self, error: Data) -> tuple[str, str]:
        where, sentence = settings_of.explain(error)
        return where, sentence if error["type"] == "extra_forbidden" else super().fault(error)[1]

    @override
    def changed(self, config: EvoMergeConfig, changes: Mapping[str, object]) -> EvoMergeConfig:
        return settings_of.changed(config, changes)

    @override
    def changes(self, before: EvoMergeConfig, after: EvoMergeConfig) -> Plain:
        return settings_of.changes(before, after)

    @override
    def taken(self, settings: Mapping[str, object]) -> tuple[dict[str, object], tuple[str, ...]]:
        own_settings, left = settings_of.translated(settings)
        return own_settings, settings_of.warnings(left)

    @override
    def shown(self, config: EvoMergeConfig) -> Plain:
        return config.flat()

    @override
    def schema(self) -> Plain:
        schema = settings_table.flat_schema()
        weights = schema["properties"]["fitness_weights"]
        names = {"type": "string", "enum": ["composite", "domains"]}
        weights["anyOf"] = [{"$ref": weights.pop("$ref")}, names]
        defaults = {setting.name: setting.default for setting in settings_table.settings()}
        return {"schema": schema, "defaults": defaults, "strategies": search.names()}

    @override
    def options(self, name: str) -> list[Plain]:
        return settings_table.options(name)


class MergeForks(Forks[RunState]):
    """The rules of forks of merging runs."""

    @override
    def check(self, state: RunState, changes: Mapping[str, object]) -> None:
        fork_rules.check(state, changes)

    @override
    def fields(self, config: EvoMergeConfig, changes: Mapping[str, object]) -> dict[str, object]:
        now = search.current(config) if changes else None
        return {"strategy": now if "strategy" in changes else None}

    @override
    def wrong(self, state: RunState, fork: events.Forked) -> str | None:
        named = (fork.strategy or "").partition("@")[0]
        if named != fork.changes.get("strategy", ""):
            return "the fork names another strategy than its settings"
        return None

    @override
    def place_of(self, rows: Sequence[Envelope], unit: int) -> int:
        """Return the index of the first row that closes a generation: it is measured before."""
        return outlook.before_close(rows, unit)

    @override
    def end_of(self, rows: Sequence[Envelope], unit: int) -> int:
        return outlook.after_close(rows, unit)


class Candidates(RunModels[RunState]):
    """The candidates of merging runs."""

    @override
    def result(self, state: RunState) -> MadeModel | None:
        champion = state.champion
        if not champion:
            return None
        return MadeModel(recipe_id=champion, digest=state.built[champion][0])

    @override
    def find(self, state: RunState, name: str) -> str:
        """Return the recipe id that "champion", an id or the beginning of an id means."""
        return candidates.find(state, name)

    @override
    def origin(self, state: RunState, rows: Sequence[Envelope], name: str) -> LogModel:
        return candidates.origin(state, rows, name)

    @override
    def registered(self, event: Event, state: RunState) -> list[Plain]:
        return rows.models(event, state)

    @override
    def ancestry(self, state: RunState, name: str) -> list[AncestorRecipe]:
        """Return a list of `AncestorRecipe`: a candidate's ('': the champion's), then of ancestors."""
        return candidates.ancestry(state, name)

    @override
    def measurements(self, state: RunState, digest: str) -> list[Measurement]:
        return candidates.measurements(state, digest)

    @override
    def recipe_id(self, state: RunState, digest: str) -> str | None:
        ids = (id_ for id_, (built, _) in state.built.items() if built == digest)
        return next((id_ for id_ in ids if not isinstance(state.recipes.get(id_), Source)), None)


class MergeStorage(Storage[RunState]):
    """The files that merging runs leave on machines."""

    @override
    def built(self, row: Envelope) -> str | None:
        if row.type not in events.BUILT:
            return None
        return getattr(events.REGISTRY.load(row), "recipe_id", None)

    @override
    def needs(self, task: object) -> str | None:
        return task.recipe_id if isinstance(task, tasks.Evaluate) else None

    @override
    def keep(self, state: RunState, cache: Artifacts) -> None:
        """Write the champion and the elites to disk, if in memory: a restart needs them most."""
        from agent_forge.evomerge.tasks.results import champion

        champion.keep(state, cache)

    @override
    def result_files(self, state: RunState, cache: Artifacts) -> list[tuple[str, Path]]:
        """Return (name, path) of the champion's weight files, built into the cache if it lacks them."""
        from agent_forge.evomerge.tasks.results import champion

        return champion.files(state, cache)

    @override
    def materialise(
        self, home: Home, state: RunState, head: str, recipe_id: str, folders: Sequence[Path]
    ) -> str:
        from agent_forge.evomerge.tasks.results import verify

        return verify.materialise(home, state, head, recipe_id, folders)


class MergeVerification(Verification[RunState]):
    """The rules by which second results of merging runs are compared with the recorded ones."""

    @override
    def pins(self, state: RunState) -> dict[str, object]:
        """Return a dict of what `started` pins, with "probe" for what the settings leave to a probe."""
        assert state.submitted
        config, run_pins = state.submitted.config, super().pins(state)
        probed = {
            "batch_tokens": config.batch_tokens,
            "evaluation": config.evaluation_dtype,
            "compiled": config.evaluation_compile,
        }
        left = {name: "probe" for name, setting in probed.items() if setting == "probe"}
        return {**run_pins, "profile": {**run_pins["profile"], **left}}

    @override
    def agrees(self, state: RunState, recorded: Event, repeat: Event) -> bool:
        """Return True if a second result does not contradict the recorded one.

        Speed is measured, and what is probed depends on timing: of those the first result stands.
        """
        if isinstance(recorded, events.Profiled):
            return True
        assert state.submitted
        config = state.submitted.config
        probed = (config.batch_tokens, config.evaluation_dtype, config.evaluation_compile)
        if isinstance(recorded, events.Started) and "probe" in probed:
            return True
        return super().agrees(state, recorded, repeat)

    @override
    def fingerprint(self, event: Event) -> str:
        data = common.without_volatile(event)
        return str(data.get("digest") or data.get("components") or data)

    @override
    def chosen(self, state: RunState, which: str) -> list[str]:
        """Return the recipe ids that are meant by "all", "champion" or the beginning of an id.

        "all" means the base, the sources, and every built candidate, in order of history.
        """
        if which == "all":
            return list(state.built)
        return [candidates.find(state, which)]

    @override
    def rebuild(
        self, state: RunState, cache: Artifacts, ids: Sequence[str], say: Callable[[str], None]
    ) -> Iterator[object]:
        from agent_forge.evomerge.tasks.results import verify

        yield from verify.rebuild(state, cache, ids, say)

    @property
    @override
    def remeasured(self) -> tuple[type[Event], ...]:
        return (events.Evaluated, events.LayersChosen)

    @override
    def reopened(self, state: RunState, cache: Artifacts) -> tuple[object, Sequence[str]]:
        from agent_forge.evomerge.tasks.results import verify

        return verify.reopened(state, cache)

    @override
    def comparable(self, event: Event, recorded: Event) -> dict[str, object]:
        """Return {field: value} of an answer that must come out again; of a score, what was measured.

        Bytes and bits per byte are left out if the recorded answer, of an older schema, has none.
        """
        data = common.without_volatile(event)
        if not isinstance(event, events.Evaluated):
            return data
        assert isinstance(recorded, events.Evaluated)
        outcomes, components = data["outcomes"], data["components"]
        if not any(domain.bytes for domain in recorded.outcomes.values()):
            outcomes = {domain: {**items, "bytes": []} for domain, items in outcomes.items()}
            components = components and {**components, "bits_per_byte": None}
        return {"outcomes": outcomes, "components": components}

    @override
    def cached(self, state: RunState, cache: Artifacts) -> Iterator[object]:
        from agent_forge.evomerge.tasks.results import verify

        yield from verify.artifacts(state, cache)

    @override
    def document(self, folder: Path) -> Plain | None:
        from agent_forge.evomerge.tasks.results import verify

        return verify.read_recipe(folder) if (folder / verify.RECIPE_FILE).exists() else None

    @override
    def folder(
        self, home: Home, folder: Path, document: Plain, state: RunState | None, is_known: bool
    ) -> Iterator[object]:
        """Yield findings: a champion's folder against its recipe file and, if that is here, its run."""
        from agent_forge.evomerge.tasks.results import verify
        from agent_forge.weights.folders.checkpoint import open_checkpoint

        weights = open_checkpoint(folder).tensors()
        yield from verify.exported(weights, document, state)
        if is_known:
            yield from verify.check(home, folder, document, weights)


class EvoMergeKind(Kind[RunState]):
    """Evolution of merges (phase 2)."""

    name = "evomerge"
    phase = 2
    title = "a merging run"
    line = "search for the best way to merge fine-tuned models"
    unit = "generation"
    curve_of = "best of each generation"
    result_name = "champion"
    config = EvoMergeConfig
    submitted = events.Submitted
    forked = events.Forked
    state = RunState
    answers = ANSWERS
    listed = frozenset({events.GenerationCompleted.type})
    together = ("base", "sources")
    view = cached_property(RunView)
    tracking = cached_property(MergeTracking)
    settings = cached_property(MergeSettings)
    requests = cached_property(ItemRequests)
    forks = cached_property(MergeForks)
    models = cached_property(Candidates)
    storage = cached_property(MergeStorage)
    verification = cached_property(MergeVerification)

    figures_of: ClassVar[Mapping[str, str]] = {
        "lead": "fitness lead over the best rival: over sources and baselines, on the test slice",
        "lead_over_sources": "fitness lead over the best source: the champion's on the test slice",
    }

    # ---- deciding ----------------------------------------------------------------------------

    @override
    def due(self, state: RunState) -> NextWork:
        return due(state)

    @override
    def essential(self, state: RunState, task: str) -> bool:
        """Return True if nothing can be compared without it: start, profile, a source's score."""
        sources = {s.recipe_id for s in state.started.sources} if state.started else set()
        return task in (Start.key, tasks.MeasureCost.key) or task.rpartition("/")[2] in sources

    @override
    def validate_answer(self, state: RunState, task: tasks.Task, event: Event) -> str | None:
        return validate_answer(state, task, event)

    @override
    def wrong_result(self, state: RunState) -> Iterator[str]:
        assert state.completed
        if state.completed.champion != state.champion:
            yield "the champion is not the one of the events before"

    # ---- asking for a run --------------------------------------------------------------------

    @override
    def plan(self, request: RunRequest, lookup: Lookup) -> Plan:
        return submission.plan(request, lookup)

    @override
    def check(self, plan: Plan) -> CheckResult:
        return submission.check(plan)

    # ---- scheduling --------------------------------------------------------------------------

    @override
    def memory(self, state: RunState) -> int:
        """Return the bytes of weights at the deepest path plus scoring's measured peak; 0 unstarted."""
        started = state.started
        if started is None or state.submitted is None:
            return 0
        peak = state.profiled.speed.peak_bytes or 0 if state.profiled else 0
        more = state.submitted.config.search.longest_path(started.blocks) - started.blocks
        deepest = started.cost
        if started.block_cost:
            deepest = started.cost.with_blocks(more, started.block_cost)
        return int(deepest.bytes) + peak

    # ---- results and work --------------------------------------------------------------------

    @override
    def roles(self, config: EvoMergeConfig) -> Sequence[str]:
        return ["champion"]

    @override
    def architectures(
        self, config: EvoMergeConfig, inputs: Architectures
    ) -> Mapping[str, Architecture]:
        models = (model for role in self.together for model in inputs.get(role, ()) if model)
        return dict(zip(self.roles(config), models, strict=False))

    @override
    def results(self, state: RunState) -> dict[str, MadeModel]:
        done = state.completed
        assert done
        return {"champion": MadeModel(recipe_id=done.champion, digest=done.digest)}

    @override
    def figures(self, state: RunState) -> dict[str, Figure]:
        """Return {"lead": champion's least lead over rivals, "lead_over_sources": over the sources}."""
        assert state.completed
        rivals = state.completed.rivals
        groups = {"lead": rivals, "lead_over_sources": [r for r in rivals if r.kind == "source"]}
        run_figures = {}
        for name, group in groups.items():
            leads = [rival.lead for rival in group if rival.lead is not None]
            if leads:
                least = min(leads, key=lambda lead: lead.low)
                run_figures[name] = Figure(value=least.difference, low=least.low, high=least.high)
        return run_figures

    @override
    def inputs(self, state: RunState) -> dict[str, list[str]]:
        started, digests = state.started, {}
        assert started
        assert state.submitted
        digests["sources"] = [source.digest for source in started.sources]
        if state.submitted.base is not None:
            digests["base"] = [started.base.digest]
        return digests

    @override
    def forecast(self, submitted: events.Submitted, cache: object, folder: Path) -> Forecast:
        """Return a `Forecast` of a run's cost here, by a count of tasks and a probe of their prices."""
        from agent_forge.evomerge.tasks.estimate import forecast

        return forecast(submitted, folder)

    @override
    def context(self, state: RunState, cache: Artifacts) -> Context:
        from agent_forge.evomerge.tasks.execute import Context
        from agent_forge.weights.threads import set_threads

        set_threads()
        return Context(state, cache)

    @override
    def write_result(self, home: Home, state: RunState, out: Path) -> dict[str, object]:
        from agent_forge.evomerge.tasks.results import champion

        return champion.write_with_report(home, state, out)
