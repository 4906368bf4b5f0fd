"""A run of a study as its log stands: what its script has said and what it waits for. Pure.

Views read a `Run`: what is not known yet is not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Protocol

from runs.event_types import Figure
from runs.kinds.outcome import Figured
from runs.kinds.tasks import Decision, Task
from studies import comparison, given_dtype
from studies.comparison import CHOOSING, Drawn, Scale
from studies.events import MODEL, Result
from studies.making.events import Making
from studies.observing import Observe, Observed
from studies.paired_bits import mean
from studies.script import Ask, Make, Script, follow
from weights.recipes import Train


class Table(Figured, Protocol):
    """The part of a study that its runs follow from."""

    figure_rules: ClassVar[Mapping[str, Any]]
    result_roles: ClassVar[Sequence[str]]
    scale: ClassVar[Scale]
    ours: ClassVar[str | None]

    @property
    def purpose(self) -> str:
        """Key of the random draws of trainings and intervals."""
        ...

    def script(self, run: Run) -> Script:
        """Run the study; at its end return the function that gives the fields of `completed`."""
        ...


class Run:
    """A run that has started.

    Its script calls `make`, `ask`, `choose` and `compare`, which return its steps and remember what
    they name; `foresee` names what comes later.
    """

    def __init__(self, study: Table, state: Any) -> None:
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
        self.known: dict[str, Any] = {}
        #: What the script waits for, and the function that it returns at its end.
        self.decision: Decision
        self.ending: Callable[[], dict[str, Any]] | None
        self.decision, self.ending = follow(study.script(self), state)

    # ---- steps of scripts --------------------------------------------------------------------

    def foresee(
        self,
        recipes: Mapping[str, Making] | None = None,
        tasks: Mapping[str, Observe] | None = None,
    ) -> None:
        """Name what the run will make and measure, as far as it is known now."""
        self.recipes |= recipes or {}
        self.observations |= {task.key: task for task in (tasks or {}).values()}

    def make(self, *names: str, **recipes: Making) -> Make:
        """Return the step that makes recipes side by side, by their names; equal ones once."""
        self.recipes |= recipes
        chosen = (self.recipes[name] for name in (*names, *recipes))
        return Make([*{recipe.id: recipe for recipe in chosen}.values()])

    def ask(self, tasks: Mapping[str, Task]) -> Ask:
        """Return the step that does tasks side by side."""
        self.foresee(tasks={n: task for n, task in tasks.items() if isinstance(task, Observe)})
        return Ask(tasks)

    def choose(self, candidates: Mapping[str, Observe]) -> Ask:
        """Return the step that measures candidates on the selection slice."""
        self.candidates |= candidates
        return self.ask(candidates)

    def compare(self, arms: Mapping[str, Observe]) -> Ask:
        """Return the step that measures the arms on the test slice."""
        self.arms |= arms
        return self.ask(arms)

    def on(self, name: str, measure: str, slice_: str = CHOOSING) -> Observe:
        """Return the measurement of a model by its name among the recipes."""
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
        """Arm → its figure in each resample."""
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
        """Return the figure of a measured arm."""
        assert arm is not None
        return self.study.scale.mean(self.seen[arm])

    @property
    def leads(self) -> dict[str, Figure]:
        """Arm → what it needs more than ours, with the interval; empty before that is known."""
        return {} if self.ours is None else self.leads_of(self.ours)

    def leads_of(self, arm: str) -> dict[str, Figure]:
        """Return other arm → what it needs more than `arm`, with the interval."""
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
        """Return the name among the recipes of a model that the run gives."""
        return role if role in self.recipes else str(self.result_name or self.result)

    @property
    def result_digests(self) -> list[str]:
        """BLAKE3 of the weights of the models that a completed run gives."""
        return [model.digest for model in self.state.completed.models.values()]

    def models(self) -> dict[str, Result]:
        """Return role → model of a run whose models are made."""
        ids = {role: self.named[role].id for role in self.study.result_roles}
        events = self.state.made
        return {role: Result(recipe_id=id_, digest=events[id_].digest) for role, id_ in ids.items()}

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """The figures of a run whose arms are all measured."""
        values = {name: rule.value(self) for name, rule in self.study.figure_rules.items()}
        return {name: value for name, value in values.items() if value is not None}

    def end(self, **fields: Any) -> dict[str, Any]:
        """Return the fields of `completed`: models, arms and figures, and those that a script adds."""
        arms = comparison.arms(self.seen)
        return {"models": self.models(), "arms": arms, "figures": self.figures, **fields}

    @cached_property
    def conclusions(self) -> dict[str, Any]:
        """The fields of `completed` that follow from the log, once the script is at its end."""
        assert self.ending is not None
        return self.ending()


def best(answers: Mapping[str, Any]) -> str:
    """Return the candidate with the fewest bits per byte, mean over domains; of equals the first."""
    return min(answers, key=lambda name: mean(answers[name]))
