"""Experts as a kind of run: vectors by domain, a search over mixtures, one model that is folded.

A submission's settings, models and data are checked before any work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from agent_forge.evaluation import task_families
from agent_forge.evaluation.task_families.gym import Gym
from agent_forge.events import Event
from agent_forge.phases.experts import figures, panels, recipes
from agent_forge.phases.experts.figures import SOLVED
from agent_forge.phases.experts.recipes import (
    EXPERT,
    FITTED,
    GIVEN,
    LORA,
    MEASURE,
    ONLY,
    SEARCH,
    Completed,
    ExpertsState,
    Fit,
    Fitted,
    GenerationEnded,
    Route,
    Routed,
    Scored,
    Scoring,
    Started,
    Submitted,
)
from agent_forge.phases.experts.search.generations import Search, spaces
from agent_forge.phases.experts.settings import ExpertsConfig
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import CheckResult, Lookup, Plan, RunRequest
from agent_forge.runs.kinds.controls import Forks
from agent_forge.runs.kinds.decide import Task
from agent_forge.runs.kinds.view import Outlook, UnderWay
from agent_forge.runs.panels.head import listed
from agent_forge.runs.panels.panels import Panel
from agent_forge.studies import given_dtype, submission
from agent_forge.studies.comparison import CHOOSING, TEST
from agent_forge.studies.events import MODEL, Observe, Observed
from agent_forge.studies.making.making import Making, MakingState
from agent_forge.studies.run import ArmLabel, Ask, Script, StudyRun, Together
from agent_forge.studies.settings import MIX
from agent_forge.studies.study import Study
from agent_forge.studies.study_view import Data, Plain, Prose, StudyView
from agent_forge.studies.training_panels import BITS
from agent_forge.weights.recipes import Train

if TYPE_CHECKING:
    from agent_forge.phases.experts.work import Context


#: Settings that choose among measured mixtures: who survives, is a finalist, may be the result.
CHOOSING_MIXTURES = ("finalists", "apart", "drift")


class ExpertsView(StudyView[MakingState]):
    """View of an experts run."""

    @override
    def summary_line(self, type_: str, data: Data, names: Mapping[str, str]) -> str | None:
        match type_:
            case "generation_bred":
                return f"{data['arm']} {data['number']}: {len(data['mixtures'])} mixtures"
            case "scored":
                return f"{data['arm']} {data['number']}: {len(data['items'])} measured"
            case "generation_ended":
                return (
                    f"{data['arm']} {data['number']}: hypervolume {data['hypervolume']:.4g} after "
                    f"{data['evaluations']:,} mixtures"
                )
            case "fitted":
                factors = ", ".join(f"{factor:+.2f}" for factor in data["factors"])
                return f"{data['domain']}: {factors}"
            case "observed" if data["measure"] == SOLVED:
                values = data["values"].values()
                share = sum(values) / len(values)
                return f"{names.get(str(data['recipe_id']), 'model')}, {data['on']}: solves {share:.0%}"
            case "routed":
                return f"{sum(map(len, data['choices'].values()))} windows"
        return super().summary_line(type_, data, names)

    @override
    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        first, *rest = key.split("/")
        if first == "score":
            return f"measure mixtures of generation {rest[1]} of {rest[0]}"
        if first == "fit":
            return f"find the mixture of {rest[0]}"
        return "choose experts by beginnings" if key == "route" else super().task_words(key, names)

    @override
    def outlook(self, state: MakingState, rehearsal: object, under_way: UnderWay = ()) -> Outlook:
        """Return the steps done and in all, and the seconds left, mixtures to measure included.

        A mixture costs what those before took on average; before the first the time is not known.
        """
        base_outlook, run = super().outlook(state, rehearsal, under_way), self.kind.begun(state)
        if state.completed or run is None:
            return base_outlook
        scores = [event for event in state.answers.values() if isinstance(event, Scored)]
        count, spent = sum(len(e.items) for e in scores), math.fsum(e.seconds for e in scores)
        most = recipes.trainable(run.submitted, run.started)[: run.settings.experts]
        arms = spaces(len(run.started.merges), run.known.get("kept", most))
        left = len(arms) * run.settings.evaluations - count
        if left <= 0:
            return base_outlook
        if not count or base_outlook.eta_s is None:
            return replace(base_outlook, inside=0.0, eta_s=None)
        hands = max(1, len(under_way))
        eta = base_outlook.eta_s + left * spent / count / hands
        done = state.spent.device
        return replace(base_outlook, inside=done / (done + eta * hands), eta_s=eta)

    @override
    def row(self, entry: Plain, event: Event) -> None:
        super().row(entry, event)
        if isinstance(event, Completed):
            bits = {a.recipe_id: a.bits_per_byte for a in event.arms.values()}[entry["result"]]
            on = f"{TEST} slice, mean over {len(bits)} domains"
            entry |= listed(BITS, math.fsum(bits.values()) / len(bits), on)

    @override
    def headline(self, run: StudyRun) -> object:
        shown, observation = super().headline(run), run.seen.get(run.ours or "")
        on = f"{TEST} slice, mean over {len(observation.values)} domains" if observation else ""
        return shown and shown.model_copy(update={"name": run.result, "on": on})

    @override
    def references(self, run: StudyRun) -> Sequence[str]:
        return [f"{LORA}{domain}" for domain in run.known.get("experts", ())]


class ExpertsForks(Forks[MakingState]):
    """The rules of forks of experts runs."""

    kind: Experts

    @override
    def check(self, state: MakingState, changes: Mapping[str, object]) -> None:
        """Raise ConfigError if a fork at this state cannot change these settings.

        Which mixtures are chosen may change until the first finalist is made: a search of an hour need
        not be repeated for that.
        """
        super().check(state, {n: v for n, v in changes.items() if n not in CHOOSING_MIXTURES})
        run = self.kind.begun(state)
        finalists = run.known.get("finalists", {}) if run else {}
        if changes and run and any(run.recipes[name].id in state.made for name in finalists):
            raise ConfigError(
                f"setting {next(iter(changes))} cannot change once a finalist is made. Fork at an "
                "earlier event: the last of the search."
            )


class Experts(Study[MakingState]):
    """Experts that scale a model's singular values, and mixtures of them (phase 7)."""

    name = "experts"
    phase = 7
    title = "an experts run"
    line = "train an expert for each domain that a model predicts badly, and search their mixtures"
    state = ExpertsState
    result_title = "mixture"
    comparison_title = "Mixtures beside the given model"
    comparison_note = "On the test slice."
    arms: ClassVar[Mapping[str, ArmLabel]] = panels.ARMS
    baseline = GIVEN
    figure_rules = figures.RULES
    as_given = (MODEL,)
    together = ("model", "merges")
    listed = frozenset({GenerationEnded.type, Fitted.type, Routed.type})
    answers: ClassVar[Mapping[type[Event], type]] = {Scored: Scoring, Fitted: Fit, Routed: Route}
    prose = Prose(
        fields=panels.fields,
        sentences=panels.sentences,
        lines=panels.lines,
        paragraphs=panels.paragraphs,
    )
    view = cached_property(ExpertsView)
    forks = cached_property(ExpertsForks)

    # ---- recipes and script --------------------------------------------------------------------

    @override
    def models_of(self, submitted: Submitted, started: Started) -> dict[str, Making]:
        domain = recipes.trainable(submitted, started)[0]
        expert = recipes.expert(submitted, started, domain)
        return {**recipes.first(submitted, started), f"{EXPERT}{domain}": expert}

    @override
    def slowest_of(self, models: Mapping[str, Making]) -> Train:
        """Return the recipe of the first training: all read as many tokens."""
        return next(iter(given_dtype.trainings(models).values()))

    @override
    def script(self, run: StudyRun) -> Script:
        """Yield the steps: train experts, search mixtures, choose a model, dispatch, compare."""
        pins, remembered = (run.submitted, run.started), run.state.remembered
        first, mean = remembered(
            ("first",), lambda: (recipes.first(*pins), recipes.mean_of_models(*pins))
        )
        run.foresee({**first, **mean})
        for name in first:
            yield run.make(name)
        base = yield run.ask(_assessment(run))

        bits, solved = (base[on].values if on in base else {} for on in (CHOOSING, SOLVED))
        experts, loras, singles = remembered(("experts",), lambda: recipes.trained(*pins, bits, solved))
        run.known["experts"] = experts
        trained = {f"{EXPERT}{domain}": recipe for domain, recipe in experts.items()}
        run.recipes = {**first, **trained, **loras, **singles, **mean}
        run.foresee(tasks={name: run.on(name, MEASURE) for name in (*singles, *mean)})
        yield run.make(*trained, *loras)
        yield run.make(*singles)
        alone = yield run.choose({name: run.on(name, MEASURE) for name in singles})
        kept_experts = {
            domain: recipe
            for domain, recipe in experts.items()
            if alone[f"{ONLY}{domain}"].values[domain] < base[CHOOSING].values[domain]
        }
        run.known["kept"] = tuple(kept_experts)

        mixtures = yield from self._search(run, base, kept_experts)
        candidates = {**mixtures, **singles, **mean}
        run.recipes = {**first, **trained, **loras, **candidates}
        yield run.make(*candidates)
        observations = yield run.choose({name: run.on(name, MEASURE) for name in candidates})
        _choose(run, base[CHOOSING], observations, (*mean, *singles, *loras))
        run.foresee(tasks=_compared(run))

        if kept_experts:
            yield from self._dispatch(run, kept_experts)
        yield run.ask(_compared(run))
        return lambda: run.end(chosen=run.result)

    def _search(
        self, run: StudyRun, base: Mapping[str, Observed], kept_experts: Mapping[str, Train]
    ) -> Script:
        """Yield the steps of all searches; return name → recipe of the finalists."""
        searches = run.known["searches"] = _searches(run, base)
        yield Together({arm: search.script() for arm, search in searches.items()})
        finalists = run.known["finalists"] = {
            f"{arm}-{number}": search.factors(id_)
            for arm, search in searches.items()
            for number, id_ in enumerate(search.finalists(), start=1)
        }
        pins = run.submitted, run.started
        return {
            name: recipes.mixture(*pins, kept_experts, mixture) for name, mixture in finalists.items()
        }

    def _dispatch(self, run: StudyRun, kept_experts: Mapping[str, Train]) -> Script:
        """Yield the steps that find a mixture for each domain, and route windows to experts."""
        fits = [Fit(domain) for domain in run.settings.domains if domain in run.started.streams]
        events = yield Ask({task.key: task for task in (*fits, Route())})
        run.known["routed"] = events[Route().key]
        factors = run.known["factors"] = {task.domain: events[task.key].factors for task in fits}
        pins = run.submitted, run.started
        mixtures = {
            f"{FITTED}{domain}": recipes.of_experts(*pins, kept_experts, mixture)
            for domain, mixture in factors.items()
        }
        yield run.make(**mixtures)
        run.known["fitted"] = {name: run.on(name, MEASURE, TEST) for name in mixtures}

    @override
    def validate_answer(self, state: MakingState, task: Task, event: Event) -> str | None:
        if not isinstance(task, Scoring | Fit | Route):
            return super().validate_answer(state, task, event)
        run = self.run(state)
        expert_count = len(run.known["kept"])
        match task, event:
            case Scoring(), Scored():
                return run.known["searches"][task.arm].wrong_scores(task, event)
            case Fit(), Fitted():
                return figures.wrong_fit(run.settings, expert_count, task, event)
            case Route(), Routed():
                return figures.wrong_routes(expert_count, event)
        return None

    # ---- asking for a run ----------------------------------------------------------------------

    @override
    def plan(self, request: RunRequest, lookup: Lookup) -> Plan:
        plan = submission.plan(self, request, lookup, recipes.added)
        _check_domains(plan.config, bool(request.data))
        return plan

    @override
    def check_settings(self, config: ExpertsConfig) -> None:
        """Raise ConfigError if a family's answers cannot be compared by tokens."""
        for family in config.families:
            if isinstance(task_families.find(family), Gym):
                raise ConfigError(
                    f"the tasks of {family} may have several right answers: an experts run needs "
                    "families with one."
                )

    @override
    def check(self, plan: Plan) -> CheckResult:
        from agent_forge.weights.folders.checkpoint import open_checkpoint

        base = submission.opened(plan)
        for reference in plan.fields[MERGES]:
            recipes.check_alike(reference.name, open_checkpoint(Path(reference.path)), base)
        config: ExpertsConfig = plan.config
        if base.positions is not None and config.prompt >= base.positions:
            raise ConfigError(f"prompt is {config.prompt}, the model takes {base.positions} tokens.")
        return submission.checked(plan, base)

    @override
    def inputs(self, state: MakingState) -> dict[str, list[str]]:
        merges = [source.digest for source in state.started.merges]
        return {**super().inputs(state), "merges": merges}

    # ---- work ------------------------------------------------------------------------------------

    @override
    def work(self) -> type[Context]:
        from agent_forge.phases.experts.work import Context

        return Context

    @override
    def memory_of(self, submitted: Submitted, started: Started) -> int:
        """Return the bytes of a model, its decomposition, and the parts of mixtures."""
        parts = len(started.merges) + submitted.config.experts
        return (24 + 4 * parts) * started.model.parameters

    @override
    def write_result(self, home: Home, state: MakingState, out: Path) -> dict[str, object]:
        from agent_forge.phases.experts.work import write_bundle

        written = super().write_result(home, state, out)
        return {**written, "experts_folder": write_bundle(home, state, written["folder"])}

    # ---- what is shown ---------------------------------------------------------------------------

    @override
    def started_line(self, data: Data) -> str:
        return f"{data['numbers']:,} singular values, {len(data['merges'])} further models"

    @override
    def facts(self, run: StudyRun) -> Mapping[str, tuple[object, str]]:
        adapters, done = run.started.adapters, run.state.completed
        searches: Mapping[str, Search] = run.known.get("searches", {})
        measured = (search.ended[-1].evaluations for search in searches.values() if search.ended)
        gain = done.figures.get("gain") if done else None
        return {
            "experts": (len(run.known.get("experts", ())), ""),
            "parameters of an expert": (run.started.numbers, ""),
            **({"parameters of adapters": (adapters.numbers, "")} if adapters else {}),
            "further models": (len(run.started.merges), ""),
            "mixtures of an arm": (max(measured, default=0), ""),
            **({"fewer bits per byte in experts' domains": (gain.value, "share")} if gain else {}),
        }

    @override
    def arms_of(self, run: StudyRun) -> Mapping[str, ArmLabel]:
        return panels.arms(run)

    @override
    def own_panels(self, run: StudyRun) -> Sequence[Panel]:
        return panels.panels(run)


