"""A run of a study: its script, the steps of scripts, and the table of arms and figures. Pure.

A script is a generator. It yields what the run needs next and is sent the recorded answers. A run is
decided by running its script over the log until an answer is missing. A `StudyRun` holds what the
script has named until then, and views read it; it has nothing that is not known yet. Answers are found
by key, so the order of the code is no part of the history.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from agent_forge.evaluation.trajectories import sampled
from agent_forge.evaluation.trajectories.sampled import Sampled, SampleReplies
from agent_forge.events import Event, New
from agent_forge.events.envelope import Plain
from agent_forge.runs.event_types import Figure
from agent_forge.runs.kinds.decide import NextWork, Task, failure
from agent_forge.runs.kinds.state import State
from agent_forge.runs.record.events import Completed
from agent_forge.runs.system.rounding import alike
from agent_forge.studies import comparison, events, given_dtype
from agent_forge.studies.comparison import CHOOSING, Drawn, figure, mean
from agent_forge.studies.events import MODEL, Observe, Observed, Result
from agent_forge.studies.making import making
from agent_forge.studies.making.making import Advanced, Made, Making, MakingState
from agent_forge.weights.recipes import Train

if TYPE_CHECKING:
    from agent_forge.studies import AnyStudy


class Extent(NamedTuple):
    """Amount of work of a whole run."""

    #: Steps of all trainings, as steps of the slowest.
    steps: int
    #: Models in float32, and those rounded to the dtype of the given one.
    models: int
    rounded: int
    measurements: int
    #: What there is of steps, in words; empty: `steps`, none slower.
    counted: str = ""


class StudyRun:
    """A run that has started.

    Its script calls `make`, `ask`, `choose` and `compare`, which return its steps and remember what
    they name; `foresee` names what comes later.
    """

    def __init__(self, study: AnyStudy, state: Any) -> None:
        """Run the study's script over the log of a state that has started."""
        self.study, self.state = study, state
        self.submitted, self.started = state.submitted, state.started
        self.settings = state.submitted.config
        #: Name → recipe of all that the run makes, as far as it is known; each after its inputs.
        self.recipes: dict[str, Making] = {}
        #: Key → everything that is measured, as far as it is known.
        self.observations: dict[str, Observe] = {}
        #: Arm → its measurement on the test slice.
        self.arms: dict[str, Observe] = {}
        #: Candidate → its measurement on the selection slice.
        self.candidates: dict[str, Observe] = {}
        #: Name of the result: an arm, and a recipe unless it is the given model; None before.
        self.result: str | None = None
        #: Resamples, and (arm, measured arms) → leads: bootstraps are done once.
        self._drawn: Drawn = {}
        self._leads: dict[tuple[str, ...], dict[str, Figure]] = {}
        #: Name of the result among the recipes, if it is another than that of its arm.
        self.result_name: str | None = None
        #: Further conclusions of the script, by name.
        self.known: Plain = {}
        #: What the script waits for, and the function that it returns at its end.
        self.decision: NextWork
        self.ending: Callable[[], Plain] | None
        self.decision, self.ending = follow(study.script(self), state)

    # ---- steps of scripts --------------------------------------------------------------------

    def foresee(
        self, recipes: Mapping[str, Making] | None = None, tasks: Mapping[str, Observe] | None = None
    ) -> None:
        """Add recipes and measurements to those that the run is known to need; no step is made."""
        self.recipes |= recipes or {}
        self.observations |= {task.key: task for task in (tasks or {}).values()}

    def make(self, *names: str, **recipes: Making) -> Make:
        """Remember `recipes`; return the step that makes these and those named, equal ones once."""
        self.recipes |= recipes
        chosen = (self.recipes[name] for name in (*names, *recipes))
        return Make([*{recipe.id: recipe for recipe in chosen}.values()])

    def ask(self, tasks: Mapping[str, Task]) -> Ask:
        """Return the step that does tasks side by side; remember those that measure."""
        self.foresee(tasks={n: task for n, task in tasks.items() if isinstance(task, Observe)})
        return Ask(tasks)

    def choose(self, candidates: Mapping[str, Observe]) -> Ask:
        """Remember candidates by name; return the step that measures them, on the selection slice."""
        self.candidates |= candidates
        return self.ask(candidates)

    def compare(self, arms: Mapping[str, Observe]) -> Ask:
        """Remember arms by name; return the step that measures them, on the test slice."""
        self.arms |= arms
        return self.ask(arms)

    def on(self, name: str, measure: str, slice_: str = CHOOSING) -> Observe:
        """Return the task that measures a model, by the model's name among the recipes."""
        return Observe(self.recipes[name].id, measure, slice_)

    # ---- what is known -----------------------------------------------------------------------

    @property
    def trainings(self) -> dict[str, Train]:
        """Name → recipe of every model that the run trains."""
        return given_dtype.trainings(self.recipes)

    @property
    def seen(self) -> dict[str, Observed]:
        """Arm → what was observed on the test slice, of those that are measured."""
        return comparison.observed(self.state, self.arms)

    @property
    def drawn(self) -> Drawn:
        """Arm → array of its figure in each resample."""
        observed = self.seen
        if self._drawn.keys() != observed.keys():
            scale, seed = self.study.scale, self.settings.seed
            self._drawn = scale.drawn(observed, self.study.purpose, seed)
        return self._drawn

    @property
    def ours(self) -> str | None:
        """The arm that the others are compared with; None before it is known."""
        return self.study.ours or self.result

    def mean(self, arm: str | None) -> float:
        """Return a measured arm's figure on the study's scale, such as its bits per byte."""
        assert arm is not None
        return self.study.scale.mean(self.seen[arm])

    @property
    def leads(self) -> dict[str, Figure]:
        """Arm → what it needs more than ours, with the interval; empty before that is known."""
        return {} if self.ours is None else self.leads_of(self.ours)

    def leads_of(self, arm: str) -> dict[str, Figure]:
        """Return other arm → its figure minus that of `arm`, with the interval."""
        observed = self.seen
        key = arm, *observed
        if key not in self._leads:
            purpose, seed = self.study.purpose, self.settings.seed
            self._leads[key] = comparison.leads(observed, arm, purpose, seed, self.study.scale)
        return self._leads[key]

    @property
    def windows(self) -> int:
        """The number of windows, or documents, that our arm was measured on."""
        assert self.ours is not None
        return self.study.scale.count(self.seen[self.ours])

    @cached_property
    def named(self) -> dict[str, Making]:
        """Name → recipe of all that the run makes; the first is its result once it is known."""
        named = MODEL in self.recipes
        result = None if named else self.recipes.get(self.name_of(MODEL))
        return self.recipes if result is None else {MODEL: result} | self.recipes

    def name_of(self, role: str) -> str:
        """Return `role` if it is a recipe's name, else the name of the run's result."""
        return role if role in self.recipes else str(self.result_name or self.result)

    @property
    def result_digests(self) -> list[str]:
        """List of the BLAKE3 digests of the weights of the models that a completed run gives."""
        return [model.digest for model in self.state.completed.models.values()]

    def models(self) -> dict[str, Result]:
        """Return role → `Result` (recipe id and digest), of a run whose models are made."""
        ids = {role: self.named[role].id for role in self.study.result_roles}
        events = self.state.made
        return {role: Result(recipe_id=id_, digest=events[id_].digest) for role, id_ in ids.items()}

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """Name → figure, of a run whose arms are all measured."""
        values = {name: rule.value(self) for name, rule in self.study.figure_rules.items()}
        return {name: value for name, value in values.items() if value is not None}

    def end(self, **fields: Any) -> Plain:
        """Return the fields of `completed`: models, arms and figures, and those that a script adds."""
        arms = comparison.arms(self.seen)
        return {"models": self.models(), "arms": arms, "figures": self.figures, **fields}

    @cached_property
    def conclusions(self) -> Plain:
        """The fields of `completed` that follow from the log, once the script is at its end."""
        assert self.ending is not None
        return self.ending()

    def due(self, completed: type[Completed]) -> NextWork:
        """Return a `NextWork`: what the script waits for, or at its end the fact `completed`."""
        if self.ending is None:
            return self.decision
        state = self.state
        done = completed(
            lineage_digest=state.lineage_digest(), chain_head=state.head, **self.conclusions
        )
        return NextWork(facts=[New(done, f"{state.run}/completed")])

    def contradictions(self) -> Iterator[str]:
        """Yield a sentence for each field of `completed` that the events before it contradict."""
        if self.ending is None:
            yield "the run does not end with the events before"
            return
        for name, value in self.conclusions.items():
            if not alike(getattr(self.state.completed, name), value):
                yield f"the {name} are not those of the events before"

    def extent(self) -> Extent:
        """Return an `Extent`: numbers of steps, models, measurements of a run that has just started."""
        rounded = given_dtype.halves(self.recipes)
        return Extent(
            steps=sum(recipe.upto for recipe in self.trainings.values()),
            models=len(self.recipes) - rounded,
            rounded=rounded,
            measurements=len(self.observations),
        )


