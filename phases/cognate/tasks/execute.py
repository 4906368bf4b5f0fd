"""The work of a cognate run's tasks: prepare text, train, measure."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from evaluation.backends.local_backend import ResidentModel
from evaluation.data.packing import Packed
from evaluation.machine_profile import machine_profile
from evaluation.observing import Observe, Observed
from events import Event
from phases.cognate import findings, plan
from phases.cognate.events import CognateState, Started
from phases.cognate.tasks import measure, text
from phases.cognate.tasks.text import Text
from runs.errors import UnavailableError
from runs.event_types import Profile
from runs.home import segment_seconds
from runs.kinds.tasks import Start
from weights import companions, operations
from weights.making.maker import Maker, forget, snapshots
from weights.making.making import Make
from weights.model import Model
from weights.recipes import Train, Transform
from weights.storage.weight_cache import Artifacts
from weights.tensors import Weights
from weights.threads import set_threads
from weights.training import modules
from weights.training.canary import STEPS, canary
from weights.training.snapshots import Snapshots


class Context:
    """The opened text of a run, and the work on its tasks."""

    def __init__(self, state: CognateState, cache: Artifacts) -> None:
        self.state = state
        self._cache = cache

    # ---- what is opened when it is first used --------------------------------------------------

    @cached_property
    def text(self) -> Text:
        """The run's text: as pinned, or made by the settings."""
        config, supply = self.state.submitted.config, self._cache.supply
        if self.state.started is None:
            return text.make(supply, config)
        return text.pinned(supply, self.state.started, config)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The config.json of all models."""
        return json.loads((self.text.folder / companions.CONFIG).read_text("utf-8"))

    @cached_property
    def maker(self) -> Maker:
        """The maker of the run's recipes."""
        started, config = self.state.started, self.state.submitted.config
        recipes = [plan.initial(config), *plan.models(self.state).values()]
        return Maker(
            self.state,
            self._cache,
            {recipe.id: recipe for recipe in recipes},
            lambda: self.settings,
            lambda: self.text.streams,
            _snapshots(started, self._cache),
            self.device,
        )

    @cached_property
    def resident(self) -> ResidentModel:
        """The model object that takes the weights to measure."""
        base = plan.models(self.state)[plan.BASE]
        module = modules.build(Model(self.settings, self.weights(base)), self.device)
        return ResidentModel.from_module(module.eval())

    @cached_property
    def held_out(self) -> dict[str, Packed]:
        """Domain → the packed items to measure on."""
        return self.text.held_out(self.state.submitted.config.size.context, findings.SLICE)

    @property
    def device(self) -> str:
        """The run's device; in a worker's process, the one GPU that it sees."""
        given: str = self.state.submitted.config.device
        own = os.environ.get("FORGE_DEVICE") or given
        return own if own.partition(":")[0] == given.partition(":")[0] else given

    def weights(self, recipe: Train | Transform) -> Weights:
        """Return the weights of one of the run's recipes, cached or made again."""
        return self.maker.weights(recipe)

    # ---- tasks ---------------------------------------------------------------------------------

    def share(self, task: Any, tasks: Sequence[Any]) -> Sequence[Any]:
        """Return the task alone: trainings and measurements have no work in common."""
        return [task]

    def prepare(self, tasks: Sequence[Any]) -> None:
        """Do nothing."""

    def carry_out(self, task: Any) -> Event:
        """Do the task and return its event; append nothing. Raises the errors of the work."""
        if isinstance(task, Start):
            return self.started()
        if isinstance(task, Make):
            return self.maker.make(task)
        assert isinstance(task, Observe)
        return self._observed(task)

    def _observed(self, task: Observe) -> Observed:
        models = plan.models(self.state)
        base = models[plan.BASE]
        weights = self.weights(next(m for m in models.values() if m.id == task.recipe_id))
        if task.measure == findings.QUALITY:
            return measure.quality(task, self.resident, weights, self.held_out)
        if task.measure == findings.LINE:
            return measure.line(task, self.resident, self.weights(base), weights, self.held_out)
        others = {role: self.weights(m) for role, m in models.items() if role != plan.BASE}
        return measure.geometry(task, weights, others)

    # ---- started -------------------------------------------------------------------------------

    def started(self) -> Started:
        """Prepare text and tokenizer; return the event that pins them. Raises PresetError."""
        made, size = self.text, self.state.submitted.config.size
        start = operations.apply(plan.initial(self.state.submitted.config), {})
        started = Started(
            warnings=(),
            parameters=sum(t.numel() for t in start.weights.values()),
            streams=made.digests,
            tokens={domain: len(ids) for domain, ids in made.streams.items()},
            files=made.files,
            items=made.items,
            profile=self.profile(),
            canary="0" * 64,
            segment=1,
        )
        size.check(started.parameters)
        found, seconds = self._canary(started, start)
        longest = max(
            plan.steps(size, tokens) for tokens in (size.base_tokens, size.specialist_tokens)
        )
        steps = segment_seconds() * STEPS / seconds
        segment = min(longest, max(1, round(steps)))
        return started.model_copy(update={"canary": found, "segment": segment})

    def _canary(self, started: Started, start: Model) -> tuple[str, float]:
        """Return the digest of the base's first steps here, and the seconds that they took."""
        recipe = plan.base(self.state.submitted.config, started)
        began = time.monotonic()
        found = canary(recipe, start, self.text.streams, device=self.device)
        return found, time.monotonic() - began

    def profile(self) -> Profile:
        """Return the profile of this process: all facts that can change the last bit of a number."""
        precision = self.state.submitted.config.precision
        return machine_profile(self.device, precision, "sdpa")

    def check_unchanged(self) -> None:
        """Check text, profile and canary against `started`.

        Raises DataError for other text, UnavailableError for a process that computes other numbers.
        """
        started = self.state.started
        self.text.folder  # noqa: B018 - raises if it is another
        mine, theirs = self.profile().model_dump(), started.profile.model_dump()
        other = [
            f"{k} is {mine[k] or 'not set'}, not {v}" for k, v in theirs.items() if mine[k] != v
        ]
        if not other:
            found, _ = self._canary(started, self._initial())
            if found == started.canary:
                return
            other = [f"three steps of training give {found[:12]} here, not {started.canary[:12]}"]
        raise UnavailableError(
            "this process does not match the profile that the run is pinned to: "
            f"{'; '.join(other)}. Resume it where it was started (FORGE_THREADS sets the number of "
            "threads)."
        )

    def _initial(self) -> Model:
        return operations.apply(plan.initial(self.state.submitted.config), {})


def _snapshots(started: Started, cache: Artifacts) -> Snapshots:
    return snapshots(cache, f"{started.profile.of_machine}|{started.canary}")


def tidy(state: CognateState, cache: Artifacts) -> None:
    """Remove the snapshots of trainings that have ended and whose weights are kept."""
    for recipe in plan.models(state).values():
        made = state.made.get(recipe.id)
        if made is not None and cache.files(made.digest):
            forget(_snapshots(state.started, cache), recipe)


def opened(state: CognateState, cache: Artifacts) -> Context:
    """Open a started run in this process, with its number of threads, and check it.

    Raises DataError or UnavailableError if other numbers would come out here.
    """
    set_threads(state.started.profile.threads)
    context = Context(state, cache)
    context.check_unchanged()
    return context