def _assessment(run: StudyRun) -> dict[str, Observe]:
    """Return name → task to measure the given model, to choose experts and compare mixtures by."""
    tasks = {CHOOSING: run.on(GIVEN, MEASURE)}
    if run.settings.evaluations:
        tasks[SEARCH] = run.on(GIVEN, MEASURE, SEARCH)
    if run.settings.families:
        tasks[SOLVED] = run.on(GIVEN, SOLVED)
    return tasks


def _searches(run: StudyRun, base: Mapping[str, Observed]) -> dict[str, Search]:
    """Return arm → its search over the further models and the useful experts; {} without a search."""
    if not run.settings.evaluations:
        return {}
    arms = spaces(len(run.started.merges), run.known["kept"])
    parts = run.settings, run.state.answers
    return {arm: Search(*parts, arm, space, base[SEARCH]) for arm, space in arms.items()}


def _choose(
    run: StudyRun, base: Observed, observations: Mapping[str, Observed], beside: Sequence[str]
) -> None:
    """Set the run's result, and the arms to compare: given model, each search's best, and `beside`."""
    run.result_name = figures.best(run.settings, observations, base)
    run.result = figures.arm_of(run.result_name)
    best = figures.best_of_arms(run.settings, observations, base)
    names = {GIVEN: GIVEN, **best, **{name: name for name in beside}}
    run.arms = {arm: run.on(name, MEASURE, TEST) for arm, name in names.items()}
    if run.settings.families:
        run.known["solved"] = {arm: run.on(name, SOLVED, TEST) for arm, name in names.items()}


def _compared(run: StudyRun) -> dict[str, Observe]:
    """Return name → task to measure on the test slice: arms, dispatch, and solved tasks."""
    solved = run.known.get("solved", {}).items()
    further = {f"{arm}/solved": task for arm, task in solved}
    return {**run.arms, **run.known.get("fitted", {}), **further}


#: Role of the further models of mixtures.
MERGES = "merges"


def _check_domains(config: ExpertsConfig, has_data: bool) -> None:
    """Raise ConfigError unless the neutral domain is measured, and another is measured and trained."""
    if config.neutral not in config.domains:
        raise ConfigError(
            f"the neutral domain {config.neutral!r} is not measured: add it to domains, or name "
            "another."
        )
    read = config.mix or (dict.fromkeys(config.domains) if has_data else MIX)
    if not [domain for domain in config.domains if domain in read and domain != config.neutral]:
        raise ConfigError(
            "no domain but the neutral one is both measured and trained on: nothing can be an expert."
        )