def best(answers: Mapping[str, Observed]) -> str:
    """Return the name of the candidate with the fewest bits per byte; of equals the first."""
    return min(answers, key=lambda name: mean(answers[name]))


class ScriptStep(Protocol):
    """Something that a run needs before its script goes on."""

    def missing(self, state: Any) -> NextWork:
        """Return a `NextWork` with the facts or tasks that are open; an empty one if there are none."""
        ...

    def answer(self, state: Any) -> Any:
        """Return what the script is sent once nothing is missing."""
        ...


Script = Generator[ScriptStep, Any, Any]


@dataclass(frozen=True)
class Make:
    """Make recipes side by side."""

    recipes: Sequence[Making]

    def missing(self, state: MakingState) -> NextWork:
        """Return a `NextWork`: a fact for each training that has ended, or else the tasks to make."""
        segment = getattr(state.started, "segment", 0)  # a run without trainings has none
        return making.next_of(state, self.recipes, segment)

    def answer(self, state: MakingState) -> None:
        """Return None: the recipe says what was made."""


@dataclass(frozen=True)
class Ask:
    """Do tasks side by side; the script is sent name → answer."""

    tasks: Mapping[str, Task]

    def missing(self, state: State) -> NextWork:
        """Return a `NextWork` with the tasks that have no answer yet; tasks of one key once."""
        tasks_by_key = {task.key: task for task in self.tasks.values()}
        return NextWork(tasks=[task for key, task in tasks_by_key.items() if key not in state.answers])

    def answer(self, state: State) -> dict[str, Event]:
        """Return name → the event that answers the task."""
        return {name: state.answers[task.key] for name, task in self.tasks.items()}


