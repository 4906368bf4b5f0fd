"""The work of a bake's tasks: pin model and text, sample replies, train, measure."""

from __future__ import annotations

import time
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from evaluation.backends.local_backend import ResidentModel
from evaluation.data import training_texts
from evaluation.measures.perplexity import score_windows
from evaluation.trajectories import divergence, kept
from evaluation.trajectories.contexts import Beginnings
from evaluation.trajectories.kept import LazyStreams
from evaluation.trajectories.sampled import Sample, Sampled
from evaluation.trajectories.sampling import PASS_TOKENS, rows_of_pass
from events import Event, failpoints
from phases.bake import behaviour, findings, plan, prompts, stages, submission
from phases.bake.events import BakeState, Started
from phases.bake.prompts import Stream
from phases.bake.tasks import behaving, rehearsal, replies
from studies import submission as given_submission
from studies.comparison import CHOOSING
from studies.context import GivenContext
from studies.making.events import Making
from studies.observing import Observe, Observed, answered
from weights import operations
from weights.folders.checkpoint import open_checkpoint
from weights.model import Model
from weights.recipes import Train
from weights.training.canary import canary
from weights.training.models import modules
from weights.training.room import bounded
from weights.training.trajectories import Trajectory, unpack
from weights.training.windows import Ids, stream_digest


