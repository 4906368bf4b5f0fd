"""Cognate as a kind of run: specialists of one base, trained, measured, and ready to be merged.

A submission's settings, base and data are checked before any work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from agent_forge.evaluation.data import training_texts
from agent_forge.events import Envelope, Event
from agent_forge.phases.cognate import figures, recipes
from agent_forge.phases.cognate.figures import GEOMETRY, NONE, QUALITY, TRAININGS
from agent_forge.phases.cognate.recipes import BASE, CognateState, Completed, Started, Submitted
from agent_forge.phases.cognate.settings import KNOWN, NAME, CognateConfig
from agent_forge.runs.errors import ConfigError, DataError, NotFoundError
from agent_forge.runs.event_types import Figure
from agent_forge.runs.kinds.asked import CheckResult, Command, Lookup, Plan, RunRequest
from agent_forge.runs.kinds.controls import Forks
from agent_forge.runs.kinds.decide import NextWork, Start, failure
from agent_forge.runs.kinds.forecast import Architecture, Architectures
from agent_forge.runs.kinds.origin import AncestorRecipe, LogModel
from agent_forge.runs.kinds.state import State
from agent_forge.runs.panels.head import Result, listed
from agent_forge.runs.panels.panels import Panel
from agent_forge.runs.record.device_setting import AUTO, CPU
from agent_forge.studies import origins
from agent_forge.studies.making.making import Making, MakingState, Trained
from agent_forge.studies.origins import StudyModels
from agent_forge.studies.run import ArmLabel, Fail, FigureRule, Make, Script, StudyRun
from agent_forge.studies.study import Study, StudyVerification
from agent_forge.studies.study_view import Data, Prose, StudyView
from agent_forge.studies.submission import trainable
from agent_forge.studies.training_panels import Group
from agent_forge.weights.recipes import Train

if TYPE_CHECKING:
    from agent_forge.phases.cognate.work import Context


class CognateView(StudyView[MakingState]):
    """View of a cognate run."""

    @override
    def unchanged(self, state: MakingState) -> str | None:
        """Return None: specialists of any base are trained."""
        return None

    @override
    def summary_line(self, type_: str, data: Data, names: Mapping[str, str]) -> str | None:
        match type_:
            case "submitted":
                config = data["config"]
                base = data["base"]["name"] if data["base"] else "a base"
                return f"{config['preset']}: {base}, then {', '.join(config['domains'])}"
            case "observed":
                name = names.get(data["recipe_id"], data["recipe_id"][:12])
                values = ", ".join(f"{k} {v:.4f}" for k, v in data["values"].items())
                return f"{name}, {data['measure'].partition('@')[0]}: {values}"
            case "completed":
                return ", ".join(data["models"])
        return super().summary_line(type_, data, names)

    @override
    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        first, _, rest = key.partition("/")
        if first == "observe":
            name = names.get(rest.rpartition("/")[2], "a model")
            return f"measure {rest.partition('@')[0]} of {name}"
        return "prepare text and tokenizer" if key == Start.key else super().task_words(key, names)

    @override
    def row(self, entry: dict[str, object], event: Event) -> None:
        super().row(entry, event)
        if isinstance(event, Trained):
            entry |= {"result": event.recipe_id}
        if isinstance(event, Completed):
            quality = {role: model.bits_per_byte for role, model in event.models.items()}
            entry |= listed(figures.FEWER, figures.gain_of(quality), figures.ON_SLICE)

    @override
    def headline(self, run: StudyRun) -> Result | None:
        return figures.headline(run)

    @override
    def panels(self, state: MakingState, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        run = self.kind.begun(state)
        return [] if run is None else figures.panels(run, self.curves(state))

    @override
    def fields(self, state: MakingState) -> dict[str, object]:
        named = self.kind.named(state) if state.started else {}
        trainings = self.kind.trainings(state) if named else {}
        models = {
            role: {
                "recipe_id": recipe.id,
                "digest": state.made[recipe.id].digest if recipe.id in state.made else None,
                "step": state.steps(trainings[role]) if role in trainings else 0,
                "steps": trainings[role].upto if role in trainings else 0,
            }
            for role, recipe in named.items()
        }
        return {"models": models, **super().fields(state)}


class CognateModels(StudyModels[MakingState]):
    """The base and the specialists of a cognate run."""

    @override
    def find(self, state: MakingState, name: str) -> str:
        """Return the id of the recipe that `name` means: a role, or an id or its beginning.

        A whole id may also be of a recipe without a role, such as a model before rounding. Raises
        NotFoundError.
        """
        run = self.kind.begun(state)
        ids = {recipe.id for recipe in run.recipes.values()} & set(state.made) if run else ()
        return name if name in ids else super().find(state, name)

    @override
    def registered(self, event: Event, state: MakingState) -> list[dict[str, object]]:
        if not isinstance(event, Completed):
            return []
        folder, base = state.submitted.output_dir, event.models[BASE].digest
        return [
            {
                "name": f"{state.run}-{role}",
                "kind": "base" if role == BASE else "specialist",
                "digest": model.digest,
                "parameters": self.kind.parameters(state),
                "path": f"{folder}/{role}" if folder else None,
                "metrics": model.bits_per_byte,
                "lineage": [] if role == BASE else [base],
            }
            for role, model in event.models.items()
        ]

    @override
    def origin(self, state: MakingState, rows: Sequence[Envelope], name: str) -> LogModel:
        if not name:
            named = self.kind.named(state) if state.started else {}
            roles = ", ".join(role for role, recipe in named.items() if recipe.id in state.made)
            raise NotFoundError(
                f"run {state.run} gives several models: say which, as {state.run}:ROLE. It has "
                f"{roles or 'none yet'}."
            )
        model = super().origin(state, rows, name)
        return replace(model, what=f"{model.name} model of run {state.run}")

    @override
    def ancestry(self, state: MakingState, name: str) -> list[AncestorRecipe]:
        return origins.ancestry(state, self.kind.recipes(state), self.find(state, name or BASE))


class CognateVerification(StudyVerification[MakingState]):
    """The rules by which models of a cognate run are made again."""

    @override
    def chosen(self, state: MakingState, which: str) -> list[str]:
        if which == "all":
            return [recipe.id for recipe in self.kind.named(state).values() if recipe.id in state.made]
        return [self.kind.models.find(state, BASE if which == "champion" else which)]


class CognateForks(Forks[MakingState]):
    """The rules of forks of cognate runs."""

    @override
    def check(self, state: MakingState, changes: Data) -> None:
        if state.started is None:
            return
        free = {"max_hours", "max_device_hours"}
        for name in changes:
            if name == "domains":
                _check_domains(state, changes[name])
            elif name not in free:
                raise ConfigError(
                    f"setting {name} cannot change in a fork of a cognate run that has started: models "
                    "are made with it. Start a new run instead."
                )


class Cognate(Study[MakingState]):
    """Specialists of one base (phase 1)."""

    name = "cognate"
    phase = 1
    title = "a cognate run"
    line = "train a small base and specialists of it, to merge"
    main_role = "sources"
    command = Command(
        options={
            "preset": "--preset",
            "seed": "--seed",
            "domains": "--domains",
            "optimiser": "--optimiser",
            "base": "--base-model",
        },
        words=(
            "Train a small base and specialists of it, on text that comes with the program or on "
            "yours.\n\nThe preset tiny takes a few minutes on two cores. The items to measure on go "
            "into the folder items of --out. The models are sources of `forge evo` as folders or "
            "by RUN:ROLE. With --base-model, specialists of a model of your own are trained: "
            "MODEL is a folder, Hub id or RUN:ROLE. Text of your own is a file a domain, or "
            "--data DOMAIN=FOLDER; hub:OWNER/NAME is a data set of the Hub."
        ),
        examples=(
            "forge cognate --out models",
            "forge evo --base-models models/code,models/math,models/data --base-model models/base",
            "forge cognate --out mine --base-model my-model --data law=texts/law --data news.jsonl",
            "forge cognate --out mine --base-model my-model --data news.jsonl --lora 8",
        ),
    )
    state = CognateState
    result_title = "base"
    arms: ClassVar[Mapping[str, ArmLabel]] = {}
    baseline = BASE
    figure_rules = {
        "lead": FigureRule(
            "least lead of a specialist: bits per byte that the next best model needs more on a "
            "specialist's own domain, the least of all specialists",
            figures.least_lead,
            "bits/byte",
        )
    }
    figure_of = "name"
    prose = Prose(
        report=figures.report,
        sentences=lambda run: figures.sentences(figures.report(run)),
        lines=lambda run: figures.lines(figures.report(run)),
        card=figures.card,
    )
    view = cached_property(CognateView)
    models = cached_property(CognateModels)
    verification = cached_property(CognateVerification)
    forks = cached_property(CognateForks)

    # ---- deciding ----------------------------------------------------------------------------

    @override
    def script(self, run: StudyRun) -> Script:
        """Yield the steps: train the base, then specialists; measure; fail if one is not the best."""
        config, every = run.settings, recipes.unaveraged(run.submitted, run.started)
        run.known[TRAININGS] = {n: recipe for n, recipe in every.items() if isinstance(recipe, Train)}
        run.foresee(recipes.named(run.submitted, run.started))
        run.result = BASE
        run.arms |= {role: run.on(role, QUALITY) for role in every}
        lines = {f"{role} along the line": task for role, task in figures.lines_of(run).items()}
        measured = {**run.arms, **lines, GEOMETRY: run.on(BASE, GEOMETRY, NONE)}
        run.foresee(tasks=measured)

        yield Make([recipes.initial(run.submitted, run.started)])
        for roles in ((BASE,), config.domains):
            group = [every[role] for role in roles]
            for snapshots in zip(*(recipes.snapshots(config, recipe) for recipe in group), strict=True):
                yield Make(snapshots)
            yield Make([recipes.result(config, recipe) for recipe in group])
            yield run.make(*roles)
        yield run.ask(measured)
        if wrong := figures.no_specialist(run):
            yield Fail(wrong)
        return lambda: {"models": figures.results(run)}

    @override
    def due(self, state: MakingState) -> NextWork:
        decision = super().due(state)
        if decision.tasks and (spent := _spent(state)):
            return NextWork(facts=[failure(state, spent)])
        return decision

    @override
    def memory_of(self, submitted: Submitted, started: Started) -> int:
        return recipes.memory(submitted.config, started)

    # ---- asking for a run --------------------------------------------------------------------

    @override
    def plan(self, request: RunRequest, lookup: Lookup) -> Plan:
        from agent_forge.evaluation.training_text import own_texts
        from agent_forge.weights.folders.sources import ALIASES, resolve

        unknown = sorted(role for role, models in request.models.items() if models and role != "base")
        if unknown:
            raise ConfigError(f"a cognate run has no models {unknown[0]!r}: it may have a base.")
        base = [str(model) for model in request.models.get("base", ())]
        if len(base) > 1:
            raise ConfigError("a cognate run has one base. Give one.")
        config: CognateConfig = self.settings.parse(request.config)
        data = tuple(map(training_texts.absolute, map(str, request.data)))
        there = KNOWN
        if data:
            there = training_texts.domains(data)
            if "domains" not in request.config:
                _check_names(there)
                config = self.settings.parse({**request.config, "domains": there})
        training_texts.check_domains("domains names", config.domains, there, bool(data))
        training_texts.check_domains("mix weighs", tuple(config.mix or ()), there, bool(data))
        if not data:
            own_texts.check(config.seed, config.size.characters, config.domains)
        if base:
            _check_base(config)
        if config.processes > 1:
            from agent_forge.weights.training.team import check_shares

            if lookup.elsewhere and config.device == AUTO:  # a worker's device is one GPU
                config = config.model_copy(update={"device": CPU})
            check_shares(config.size.batch, config.processes, config.device, lookup.elsewhere)
        reference = resolve(base[0], {**ALIASES, **lookup.aliases}, lookup.named) if base else None
        return Plan("cognate", config, {"base": reference, "data": data}, request.output_dir)

    @override
    def check(self, plan: Plan) -> CheckResult:
        config, base, data = plan.config, plan.fields["base"], plan.fields["data"]
        parameters: int = config.size.parameters
        warnings: tuple[str, ...] = ()
        if base is not None:
            from agent_forge.evaluation.training_text.kept_text import given_tokenizer
            from agent_forge.phases.cognate.recipes import window
            from agent_forge.weights.folders import model_config
            from agent_forge.weights.folders.checkpoint import open_checkpoint

            folder = Path(base.path)
            opened = open_checkpoint(folder)
            window(config, opened.positions)
            parameters, warnings = opened.parameters, opened.warnings
            opened.check_plain("trained")
            trainable(config, opened.config)
            model_config.check_predicts_tokens(folder, opened.config)
            given_tokenizer(folder)
        corpus = training_texts.read(data) if data else None
        if base is None:
            from agent_forge.phases.cognate.work import configuration, learning, train_tokenizer

            trainable(config, configuration(config.size).to_dict())
            texts = learning(config, None if corpus is None else corpus.documents)
            train_tokenizer(texts, config.size.vocabulary)
        if corpus is None:
            return CheckResult(warnings, parameters)
        counts = {
            domain: {slice_: len(texts) for slice_, texts in split.items()}
            for domain, split in corpus.documents.items()
        }
        return CheckResult((*warnings, *corpus.notes), parameters, counts)

    @override
    def work(self) -> type[Context]:
        from agent_forge.phases.cognate.work import Context

        return Context

    # ---- models ------------------------------------------------------------------------------

    @override
    def roles(self, config: CognateConfig) -> Sequence[str]:
        return [BASE, *config.domains]

    @override
    def named(self, state: MakingState) -> Mapping[str, Making]:
        run = self.run(state)
        return {role: run.recipes[role] for role in run.arms}

    @override
    def trainings(self, state: MakingState) -> Mapping[str, Train]:
        return self.run(state).known[TRAININGS]

    @override
    def groups(self, state: MakingState) -> Sequence[Group]:
        chains = {role: (recipe,) for role, recipe in self.trainings(state).items()}
        base = {role: chain for role, chain in chains.items() if role == BASE}
        rest = {role: chain for role, chain in chains.items() if role != BASE}
        return [group for group in (base, rest) if group]

    @override
    def architectures(self, config: CognateConfig, inputs: Architectures) -> Mapping[str, Architecture]:
        given_base = inputs.get("base")
        architecture = given_base[0] if given_base else config.size.architecture()
        return dict.fromkeys(self.roles(config), architecture) if architecture else {}

    @override
    def parameters(self, state: MakingState) -> int:
        return state.started.parameters

    @override
    def figures(self, state: MakingState) -> dict[str, Figure]:
        """Return {"lead": the specialist's lead on its own domain whose interval begins lowest}."""
        return self.run(state).figures

    @override
    def inputs(self, state: MakingState) -> dict[str, list[str]]:
        return {"base": [state.started.base.digest]} if state.started.base else {}

    # ---- shown -------------------------------------------------------------------------------

    @override
    def started_line(self, data: Data) -> str:
        count = data.get("trainable")
        adapters = f", adapters of {count:,} parameters" if count else ""
        text = sum(data["tokens"].values())
        return f"{data['parameters']:,} parameters{adapters}, {text:,} tokens of text"

    @override
    def facts(self, run: StudyRun) -> Mapping[str, tuple[object, str]]:
        started, segments = run.started, run.state.advanced.values()
        adapters = {} if started.trainable is None else {"trained parameters": started.trainable}
        shown = {
            "parameters": started.parameters,
            **adapters,
            "tokens of text": sum(started.tokens.values()),
            "tokens trained on": sum(e.tokens for segment in segments for e in segment.values()),
            "precision": started.profile.dtype,
        }
        return {name: (value, "") for name, value in shown.items()}


def _check_domains(state: MakingState, domains: Sequence[str]) -> None:
    """Raise ConfigError if a fork drops a begun specialist, or adds one without pinned text."""
    models = recipes.specialists(state.submitted, state.started)
    for domain, recipe in models.items():
        if state.steps(recipe) and domain not in domains:
            raise ConfigError(f"the {domain} specialist is begun: a fork here keeps it in domains.")
    for domain in domains:
        if domain not in state.started.streams:
            raise ConfigError(
                f"the run has pinned no text of {domain}: a fork can add "
                f"{', '.join(sorted(set(state.started.streams) - set(models)))} only."
            )


def _spent(state: State) -> str:
    """Return which budget of hours is spent, as a sentence; empty if none is."""
    config, spent = state.submitted.config, state.spent
    for name, hours, seconds in (
        ("max_hours", config.max_hours, spent.wall),
        ("max_device_hours", config.max_device_hours, spent.device),
    ):
        if hours is not None and seconds >= hours * 3600:
            return f"{name} is spent: {seconds / 3600:.2f} hours. A fork with more goes on from here."
    return ""


def _check_names(there: Sequence[str]) -> None:
    """Raise DataError if a domain of the data cannot name a model and its folder."""
    for domain in there:
        if not re.fullmatch(NAME, domain):
            raise DataError(
                f"the domain {domain!r} of the data cannot name a specialist: a name has letters, "
                "digits, _ and -, 32 at most. Give it one: --data NAME=PATH."
            )


#: Setting → what a given base has instead, if that is not its architecture.
_OWN = {"vocabulary": "tokenizer"}


def _check_base(config: CognateConfig) -> None:
    """Raise ConfigError if a setting says how a base is made although one is given."""
    for name in ("architecture", "memory", "recursions", "halting", "vocabulary"):
        if getattr(config, name) != CognateConfig.model_fields[name].default:
            raise ConfigError(
                f"a base that is given has its own {_OWN.get(name, 'architecture')}: leave out {name}."
            )
    for name in ("base_tokens", "base_rate"):
        if getattr(config, name) is not None:
            raise ConfigError(f"a base that is given is not trained further: leave out {name}.")