@dataclass(frozen=True)
class Note:
    """Record what follows from the answers so far, under a key that is the run's alone.

    The event's class has no handler in the state, so that it is found in `answers`. A function that
    returns the event is called only until the event is recorded.
    """

    key: str
    event: Event | Callable[[], Event]

    def missing(self, state: State) -> NextWork:
        """Return a `NextWork` with the fact; an empty one once the fact is recorded."""
        if self.key in state.answers:
            return NextWork()
        event = self.event if isinstance(self.event, Event) else self.event()
        return NextWork(facts=[New(event, f"{state.run}/{self.key}")])

    def answer(self, state: State) -> Event:
        """Return the event as it was recorded."""
        return state.answers[self.key]


@dataclass(frozen=True)
class Fail:
    """End the run as failed."""

    reason: str

    def missing(self, state: State) -> NextWork:
        """Return a `NextWork` with one fact: the run has failed."""
        return NextWork(facts=[failure(state, self.reason)])

    def answer(self, state: State) -> None:
        """Return None: no script goes on after the failure."""


@dataclass(frozen=True)
class Together:
    """Run scripts side by side; the script is sent name → what each has returned."""

    scripts: Mapping[str, Script]
    _returned: Plain = field(default_factory=dict[str, Any], repr=False)

    def missing(self, state: State) -> NextWork:
        """Return a `NextWork` with the facts of all scripts, or else their tasks; of one key once."""
        facts, tasks = dict[str, New](), dict[str, Task]()
        for name, script in self.scripts.items():
            missing, self._returned[name] = follow(script, state)
            facts |= {new.key: new for new in missing.facts}
            tasks |= {task.key: task for task in missing.tasks}
        return NextWork(facts=[*facts.values()]) if facts else NextWork(tasks=[*tasks.values()])

    def answer(self, state: State) -> Plain:
        """Return name → what the script has returned."""
        return self._returned