class Context(GivenContext[BakeState]):
    """The opened text and model of a bake, and the work on its tasks."""

    @property
    def recipes(self) -> Mapping[str, Making]:
        """Name → recipe of all that the run makes, as far as it is known now."""
        return stages.recipes(self.state)

    @property
    def trainings(self) -> Mapping[str, Train]:
        """Name → recipe of every whole training; an early stop is no training of its own."""
        return stages.trainings(self.state)

    @property
    def streams(self) -> Mapping[str, Ids]:
        """Name → token ids of ordinary text, and of trajectories once they are sampled."""
        if plan.sampled(self.state) is None:
            return self.text.streams
        known: Any = self.trajectories()
        return ChainMap(dict(self.text.streams), known)

    @cached_property
    def added(self) -> Sequence[str]:
        """Domains of built-in text beside the user's own."""
        submitted = self.state.submitted
        if not submitted.data:
            return ()
        return prompts.built_in(submitted.config, training_texts.domains(submitted.data))

    @property
    def unread(self) -> Sequence[str]:
        """Domains of contexts: trainings read the replies to them."""
        return self.state.submitted.config.contexts

    # ---- replies -------------------------------------------------------------------------------

    @cached_property
    def _beginnings(self) -> Beginnings:
        return submission.beginnings(self.state.submitted.config, self.text.tokenizer)

    def _wanted(self) -> dict[str, Stream]:
        """Return name → stream of all that the run samples."""
        config = self.state.submitted.config
        found = prompts.streams(config, self.state.started.beyond)
        for stage in prompts.stages(config):
            found |= prompts.pursued(stage) if stage.again else {}
        return found

    def _written(self, task: Sample) -> dict[str, list[Trajectory]]:
        """Return stream → trajectories of a task, sampled now."""
        config, wanted = self.state.submitted.config, self._wanted()
        streams = {name: wanted[name] for name in task.streams}
        writer = self.parent_model
        if task.recipe_id != plan.parent(self.state.started).id:
            writer = self._loaded(task.recipe_id)
        tokens = self.state.started.pass_tokens
        return replies.written(writer, self.text, self._beginnings, config, streams, tokens)

    def tried_replies(self) -> tuple[float, list[Trajectory]]:
        """Return the seconds of all replies by those of a forward pass of each stream; and a pass.

        Replies of a pursuit are priced as those of the given model.
        """
        config, streams, seconds = self.state.submitted.config, self._wanted(), 0.0
        written: list[Trajectory] = []
        room = config.context_tokens + config.reply_tokens + self.state.started.prompt_tokens
        tokens = self.state.started.pass_tokens
        rows = rows_of_pass(self.parent_model, room, tokens)
        few = config.model_copy(update={"trajectories": rows, "held_out": rows})
        for name, stream in streams.items():
            if stream.like is None:
                began = time.monotonic()
                single = {name: stream}
                written = replies.written(
                    self.parent_model, self.text, self._beginnings, few, single, tokens
                )[name]
                seconds += (time.monotonic() - began) * -(-prompts.count(config, stream) // rows)
        return seconds, written

    @cached_property
    def _kept(self) -> dict[str, Mapping[str, Ids]]:
        """Digest → streams of trajectories."""
        return {}

    def trajectories(self) -> Mapping[str, Ids]:
        """Return name → stream of all trajectories so far, each read or sampled again when it is used.

        What a later stage trains on may need the model of an earlier one.
        """
        tasks = [plan.sample(self.state)]
        tasks += [one.sample for one in stages.known(self.state) if one.sample is not None]
        sources: dict[str, Callable[[], Mapping[str, Ids]]] = {}
        for task in tasks:
            event = self.state.answers.get(task.key)
            if isinstance(event, Sampled):
                sources |= dict.fromkeys(event.streams, partial(self._read, task, event))
        return LazyStreams(sources)

    def _read(self, task: Sample, event: Sampled) -> Mapping[str, Ids]:
        """Return the streams of an event, kept or sampled again."""
        if event.digest not in self._kept:
            write = partial(self._written, task)
            self._kept[event.digest] = kept.streams(event, self._cache, write)
        return self._kept[event.digest]

    def carry_out(self, task: Any) -> Event:
        """Do the task and return its event; append nothing. Raises the errors of the work."""
        if not isinstance(task, Sample):
            return super().carry_out(task)
        event = kept.answered(task, self._cache, partial(self._written, task))
        failpoints.hit("sampled-kept")
        return event

    # ---- measuring -----------------------------------------------------------------------------

    def _resident(self, recipe: Making) -> ResidentModel:
        """Return a model with a recipe's weights, on the run's device."""
        model = Model(self.settings, self.weights(recipe))
        return ResidentModel.from_module(modules.build(model, self.device, frozen=True))

    @cached_property
    def parent_model(self) -> ResidentModel:
        """The given model."""
        return self._resident(plan.parent(self.state.started))

    @cached_property
    def _baked(self) -> ResidentModel:
        """A model whose weights are swapped."""
        return self._resident(plan.parent(self.state.started))

    def _loaded(self, recipe_id: str) -> ResidentModel:
        """Return the model of a recipe, ready."""
        recipe = next(one for one in self.recipes.values() if one.id == recipe_id)
        self._baked.load(self.weights(recipe))
        return self._baked

    def _observed(self, task: Observe) -> Observed:
        began, model = time.monotonic(), self._loaded(task.recipe_id)
        if task.measure == stages.DIVERGENCE:
            items, sizes = self._apart(model, task)
            return answered(task, items, sizes, began)
        if task.measure == behaviour.MEASURE:
            items = self._behaved(model, task)
            return answered(task, items, {g: [1] * len(some) for g, some in items.items()}, began)
        items, sizes, data = {}, {}, self.held_out(task.on)
        contexts = self.state.submitted.config.contexts
        for domain in sorted(set(data) - set(contexts)):
            nll, _, _ = score_windows(model, data[domain].windows)
            items[domain], sizes[domain] = tuple(nll), tuple(data[domain].bytes)
        return answered(task, items, sizes, began)

    def _behaved(self, model: ResidentModel, task: Observe) -> dict[str, list[float]]:
        """Return group → verdicts on greedy replies: of the given model also with the prompts."""
        given, found = task.recipe_id == plan.parent(self.state.started).id, self.trajectories()
        places = {behaviour.NEAR: prompts.TEST, behaviour.FAR: prompts.FAR}
        known = {place: unpack(found[name]) for place, name in places.items() if name in found}
        config, tokenizer = self.state.submitted.config, self.text.tokenizer
        tokens = self.state.started.pass_tokens
        return behaving.verdicts(model, tokenizer, config, known, given, tokens)

    def _apart(
        self, model: ResidentModel, task: Observe
    ) -> tuple[dict[str, list[float]], dict[str, list[int]]]:
        """Return group → divergences of all replies, and their tokens."""
        items: dict[str, list[float]] = {}
        sizes: dict[str, list[int]] = {}
        streams = self.trajectories()
        for name, group in self._groups(task).items():
            known = unpack(streams[name]) if name in streams else []
            apart = divergence.along(self.parent_model, model, known)
            for one, value in zip(known, apart, strict=True):
                own = f"{group}{one.prompt + 1}" if group == findings.OTHER else group
                items.setdefault(own, []).append(value)
                sizes.setdefault(own, []).append(len(one.reply))
        return items, sizes

    def _groups(self, task: Observe) -> dict[str, str]:
        """Return stream → group of the divergences that a task asks for."""
        config = self.state.submitted.config
        given = task.recipe_id == plan.parent(self.state.started).id
        if task.on == CHOOSING:
            if given:
                own = [stage for stage in prompts.stages(config) if not stage.again]
                return {one.named(prompts.CHOOSING): stages.group(self.state, one) for one in own}
            stage = stages.stage_of(self.state, task.recipe_id)
            return {prompts.target(config, stage): stages.PROMPT}
        found = {
            prompts.TEST: stages.PROMPT,
            prompts.TEST_OTHERS: findings.OTHER,
            prompts.FAR: findings.FAR,
        }
        if given:
            for number in range(1, len(config.prompts) + 1):
                found[f"{prompts.WITHOUT}{number}"] = f"{findings.WITHOUT}{number}"
        return found

    # ---- started -------------------------------------------------------------------------------

    def pinned(self, common: dict[str, Any]) -> Started:
        """Return `started` with what prompts and text have. Raises ConfigError, DataError."""
        config, positions = self.state.submitted.config, open_checkpoint(self.donor).positions
        tokens = submission.check_room(self._beginnings, config, positions)
        counts = replies.counts(self.text, config)
        submission.check_contexts(counts)
        beyond = submission.beyond(self._beginnings, config, positions)
        trainable = given_submission.trainable(config, self.settings)
        return Started(
            **common,
            prompt_tokens=tokens,
            contexts=counts,
            beyond=beyond,
            trainable=trainable,
            dtype=self.dtype,
            pass_tokens=PASS_TOKENS,
        )

    def canary(self, started: Started, first: Model) -> tuple[str, float]:
        """Return the digest of three steps here before anything is sampled, and their seconds."""
        config, positions = self.state.submitted.config, open_checkpoint(self.donor).positions
        made = rehearsal.streams(self.text, self._beginnings, config, positions)
        digests = {name: stream_digest(ids) for name, ids in made.items()}
        recipe = plan.canary(self.state.submitted, started, digests)
        streams, inputs = {**self.text.streams, **made}, dict.fromkeys(recipe.inputs, first)
        with bounded():
            return canary(recipe, first, streams, inputs=inputs, device=self.device)

    def initial(self, started: Started) -> Model:
        """Return the given model in float32."""
        return operations.apply(plan.parent(started), {"of": self.given()})
