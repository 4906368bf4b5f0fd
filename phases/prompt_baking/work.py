"""The work of a bake's tasks: pin model and text, sample replies, train, measure; and its costs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property

from typing_extensions import override

from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data import packing, training_texts
from agent_forge.evaluation.measures.perplexity import score_windows
from agent_forge.evaluation.trajectories import sampling
from agent_forge.evaluation.trajectories.contexts import Beginnings
from agent_forge.evaluation.trajectories.sampled import SampleReplies
from agent_forge.evaluation.trajectories.sampling import PASS_TOKENS, rows_of_pass
from agent_forge.phases.prompt_baking import figures, recipes, replies
from agent_forge.phases.prompt_baking.recipes import Course, Started, Stream
from agent_forge.phases.prompt_baking.settings import BakeConfig
from agent_forge.runs.system.durations import duration, least
from agent_forge.studies import submission as study_submission
from agent_forge.studies import work
from agent_forge.studies.comparison import CHOOSING, TEST
from agent_forge.studies.events import Items, Observe, Sizes
from agent_forge.studies.study_view import Plain
from agent_forge.studies.training_plan import as_float32
from agent_forge.studies.work import Costs, WorkPart
from agent_forge.weights.folders.checkpoint import open_checkpoint
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training.canary import STEPS
from agent_forge.weights.training.models import modules
from agent_forge.weights.training.windows import Trajectory, stream_digest, unpack


class Context(work.WritingContext):
    """The opened text and model of a bake, and the work on its tasks."""

    @property
    def config(self) -> BakeConfig:
        """The run's settings."""
        return self.state.submitted.config

    @cached_property
    @override
    def added(self) -> Sequence[str]:
        data = self.state.submitted.data
        return recipes.built_in(self.config, training_texts.domains(data)) if data else ()

    @property
    @override
    def unread(self) -> Sequence[str]:
        """Domains of contexts, whose text no training reads: it reads replies to them."""
        return self.config.contexts

    # ---- replies -------------------------------------------------------------------------------

    @cached_property
    def beginnings(self) -> Beginnings:
        """The maker of beginnings, which are prompts and contexts as tokens."""
        return recipes.beginnings(self.config, self.text.tokenizer)

    def sampling(self) -> dict[str, Stream]:
        """Return name → `Stream`, the description of replies, of all that the run samples."""
        streams = recipes.streams(self.config, self.state.started.beyond)
        for stage in recipes.stages(self.config):
            streams |= recipes.sampled(stage) if stage.samples else {}
        return streams

    @override
    def written(self, task: SampleReplies) -> dict[str, list[Trajectory]]:
        streams = {name: stream for name, stream in self.sampling().items() if name in task.streams}
        is_parent = task.recipe_id == self._parent_id
        writer = self.parent if is_parent else self._loaded(task.recipe_id)
        tokens = self.state.started.pass_tokens
        return replies.written(writer, self.text, self.beginnings, self.config, streams, tokens)

    # ---- measuring -----------------------------------------------------------------------------

    @property
    def _parent_id(self) -> str:
        """The recipe id of the given model in float32."""
        return as_float32(self.state.started).id

    def resident(self, recipe_id: str) -> ResidentModel:
        """Return a new frozen module with the weights of a recipe id."""
        module = modules.build(self.model(recipe_id), self.device, frozen=True)
        return ResidentModel.from_module(module)

    @cached_property
    def parent(self) -> ResidentModel:
        """The module of the given model in float32."""
        return self.resident(self._parent_id)

    @cached_property
    def _swapped(self) -> ResidentModel:
        """The module whose weights are replaced for each measurement."""
        return self.resident(self._parent_id)

    def _loaded(self, recipe_id: str) -> ResidentModel:
        """Return the shared module, after loading the weights of a recipe id into it."""
        self._swapped.load(self.model(recipe_id).weights)
        return self._swapped

    @override
    def loaded_for(self, task: Observe) -> ResidentModel:
        return self._loaded(task.recipe_id)

    @override
    def measured_on(self, model: ResidentModel, task: Observe) -> tuple[Items, Sizes]:
        if task.measure == figures.DIVERGENCE:
            return self._apart(model, task)
        if task.measure == figures.BEHAVIOUR:
            verdicts = self._behaved(model, task)
            return verdicts, {group: [1] * len(scores) for group, scores in verdicts.items()}
        data = self.held_out(task.on)
        names = sorted(set(data) - set(self.config.contexts))
        nll = {name: tuple(score_windows(model, data[name].windows)[0]) for name in names}
        return nll, {name: tuple(data[name].bytes) for name in names}

    def _behaved(self, model: ResidentModel, task: Observe) -> Mapping[str, Sequence[float]]:
        """Return group → scores of greedy replies; the given model's also with the prompts."""
        streams, prompted = self.streams, task.recipe_id == self._parent_id
        names = {figures.NEAR: recipes.TEST, figures.FAR: recipes.FAR}
        places = {place: unpack(streams[name]) for place, name in names.items() if name in streams}
        tokenizer, tokens = self.text.tokenizer, self.state.started.pass_tokens
        return replies.verdicts(model, tokenizer, self.config, places, prompted, tokens)

    def _apart(
        self, model: ResidentModel, task: Observe
    ) -> tuple[dict[str, Sequence[float]], dict[str, Sequence[int]]]:
        """Return (group → divergence of each reply in nats, group → tokens of each reply)."""
        items: dict[str, list[float]] = {}
        sizes: dict[str, list[int]] = {}
        streams = self.streams
        for name, group in self._groups(task).items():
            trajectories = unpack(streams[name]) if name in streams else []
            apart = sampling.along(self.parent, model, trajectories)
            for each, value in zip(trajectories, apart, strict=True):
                whole = f"{group}{each.prompt + 1}" if group == figures.OTHER else group
                items.setdefault(whole, []).append(value)
                sizes.setdefault(whole, []).append(len(each.reply))
        return {**items}, {**sizes}

    def _groups(self, task: Observe) -> dict[str, str]:
        """Return stream → name of the group of divergences, for the streams of a task."""
        config, is_parent = self.config, task.recipe_id == self._parent_id
        if task.on == CHOOSING:
            if is_parent:
                stages = [stage for stage in recipes.stages(config) if not stage.samples]
                return {s.named(recipes.CHOOSING): figures.group(config, s) for s in stages}
            return {recipes.target(config, self._stage_of(task.recipe_id)): figures.PROMPT}
        groups = {
            recipes.TEST: figures.PROMPT,
            recipes.TEST_OTHERS: figures.OTHER,
            recipes.FAR: figures.FAR,
        }
        if is_parent:
            for number in range(1, len(config.prompts) + 1):
                groups[f"{recipes.WITHOUT}{number}"] = f"{figures.WITHOUT}{number}"
        return groups

    def _stage_of(self, recipe_id: str) -> recipes.BakeStage:
        """Return the stage that has a recipe id among its candidates."""
        courses: Sequence[Course] = self.study.run(self.state).known["courses"]
        return next(
            course.stage
            for course in courses
            if any(candidate.recipe.id == recipe_id for candidate in course.candidates.values())
        )

    # ---- started -------------------------------------------------------------------------------

    @cached_property
    def _positions(self) -> int | None:
        """The longest sequence that the given model takes; None: any."""
        return open_checkpoint(self.donor).positions

    @override
    def pinned(self, common: Plain) -> Started:
        config, positions = self.config, self._positions
        tokens = recipes.check_room(self.beginnings, config, positions)
        contexts = replies.counts(self.text, config)
        recipes.check_contexts(contexts)
        return Started(
            **common,
            prompt_tokens=tokens,
            contexts=contexts,
            beyond=recipes.beyond(self.beginnings, config, positions),
            trainable=study_submission.trainable(config, self.settings),
            dtype=self.dtype,
            pass_tokens=PASS_TOKENS,
        )

    @override
    def canary(self, started: Started, first: Tensors) -> tuple[str, float]:
        rehearsal = replies.rehearsal(self.text, self.beginnings, self.config, self._positions)
        digests = {name: stream_digest(ids) for name, ids in rehearsal.items()}
        recipe = recipes.canary(self.state.submitted, started, digests)
        streams, inputs = {**self.text.streams, **rehearsal}, dict.fromkeys(recipe.inputs, first)
        return self.tried(recipe, first, inputs, streams)

    initial = work.Context.in_float32

    @override
    def costs(self) -> Costs:
        config, started, stepping = self.config, self.state.started, self.step_seconds()
        bakes = len(recipes.stages(config))
        trial, steps = min(STEPS, config.steps), config.steps * bakes
        sampling, written = _sampling(self)
        measuring = _measuring(self, written, bakes)
        strengths, stops = config.strengths, len(config.stops)
        halved = started.dtype is not None
        whole = stops + (1 if halved else len({1.0, *strengths}))
        return Costs(
            parts=(
                WorkPart(
                    steps * stepping / trial, f"{trial} of {steps:,} steps took {duration(stepping)}"
                ),
                WorkPart(sampling, f"the replies {duration(sampling)}, by a part of them"),
                WorkPart(measuring, f"the measurements {duration(measuring)}, by a part of them"),
            ),
            models=(bakes if halved else 1) + bakes * whole,
            rounded=bakes * (len(strengths) + stops),
            numbers=started.model.parameters,
        )


