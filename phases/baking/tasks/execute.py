"""The work of a baking run's tasks: pin model, text and tasks, play, propose, train, measure."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from evaluation.backends.local_backend import ResidentModel
from evaluation.measures.perplexity import score_windows
from evaluation.sandbox.sandbox import Sandbox
from evaluation.tool_tasks.episodes import Bounds, Player
from evaluation.tool_tasks.item_sets import digest
from evaluation.tool_tasks.speech import Speech
from evaluation.trajectories import divergence, kept
from events import Event, failpoints
from phases.baking import findings, plan, submission
from phases.baking.config import BakingConfig
from phases.baking.events import BakingState, CycleSample, Propose, Proposed, Started
from phases.baking.submission import Tasks
from phases.baking.tasks import turns
from phases.baking.tasks.maker import CycleMaker
from runs.errors import SourceChangedError
from studies import submission as given_submission
from studies.comparison import CHOOSING
from studies.context import GivenContext
from studies.making.events import Making
from studies.making.maker import Maker
from studies.observing import Observe, Observed, answered
from studies.training_plan import as_float32
from weights import operations
from weights.folders.checkpoint import open_checkpoint
from weights.model import Model
from weights.recipes import Train
from weights.training.canary import canary
from weights.training.models import modules
from weights.training.room import bounded
from weights.training.trajectories import BAKED, OTHERS, Trajectory, unpack
from weights.training.windows import Ids


class Context(GivenContext[BakingState]):
    """The opened text, tasks and model of a baking run, and the work on its tasks."""

    @property
    def config(self) -> BakingConfig:
        """The run's settings."""
        return self.state.submitted.config

    @property
    def recipes(self) -> Mapping[str, Making]:
        """Name → recipe of all that the run makes, as far as it is known now."""
        return plan.recipes(self.state)

    @property
    def maker(self) -> Maker:
        """The maker of the run's recipes that are known now; each reads its iteration's turns."""
        return CycleMaker(
            self.state,
            self._cache,
            {recipe.id: recipe for recipe in self.recipes.values()},
            lambda: self.settings,
            dict,
            self.kept,
            self.device,
            {self.record.recipe_id: self.given},
            names=self.names,
            unlike=self.unlike,
        ).reading(self._streams_of)

    def _streams_of(self, recipe: Train) -> Mapping[str, Ids]:
        """Return what a training reads: ordinary text, and the turns of its iteration."""
        for one in plan.rounds(self.state):
            written = one.written
            digests = {n: s.digest for n, s in written.streams.items()} if written else {}
            # Two iterations may have the same turns to bake, and other turns under other prompts.
            if digests and digests.items() <= recipe.data_digests.items():
                assert written is not None
                task = plan.sample(self.config, one.cycle, one.start)
                write = partial(self._written, task)
                return {**self.text.streams, **kept.streams(written, self._cache, write)}
        raise SourceChangedError("the turns of a training are not among those of the run.")

    # ---- tasks and speech ------------------------------------------------------------------------

    @cached_property
    def tasks(self) -> Tasks:
        """Slice → family → tool tasks."""
        return submission.all_tasks(self.config)

    @cached_property
    def speech(self) -> Speech:
        """The form of sessions: calls, results and the prompt of tools as text."""
        return submission.speech_of(self.config, self.text.tokenizer, self.tasks)

    @cached_property
    def _sandbox(self) -> Sandbox:
        return Sandbox.open()

    def _player(self, model: ResidentModel) -> Player:
        bounds = Bounds(self.config.reply_tokens, self.config.calls)
        return Player(model, self.speech, bounds, lambda: self._sandbox)

    def _resident(self, recipe: Making) -> ResidentModel:
        model = Model(self.settings, self.weights(recipe))
        return ResidentModel.from_module(modules.build(model, self.device))

    @cached_property
    def _models(self) -> dict[str, ResidentModel]:
        return {}

    def _loaded(self, recipe_id: str) -> ResidentModel:
        """Return the model with a recipe's weights; the one before it is not used again."""
        recipe = next(one for one in self.recipes.values() if one.id == recipe_id)
        if "any" not in self._models:
            self._models["any"] = self._resident(recipe)
        self._models["any"].load(self.weights(recipe))
        return self._models["any"]

    @cached_property
    def _parent(self) -> ResidentModel:
        """The given model."""
        return self._resident(as_float32(self.state.started))

    # ---- turns -----------------------------------------------------------------------------------

    def _written(self, task: CycleSample) -> dict[str, list[Trajectory]]:
        """Return stream → turns of a model, sampled now."""
        model = self._loaded(task.recipe_id)
        player, config = self._player(model), self.config
        prompt, tools = self._prompt(task)
        base = plan.draws(self.state, task.cycle, task.recipe_id)
        key = (*base, task.cycle)
        if task.cycle == plan.HOLDING:
            slices = {plan.HELD: "selection", plan.HELD_TEST: "test"}
            return {
                stream: turns.written(
                    *(player, self.speech, self.tasks[on], prompt, tools, (*key, on)), False
                )
                for stream, on in slices.items()
            }
        own = turns.written(
            *(player, self.speech, self.tasks["train"], prompt, tools, (*key, "train")), True
        )
        found = {BAKED: own}
        if config.rehearsed:
            found[OTHERS] = turns.others(model, self.speech, config, self.tasks["train"], base)
        return found

    def _prompt(self, task: CycleSample) -> tuple[str, bool]:
        """Return the prompt that a model writes under, and True if it tells of tools."""
        if task.cycle != "personas":
            return self.state.started.prompt, True
        recipe = next(one for one in self.recipes.values() if one.id == task.recipe_id)
        found = findings.persona(self.state, recipe)
        assert found is not None
        return found, False

    @cached_property
    def _held(self) -> Mapping[str, Ids]:
        """Stream → turns of the given model to measure on."""
        task = plan.held(self.state.started)
        event = plan.answered(self.state, task)
        assert event is not None
        return kept.streams(event, self._cache, lambda: self._written(task))

    def carry_out(self, task: Any) -> Event:
        """Do the task and return its event; append nothing. Raises the errors of the work."""
        if isinstance(task, CycleSample):
            event = kept.answered(task, self._cache, lambda: self._written(task))
            failpoints.hit("sampled-kept")
            return event
        if isinstance(task, Propose):
            return self._proposed(task)
        return super().carry_out(task)

    def _proposed(self, task: Propose) -> Proposed:
        began, model = time.monotonic(), self._loaded(task.recipe_id)
        key = plan.draws(self.state, "personas", task.recipe_id)
        found = turns.personas(model, self.speech, self.config, key)
        seconds = time.monotonic() - began
        return Proposed(recipe_id=task.recipe_id, personas=found, seconds=seconds)

    # ---- measuring -------------------------------------------------------------------------------

    def _observed(self, task: Observe) -> Observed:
        began, model = time.monotonic(), self._loaded(task.recipe_id)
        items: dict[str, tuple[float, ...]] = {}
        sizes: dict[str, tuple[int, ...]] = {}
        if task.measure == findings.BITS:
            for domain, some in sorted(self.held_out(task.on).items()):
                nll, _, _ = score_windows(model, some.windows)
                items[domain], sizes[domain] = tuple(nll), tuple(some.bytes)
        elif task.measure == findings.DIVERGENCE:
            known = unpack(self._held[plan.HELD if task.on == CHOOSING else plan.HELD_TEST])
            items[findings.PROMPT] = tuple(divergence.along(self._parent, model, known))
            sizes[findings.PROMPT] = tuple(len(one.reply) for one in known)
        else:
            items = self._solved(task, model)
            sizes = {name: (1,) * len(some) for name, some in items.items()}
        return answered(task, items, sizes, began)

    def _solved(self, task: Observe, model: ResidentModel) -> dict[str, tuple[float, ...]]:
        """Return group → 1 for each task that is solved, else 0."""
        player, tasks = self._player(model), self.tasks[task.on]
        if task.measure == findings.PERSONAS:
            proposed: Any = self.state.answers[Propose(task.recipe_id).key]
            return {
                f"{number}/{family}": some
                for number, text in enumerate(proposed.personas, 1)
                for family, some in turns.solved(player, tasks, text, False).items()
            }
        prompted = task.measure == findings.PROMPTED
        prompt = self.state.started.prompt if prompted else ""
        return turns.solved(player, tasks, prompt, prompted)

    # ---- started ---------------------------------------------------------------------------------

    def pinned(self, common: dict[str, Any]) -> Started:
        """Return `started` with what the tasks are. Raises ConfigError, DataError."""
        positions = open_checkpoint(self.donor).positions
        submission.check_room(self.speech, self.config, self.tasks, positions)
        submission.check_programs(self.speech, self.config, self.tasks)
        return Started(
            **common,
            tasks=digest(_by_cell(self.tasks)),
            counts={name: len(some) for name, some in _by_cell(self.tasks).items()},
            form=self.speech.form.name,
            prompt=submission.prompt_of(self.config, self.speech),
            trainable=given_submission.trainable(self.config, self.settings),
            dtype=self.dtype,
        )

    def check_unchanged(self) -> None:
        """Check tasks, text, profile and canary against `started`.

        Raises SourceChangedError for other tasks, and the errors of the rest.
        """
        if digest(_by_cell(self.tasks)) != self.state.started.tasks:
            raise SourceChangedError(
                "this version of the program makes other tool tasks than the one that started the "
                "run: go on with that version, or start a new run."
            )
        super().check_unchanged()

    def notes(self, started: Started) -> Sequence[str]:
        """Return what users are to know of text and tasks before anything is trained."""
        wanted = {
            "train": self.config.train_items,
            "selection": self.config.selection_items,
            "test": self.config.test_items,
        }
        few = [
            f"{name} {count}"
            for name, count in started.counts.items()
            if count < wanted[name.partition("/")[2]]
        ]
        said = [f"of {', '.join(few)} there are no more tasks."] if few else []
        return [*super().notes(started), *said]

    def canary(self, started: Started, first: Model) -> tuple[str, float]:
        """Return the digest of three steps on ordinary text here, and the seconds they took."""
        recipe = plan.canary(self.state.submitted, started)
        with bounded():
            return canary(recipe, first, self.text.streams, device=self.device)

    def initial(self, started: Started) -> Model:
        """Return the given model in float32."""
        return operations.apply(as_float32(started), {"of": self.given()})


def _by_cell(tasks: Tasks) -> dict[str, list[Any]]:
    """Return "FAMILY/SLICE" → tasks."""
    return {
        f"{family}/{on}": [*some] for on, found in tasks.items() for family, some in found.items()
    }
