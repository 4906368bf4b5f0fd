"""The work of a bake's tasks: pin model and text, sample replies, train, measure."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from evaluation.backends.local_backend import ResidentModel
from evaluation.data import training_texts
from evaluation.given_model_runs.comparison import CHOOSING
from evaluation.given_model_runs.context import GivenContext
from evaluation.measures.perplexity import score_windows
from evaluation.observing import Observe, Observed, answered
from evaluation.trajectories import divergence, kept
from evaluation.trajectories.contexts import Beginnings
from evaluation.trajectories.sampled import Sample
from events import Event, failpoints
from phases.bake import findings, plan, prompts, submission
from phases.bake.events import BakeState, Started
from phases.bake.tasks import rehearsal, replies
from weights import operations
from weights.folders.checkpoint import open_checkpoint
from weights.making.events import Making
from weights.model import Model
from weights.training import modules
from weights.training.canary import canary
from weights.training.room import bounded
from weights.training.trajectories import Trajectory, unpack
from weights.training.windows import Ids, stream_digest


class Context(GivenContext[BakeState]):
    """The opened text and model of a bake, and the work on its tasks."""

    @property
    def recipes(self) -> Mapping[str, Making]:
        """Name → recipe of all that the run makes, as far as it is known now."""
        return plan.recipes(self.state)

    @property
    def streams(self) -> Mapping[str, Ids]:
        """Name → token ids of ordinary text, and of trajectories once they are sampled."""
        if plan.sampled(self.state) is None:
            return self.text.streams
        return {**self.text.streams, **self._trajectories}

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

    def _written(self) -> dict[str, list[Trajectory]]:
        """Return stream → trajectories, sampled now."""
        config = self.state.submitted.config
        return replies.written(self._parent, self.text, self._beginnings, config)

    @cached_property
    def _trajectories(self) -> Mapping[str, Ids]:
        """Name → stream of trajectories, kept or sampled again."""
        event = plan.sampled(self.state)
        assert event is not None
        return kept.streams(event, self._cache, self._written)

    def carry_out(self, task: Any) -> Event:
        """Do the task and return its event; append nothing. Raises the errors of the work."""
        if not isinstance(task, Sample):
            return super().carry_out(task)
        event = kept.answered(task, self._cache, self._written)
        failpoints.hit("sampled-kept")
        return event

    # ---- measuring -----------------------------------------------------------------------------

    def _resident(self, recipe: Making) -> ResidentModel:
        """Return a model with a recipe's weights, on the run's device."""
        model = Model(self.settings, self.weights(recipe))
        return ResidentModel.from_module(modules.build(model, self.device))

    @cached_property
    def _parent(self) -> ResidentModel:
        """The given model."""
        return self._resident(plan.parent(self.state.started))

    @cached_property
    def _baked(self) -> ResidentModel:
        """A model whose weights are swapped."""
        return self._resident(plan.parent(self.state.started))

    def _loaded(self, task: Observe) -> ResidentModel:
        """Return the model to measure, ready."""
        recipe = next(one for one in self.recipes.values() if one.id == task.recipe_id)
        self._baked.load(self.weights(recipe))
        return self._baked

    def _observed(self, task: Observe) -> Observed:
        began, model = time.monotonic(), self._loaded(task)
        if task.measure == findings.DIVERGENCE:
            items, sizes = self._apart(model, task.on)
            return answered(task, items, sizes, began)
        items, sizes, data = {}, {}, self.held_out(task.on)
        contexts = self.state.submitted.config.contexts
        for domain in sorted(set(data) - set(contexts)):
            nll, _, _ = score_windows(model, data[domain].windows)
            items[domain], sizes[domain] = tuple(nll), tuple(data[domain].bytes)
        return answered(task, items, sizes, began)

    def _apart(
        self, model: ResidentModel, on: str
    ) -> tuple[dict[str, list[float]], dict[str, list[int]]]:
        """Return group → divergences of all replies, and their tokens."""
        items: dict[str, list[float]] = {}
        sizes: dict[str, list[int]] = {}
        names = (prompts.CHOOSING,) if on == CHOOSING else (prompts.TEST, prompts.TEST_OTHERS)
        for name in (name for name in names if name in self._trajectories):
            known = unpack(self._trajectories[name])
            apart = divergence.along(self._parent, model, known)
            for one, value in zip(known, apart, strict=True):
                other = f"{findings.OTHER}{one.prompt + 1}"
                group = other if name == prompts.TEST_OTHERS else findings.PROMPT
                items.setdefault(group, []).append(value)
                sizes.setdefault(group, []).append(len(one.reply))
        return items, sizes

    # ---- started -------------------------------------------------------------------------------

    def pinned(self, common: dict[str, Any]) -> Started:
        """Return `started` with what prompts and text have. Raises ConfigError, DataError."""
        config, positions = self.state.submitted.config, open_checkpoint(self.donor).positions
        tokens = submission.check_room(self._beginnings, config, positions)
        counts = replies.counts(self.text, config)
        submission.check_contexts(counts)
        return Started(**common, prompt_tokens=tokens, contexts=counts)

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