#: Number of windows by which the time of one is measured.
WINDOWS = 2


def _sampling(context: Context) -> tuple[float, list[Trajectory]]:
    """Return (seconds that all replies take, the replies of the last stream that was timed).

    A forward pass of each stream is timed. Replies of further bakes are priced as the given model's.
    """
    config, started, seconds = context.config, context.state.started, 0.0
    written: list[Trajectory] = []
    room = config.context_tokens + config.reply_tokens + started.prompt_tokens
    rows = rows_of_pass(context.parent, room, started.pass_tokens)
    few = config.model_copy(update={"trajectories": rows, "held_out": rows})
    for name, stream in context.sampling().items():
        if stream.like is None:
            began = time.monotonic()
            tools = context.parent, context.text, context.beginnings, few
            written = replies.written(*tools, {name: stream}, started.pass_tokens)[name]
            seconds += (time.monotonic() - began) * -(-recipes.count(config, stream) // rows)
    return seconds, written


def _measuring(context: Context, written: Sequence[Trajectory], bakes: int) -> float:
    """Return the seconds of all measurements, from the timed cost of a reply and of a window.

    Each candidate is measured on the selection slice; the given model, the results and the last
    training on the test slice, with other prompts and beyond ordinary text.
    """
    config, started = context.config, context.state.started
    sets = sum(s.slice == "test" for s in recipes.streams(config, started.beyond).values())
    candidates = 1 + bakes * (len(config.strengths) + len(config.stops))
    finals = 2 + bakes
    model = context.parent
    windows = {on: _windows(context, on) for on in (CHOOSING, TEST)}
    few = windows[TEST][:WINDOWS]
    window = least(lambda: score_windows(model, few)) / len(few)
    reply = least(lambda: sampling.along(model, model, written)) / len(written)
    return candidates * (config.held_out * reply + len(windows[CHOOSING]) * window) + finals * (
        sets * config.held_out * reply + len(windows[TEST]) * window
    )


def _windows(context: Context, on: str) -> list[packing.Ids]:
    """Return the windows of ordinary text that a slice's measurements read."""
    data = context.held_out(on)
    names = sorted(set(data) - set(context.config.contexts))
    return [ids for name in names for ids in data[name].windows]
