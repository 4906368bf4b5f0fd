"""The work of a baking run's tasks: pin model, text and tasks, play, propose, train, measure."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial

from typing_extensions import override

from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.measures.perplexity import score_windows
from agent_forge.evaluation.sandbox.sandbox import Sandbox
from agent_forge.evaluation.trajectories import kept, sampling
from agent_forge.evaluation.trajectories.sampled import Sampled
from agent_forge.events import Event, failpoints
from agent_forge.phases.tool_baking import figures, recipes, tool_tasks
from agent_forge.phases.tool_baking.recipes import CycleSample, Iteration, Propose, Proposed, Started
from agent_forge.phases.tool_baking.settings import BakingConfig
from agent_forge.phases.tool_baking.tool_tasks import Tasks
from agent_forge.runs.errors import SourceChangedError
from agent_forge.runs.kinds.decide import Task
from agent_forge.runs.system.durations import duration, timed
from agent_forge.studies import submission
from agent_forge.studies import work as study_work
from agent_forge.studies.comparison import CHOOSING
from agent_forge.studies.events import Items, Observe, Sizes
from agent_forge.studies.making.maker import Maker
from agent_forge.studies.study_view import Plain
from agent_forge.studies.training_plan import as_float32
from agent_forge.studies.work import Costs, WorkPart
from agent_forge.tools.tasks import digest
from agent_forge.tools.tasks.base import ToolItem
from agent_forge.tools.tasks.episodes import Bounds, Player, Speech
from agent_forge.weights import pieces
from agent_forge.weights.folders.checkpoint import open_checkpoint
from agent_forge.weights.recipes import Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training.canary import STEPS
from agent_forge.weights.training.loop import Snapshot
from agent_forge.weights.training.windows import BAKED, OTHERS, Ids, Trajectory, unpack

#: Recipe → its streams by name.
StreamsOf = Callable[[Train], Mapping[str, Ids]]


class CycleMaker(Maker):
    """A maker whose trainings have streams of the same names with different contents."""

    def reading(self, streams: StreamsOf) -> CycleMaker:
        """Set the function that returns a training's streams; return the maker itself."""
        self._of = streams
        self._under_way: list[Train] = []
        self._streams = lambda: self._of(self._under_way[-1]) if self._under_way else {}
        return self

    @override
    def _carried(self, recipe: Train, before: Snapshot | None) -> Snapshot:
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
    @override
    def maker(self) -> Maker:
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
        """Return name → token ids that a training reads: ordinary text, and its iteration's turns."""
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
        """Return the key of the random numbers with which model `writer` writes in a cycle.

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
        """The form of sessions: how calls, results and the tools' prompt are written."""
        return tool_tasks.speech_of(self.config, self.text.tokenizer, self.tasks)

    @cached_property
    def _sandbox(self) -> Sandbox:
        return Sandbox.open()

    def _player(self, model: ResidentModel) -> Player:
        bounds = Bounds(self.config.reply_tokens, self.config.calls)
        return Player(model, self.speech, bounds, lambda: self._sandbox)

    def _loaded(self, recipe_id: str) -> ResidentModel:
        """Return the shared module, after loading the weights of a recipe id into it."""
        return self.loaded(self.model(recipe_id), "any")

    @cached_property
    def _parent(self) -> ResidentModel:
        """The module of the given model in float32."""
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
                stream: tool_tasks.written(
                    *(player, self.speech, self.tasks[on], prompt, tools, (*key, on)), False
                )
                for stream, on in slices.items()
            }
        trajectories = tool_tasks.written(
            *(player, self.speech, self.tasks["train"], prompt, tools, (*key, "train")), True
        )
        streams = {BAKED: trajectories}
        if config.rehearsed:
            streams[OTHERS] = tool_tasks.others(model, self.speech, config, self.tasks["train"], base)
        return streams

    def _prompt(self, task: CycleSample) -> tuple[str, bool]:
        """Return (text of the prompt that a model writes under, True if it explains tools)."""
        if task.cycle != "personas":
            return self.state.started.prompt, True
        same = (iteration for iteration in self.iterations if iteration.cycle == task.cycle)
        persona = next(iteration.persona for iteration in same if iteration.start.id == task.recipe_id)
        assert persona is not None
        return persona, False

    @cached_property
    def _held(self) -> Mapping[str, Ids]:
        """Stream → token ids of the given model's turns to measure on."""
        task = recipes.held(self.state.started)
        event = self.state.answers[task.key]
        assert isinstance(event, Sampled)
        return kept.streams(event, self._cache, lambda: self._written(task))

    @override
    def carry_out(self, task: Task) -> Event:
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
        with pieces.divided():
            personas = tool_tasks.personas(model, self.speech, self.config, key)
        seconds = time.monotonic() - began
        return Proposed(recipe_id=task.recipe_id, personas=personas, seconds=seconds)

    # ---- measuring -------------------------------------------------------------------------------

    @override
    def loaded_for(self, task: Observe) -> ResidentModel:
        return self._loaded(task.recipe_id)

    @override
    def measured_on(self, model: ResidentModel, task: Observe) -> tuple[Items, Sizes]:
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
            items[figures.PROMPT] = tuple(sampling.along(self._parent, model, trajectories))
            sizes[figures.PROMPT] = tuple(len(trajectory.reply) for trajectory in trajectories)
        else:
            items = self._solved(task, model)
            sizes = {name: (1,) * len(values) for name, values in items.items()}
        return items, sizes

    def _solved(self, task: Observe, model: ResidentModel) -> dict[str, tuple[float, ...]]:
        """Return group → 1.0 for each task that the model solves, else 0.0."""
        player, tasks = self._player(model), self.tasks[task.on]
        if task.measure == figures.PERSONAS:
            proposed = self.state.answers[Propose(task.recipe_id).key]
            assert isinstance(proposed, Proposed)
            return {
                f"{number}/{family}": scores
                for number, text in enumerate(proposed.personas, 1)
                for family, scores in tool_tasks.solved(player, tasks, text, False).items()
            }
        prompted = task.measure == figures.UNDER_PROMPT
        prompt = self.state.started.prompt if prompted else ""
        return tool_tasks.solved(player, tasks, prompt, prompted)

    # ---- started ---------------------------------------------------------------------------------

    @override
    def pinned(self, common: Plain) -> Started:
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

    @override
    def check_unchanged(self) -> None:
        """Raise if tasks, text, profile or canary differ from those of `started`.

        Raises SourceChangedError for other tasks, and the errors of the rest.
        """
        if digest(_by_cell(self.tasks)) != self.state.started.tasks:
            raise SourceChangedError(
                "this version of the program makes other tool tasks than the one that started the "
                "run: go on with that version, or start a new run."
            )
        super().check_unchanged()

    @override
    def notes(self, started: Started) -> Sequence[str]:
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

    @override
    def canary(self, started: Started, first: Tensors) -> tuple[str, float]:
        recipe = recipes.canary(self.state.submitted, started)
        return self.tried(recipe, first)

    initial = study_work.Context.in_float32

    @override
    def costs(self) -> Costs:
        """Return the `Costs` of a started run: upper bounds of its work, and the models it leaves.

        The given model's work on the held-out tasks is timed, and steps on ordinary text.
        """
        started, config = self.state.started, self.config
        playing = timed(lambda: self.carry_out(recipes.held(started)))
        stepping, steps = self.step_seconds(), config.iterations * config.steps
        return Costs(
            parts=(
                WorkPart(playing, f"the work on held-out tasks took {duration(playing)}"),
                WorkPart(
                    steps * stepping / STEPS,
                    f"{STEPS} steps on ordinary text {duration(stepping)}, and there are {steps:,} at "
                    "most",
                ),
            ),
            models=2 * config.iterations + 1,
            rounded=config.iterations + 1,
            numbers=started.model.parameters,
            besides="The turns of each iteration and measurements",
            further=(0, " at most"),
        )


def _by_cell(tasks: Tasks) -> dict[str, list[ToolItem]]:
    """Return "FAMILY/SLICE" → tasks."""
    return {
        f"{family}/{on}": [*items]
        for on, families in tasks.items()
        for family, items in families.items()
    }
