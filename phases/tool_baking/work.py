"""The work of a baking run's tasks: pin model, text and tasks, play, propose, train, measure."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from evaluation.backends.local_backend import ResidentModel
from evaluation.measures.perplexity import score_windows
from evaluation.sandbox.sandbox import Sandbox
from evaluation.tool_tasks.base import ToolItem
from evaluation.tool_tasks.episodes import Bounds, Player
from evaluation.tool_tasks.item_sets import digest
from evaluation.tool_tasks.speech import Speech
from evaluation.training_text.kept_text import ITEMS
from evaluation.trajectories import divergence, kept
from evaluation.trajectories.sampled import Sampled
from events import Event, failpoints
from phases.tool_baking import figures, recipes, tool_tasks, turns
from phases.tool_baking.cycles import Iteration
from phases.tool_baking.events import (
    BakingState,
    CycleSample,
    Propose,
    Proposed,
    Started,
    Submitted,
)
from phases.tool_baking.settings import BakingConfig
from phases.tool_baking.tool_tasks import Tasks
from runs.errors import SourceChangedError
from runs.kinds.forecast import Amount, Forecast
from runs.kinds.tasks import Task
from runs.system.durations import duration
from runs.system.stopwatch import timed
from studies import given_dtype, submission, training_plan
from studies import work as study_work
from studies.comparison import CHOOSING
from studies.events import MODEL
from studies.making.maker import Maker
from studies.observing import Observe, Observed, answered
from studies.training_plan import as_float32
from weights import operations
from weights.folders import stand_ins
from weights.folders.checkpoint import open_checkpoint
from weights.model import Model
from weights.recipes import Train
from weights.storage.weight_cache import Artifacts
from weights.threads import set_threads
from weights.training.canary import STEPS, canary
from weights.training.loop import Snapshot
from weights.training.room import bounded
from weights.training.trajectories import BAKED, OTHERS, Trajectory, unpack
from weights.training.windows import Ids

#: Recipe → its streams by name.
StreamsOf = Callable[[Train], Mapping[str, Ids]]


class CycleMaker(Maker):
    """A maker whose trainings have streams of the same names with different contents."""

    def reading(self, streams: StreamsOf) -> CycleMaker:
        """Take the streams of each training from `streams`; return the maker."""
        self._of = streams
        self._under_way: list[Train] = []
        self._streams = lambda: self._of(self._under_way[-1]) if self._under_way else {}
        return self

    def _carried(self, recipe: Train, before: Snapshot | None) -> Snapshot:
        """Return the snapshot at `recipe.upto`; models that it begins with are made on the way."""
        self._under_way.append(recipe)
        try:
            return super()._carried(recipe, before)
        finally:
            self._under_way.pop()


class Context(study_work.Context):
    """The opened text, tasks and model of a baking run, and the work on its tasks."""

    @property
    def config(self) -> BakingConfig:
        """The run's settings."""
        return self.state.submitted.config

    @property
    def iterations(self) -> Sequence[Iteration]:
        """The run's iterations, as far as they are known."""
        return self.study.run(self.state).known["iterations"]

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
        for iteration in self.iterations:
            written = iteration.written
            digests = {n: s.digest for n, s in written.streams.items()} if written else {}
            # Two iterations may have the same turns to bake, and other turns under other prompts.
            if written and digests and digests.items() <= recipe.data_digests.items():
                task = recipes.sample(self.config, iteration.cycle, iteration.start)
                write = partial(self._written, task)
                return {**self.text.streams, **kept.streams(written, self._cache, write)}
        raise SourceChangedError("the turns of a training are not among those of the run.")

    def draws(self, cycle: str, writer: str) -> tuple[str | int, ...]:
        """Return the key of the random numbers by which the model of a recipe's id writes in a cycle.

        Each iteration has numbers of its own. With the same numbers the next model, which is much like
        the one before, would write many of the same turns again.
        """
        key = (self.config.seed, recipes.PURPOSE)
        for iteration in self.iterations if self.state.started.drawn_apart else ():
            if (iteration.cycle, iteration.start.id) == (cycle, writer):
                return (*key, "iteration", iteration.number)
        return key

    # ---- tasks and speech ------------------------------------------------------------------------

    @cached_property
    def tasks(self) -> Tasks:
        """Slice → family → tool tasks."""
        return tool_tasks.all_tasks(self.config)

    @cached_property
    def speech(self) -> Speech:
        """The form of sessions: calls, results and the prompt of tools as text."""
        return tool_tasks.speech_of(self.config, self.text.tokenizer, self.tasks)

    @cached_property
    def _sandbox(self) -> Sandbox:
        return Sandbox.open()

    def _player(self, model: ResidentModel) -> Player:
        bounds = Bounds(self.config.reply_tokens, self.config.calls)
        return Player(model, self.speech, bounds, lambda: self._sandbox)

    def _loaded(self, recipe_id: str) -> ResidentModel:
        """Return the model with a recipe's weights; the one before it is not used again."""
        return self.loaded(self.model(recipe_id), "any")

    @cached_property
    def _parent(self) -> ResidentModel:
        """The given model."""
        return self.loaded(self.model(as_float32(self.state.started).id), "parent")

    # ---- turns -----------------------------------------------------------------------------------

    def _written(self, task: CycleSample) -> dict[str, list[Trajectory]]:
        """Return stream → turns of a model, sampled now."""
        model = self._loaded(task.recipe_id)
        player, config = self._player(model), self.config
        prompt, tools = self._prompt(task)
        base = self.draws(task.cycle, task.recipe_id)
        key = (*base, task.cycle)
        if task.cycle == recipes.HOLDING:
            slices = {recipes.HELD: "selection", recipes.HELD_TEST: "test"}
            return {
                stream: turns.written(
                    *(player, self.speech, self.tasks[on], prompt, tools, (*key, on)), False
                )
                for stream, on in slices.items()
            }
        trajectories = turns.written(
            *(player, self.speech, self.tasks["train"], prompt, tools, (*key, "train")), True
        )
        streams = {BAKED: trajectories}
        if config.rehearsed:
            streams[OTHERS] = turns.others(model, self.speech, config, self.tasks["train"], base)
        return streams

    def _prompt(self, task: CycleSample) -> tuple[str, bool]:
        """Return the prompt that a model writes under, and True if it tells of tools."""
        if task.cycle != "personas":
            return self.state.started.prompt, True
        same = (iteration for iteration in self.iterations if iteration.cycle == task.cycle)
        persona = next(
            iteration.persona for iteration in same if iteration.start.id == task.recipe_id
        )
        assert persona is not None
        return persona, False

    @cached_property
    def _held(self) -> Mapping[str, Ids]:
        """Stream → turns of the given model to measure on."""
        task = recipes.held(self.state.started)
        event = self.state.answers[task.key]
        assert isinstance(event, Sampled)
        return kept.streams(event, self._cache, lambda: self._written(task))

    def carry_out(self, task: Task) -> Event:
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
        key = self.draws("personas", task.recipe_id)
        personas = turns.personas(model, self.speech, self.config, key)
        seconds = time.monotonic() - began
        return Proposed(recipe_id=task.recipe_id, personas=personas, seconds=seconds)

    # ---- measuring -------------------------------------------------------------------------------

    def _observed(self, task: Observe) -> Observed:
        began, model = time.monotonic(), self._loaded(task.recipe_id)
        items: dict[str, tuple[float, ...]] = {}
        sizes: dict[str, tuple[int, ...]] = {}
        if task.measure == figures.BITS:
            for domain, text in sorted(self.held_out(task.on).items()):
                nll, _, _ = score_windows(model, text.windows)
                items[domain], sizes[domain] = tuple(nll), tuple(text.bytes)
        elif task.measure == figures.DIVERGENCE:
            trajectories = unpack(
                self._held[recipes.HELD if task.on == CHOOSING else recipes.HELD_TEST]
            )
            items[figures.PROMPT] = tuple(divergence.along(self._parent, model, trajectories))
            sizes[figures.PROMPT] = tuple(len(trajectory.reply) for trajectory in trajectories)
        else:
            items = self._solved(task, model)
            sizes = {name: (1,) * len(values) for name, values in items.items()}
        return answered(task, items, sizes, began)

    def _solved(self, task: Observe, model: ResidentModel) -> dict[str, tuple[float, ...]]:
        """Return group → 1 for each task that is solved, else 0."""
        player, tasks = self._player(model), self.tasks[task.on]
        if task.measure == figures.PERSONAS:
            proposed = self.state.answers[Propose(task.recipe_id).key]
            assert isinstance(proposed, Proposed)
            return {
                f"{number}/{family}": scores
                for number, text in enumerate(proposed.personas, 1)
                for family, scores in turns.solved(player, tasks, text, False).items()
            }
        prompted = task.measure == figures.UNDER_PROMPT
        prompt = self.state.started.prompt if prompted else ""
        return turns.solved(player, tasks, prompt, prompted)

    # ---- started ---------------------------------------------------------------------------------

    def pinned(self, common: dict[str, Any]) -> Started:
        """Return `started` with what the tasks are. Raises ConfigError, DataError."""
        positions = open_checkpoint(self.donor).positions
        tool_tasks.check_room(self.speech, self.config, self.tasks, positions)
        tool_tasks.check_programs(self.speech, self.config, self.tasks)
        return Started(
            **common,
            tasks=digest(_by_cell(self.tasks)),
            counts={name: len(items) for name, items in _by_cell(self.tasks).items()},
            form=self.speech.form.name,
            prompt=tool_tasks.prompt_of(self.config, self.speech),
            trainable=submission.trainable(self.config, self.settings),
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
        counts = {
            "train": self.config.train_items,
            "selection": self.config.selection_items,
            "test": self.config.test_items,
        }
        few = [
            f"{count} of {name}"
            for name, count in started.counts.items()
            if count < counts[name.partition("/")[2]]
        ]
        remarks = [f"there are fewer tasks than asked for: only {', '.join(few)}."] if few else []
        return [*super().notes(started), *remarks]

    def canary(self, started: Started, first: Model) -> tuple[str, float]:
        """Return the digest of three steps on ordinary text here, and the seconds they took."""
        recipe = recipes.canary(self.state.submitted, started)
        with bounded():
            return canary(recipe, first, self.text.streams, device=self.device)

    def initial(self, started: Started) -> Model:
        """Return the given model in float32."""
        return operations.apply(as_float32(started), {"of": self.given()})


def _by_cell(tasks: Tasks) -> dict[str, list[ToolItem]]:
    """Return "FAMILY/SLICE" → tasks."""
    return {
        f"{family}/{on}": [*items]
        for on, families in tasks.items()
        for family, items in families.items()
    }


def forecast(submitted: Submitted, cache: Artifacts, folder: Path) -> Forecast:
    """Return what a run costs here at most. Raises the errors of a start.

    The given model's work on the held-out tasks is timed, and steps on ordinary text.
    """
    set_threads()
    state = BakingState()
    state.take(submitted)
    context, config = Context(state, cache), submitted.config
    opening = timed(lambda: state.take(context.started()))
    started = state.started
    playing = timed(lambda: context.carry_out(recipes.held(started)))
    stepping = context.step_seconds()
    steps, models = config.iterations * config.steps, config.iterations
    bytes_, words = given_dtype.stored(
        started, 2 * models + 1, models + 1, started.model.parameters
    )
    text = sum(file.stat().st_size for file in context.text.folder.iterdir())
    return Forecast(
        Amount(
            opening + playing + steps * stepping / STEPS,
            f"timed here: the start {duration(opening)}, the work on held-out tasks "
            f"{duration(playing)}, {STEPS} steps on ordinary text {duration(stepping)}, and there are "
            f"{steps:,} at most. The turns of each iteration and measurements come on top",
        ),
        Amount(bytes_ + text, f"counted: at most {words}, and the text"),
        Amount(
            training_plan.memory(started.model.parameters, started.trainable),
            "counted: weights, gradients and two moments of a training, and the teacher; activations "
            "come on top",
        ),
        {MODEL: stand_ins.write(context.donor, folder / MODEL, MODEL)},
        context.text.folder / ITEMS,
    )