def follow(script: Script, state: State) -> tuple[NextWork, Any]:
    """Return (`NextWork` that a script waits for, None), or (an empty one, what the script returns)."""
    answer = None
    while True:
        try:
            step = script.send(answer)
        except StopIteration as end:
            return NextWork(), end.value
        missing = step.missing(state)
        if missing.facts or missing.tasks:
            return missing, None
        answer = step.answer(state)


def validate_answer(task: Task, event: Event) -> str | None:
    """Return why an event does not answer a task of every study; None if it does, or for others."""
    if isinstance(task, making.MakeTask) and isinstance(event, Made | Advanced):
        return making.validate_answer(task, event)
    if isinstance(task, Observe) and isinstance(event, Observed):
        return events.validate_answer(task, event)
    if isinstance(task, SampleReplies) and isinstance(event, Sampled):
        return sampled.validate_answer(task, event)
    return None


@dataclass(frozen=True)
class ArmLabel:
    """A model that is compared on the test slice: what it is in words, and its group in pictures."""

    words: str
    group: str


def words(arms: Mapping[str, ArmLabel]) -> dict[str, str]:
    """Return arm → what it is, in words."""
    return {name: arm.words for name, arm in arms.items()}


@dataclass(frozen=True)
class FigureRule:
    """A figure of a completed run: "name in words: what it is", and how it follows from the run."""

    words: str
    value: Callable[[StudyRun], Figure | None]
    unit: str = ""


#: A rule of a share of a whole, such as a relative gain.
share = partial(FigureRule, unit="share")


def bits(words: str, unit: str = "bits/byte") -> FigureRule:
    """Return the rule of our arm's own figure, in `unit`: by default its bits per byte."""

    def rule(run: StudyRun) -> Figure:
        assert run.ours is not None
        return figure(run.mean(run.ours), run.drawn[run.ours], run.windows)

    return FigureRule(words, rule, unit)


def ratio(over: str, words: str) -> FigureRule:
    """Return the rule of the ratio of the figure of the arm `over` to our arm's figure."""

    def rule(run: StudyRun) -> Figure:
        assert run.ours is not None
        share = run.mean(over) / run.mean(run.ours)
        return figure(share, run.drawn[over] / run.drawn[run.ours], run.windows)

    return share(words, rule)


def lead(over: str, words: str, unit: str = "bits/byte", arm: str | None = None) -> FigureRule:
    """Return the rule of the figure of the arm `over` minus that of `arm`, by default our arm's."""

    def rule(run: StudyRun) -> Figure:
        ahead = str(arm or run.ours)
        more = run.mean(over) - run.mean(ahead)
        return figure(more, run.drawn[over] - run.drawn[ahead], run.windows)

    return FigureRule(words, rule, unit)


def count(of: Callable[[Any], float], words: str, unit: str = "") -> FigureRule:
    """Return the rule of a number that follows from what `started` pins; it has no interval."""
    return FigureRule(words, lambda run: Figure(value=of(run.started)), unit)


def derive(study: Any, types: Mapping[str, type[Event]]) -> None:
    """Set the attributes of a class of studies: its events and settings by `types`, its figures."""
    study.submitted, study.forked, study.completed = (
        types[name] for name in ("submitted", "forked", "completed")
    )
    study.config = study.submitted.model_fields["config"].annotation
    rules: Mapping[str, FigureRule] = getattr(study, "figure_rules", {})
    study.figures_of = {name: rule.words for name, rule in rules.items()}
    study.figure_units = {name: rule.unit for name, rule in rules.items() if rule.unit}
