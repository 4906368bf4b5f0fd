"""The work of a cognate run's tasks: prepare text, train, measure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from evaluation.backends.local_backend import ResidentModel
from evaluation.data.packing import Packed
from evaluation.machine_profile import machine_profile, unsuited
from evaluation.observing import Observe, Observed
from evaluation.training_text.kept_text import Text
from events import Event
from phases.cognate import findings, plan
from phases.cognate.events import CognateState, Started
from phases.cognate.tasks import measure, text
from runs.errors import SourceChangedError
from runs.event_types import Profile, SourceRecord
from runs.home import segment_seconds
from runs.kinds.tasks import Start
from weights import operations
from weights.devices import of_process
from weights.folders import companions
from weights.folders.checkpoint import digest, open_checkpoint
from weights.making.maker import Maker, forget, snapshots
from weights.making.making import Make
from weights.model import Model
from weights.recipes import Train, Transform
from weights.storage.inputs import recorded
from weights.storage.weight_cache import Artifacts
from weights.tensors import Weights
from weights.threads import set_threads
from weights.training import modules
from weights.training.canary import STEPS, canary
from weights.training.room import OutOfMemoryError, bounded
from weights.training.snapshots import Snapshots
from weights.training.team import Team


class Context:
    """The opened text of a run, and the work on its tasks."""

    def __init__(self, state: CognateState, cache: Artifacts) -> None:
        self.state = state
        self._cache = cache

    # ---- what is opened when it is first used --------------------------------------------------

    @cached_property
    def text(self) -> Text:
        """The run's text: as pinned, or made by the settings."""
        submitted, started, supply = self.state.submitted, self.state.started, self._cache.supply
        if started is None:
            return text.make(supply, submitted, self.donor)
        return text.pinned(supply, started, submitted, lambda: self.donor)

    @cached_property
    def donor(self) -> Path | None:
        """Folder of this machine's own copy of the base that was given; None if none was."""
        given, started = self.state.submitted.base, self.state.started
        if given is None:
            return None
        return self._cache.supply.model(given, started.base if started else None)

    def given(self) -> Model:
        """Return the base that was given, as it is stored. Raises SourceError for other weights."""
        assert self.donor is not None
        checkpoint = open_checkpoint(self.donor)
        weights, started = checkpoint.tensors(), self.state.started
        if started is not None and digest(weights) != started.base.digest:
            self._cache.supply.forget(self.donor)
            raise SourceChangedError(
                f"the weights of model {started.base.name} are not those that the run has pinned. Put "
                "the old files back, or start a new run."
            )
        head = checkpoint.config.get("tie_word_embeddings") and "lm_head.weight"
        return Model(checkpoint.config, {n: t for n, t in weights.items() if n != head})

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The config.json of all models."""
        return json.loads((self.text.folder / companions.CONFIG).read_text("utf-8"))

    @cached_property
    def maker(self) -> Maker:
        """The maker of the run's recipes."""
        started = self.state.started
        given = {started.base.recipe_id: self.given} if started.base else {}
        return Maker(
            self.state,
            self._cache,
            {id_: recipe for id_, (_, recipe) in plan.recipes(self.state).items()},
            lambda: self.settings,
            lambda: self.text.streams,
            _snapshots(started, self._cache),
            self.device,
            given,
            self._team,
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
        return self.text.held_out(self.state.started.context, findings.SLICE)

    @property
    def _team(self) -> Team:
        """The processes that share each training."""
        config = self.state.submitted.config
        return Team(config.processes, config.sharded)

    @property
    def device(self) -> str:
        """The run's device, as this process names it."""
        return of_process(self.state.submitted.config.device)

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
        """Prepare text and tokenizer; return the event that pins them.

        Raises PresetError, DataError, SourceError, UnavailableError.
        """
        made, submitted = self.text, self.state.submitted
        size, base = submitted.config.size, self._base_record()
        positions = open_checkpoint(self.donor).positions if self.donor else None
        started = Started(
            warnings=(),
            parameters=base.parameters if base else size.parameters,
            base=base,
            streams=made.digests,
            tokens={domain: len(ids) for domain, ids in made.streams.items()},
            files=made.files,
            items=made.items,
            profile=self.profile(),
            canary="0" * 64,
            context=plan.window(submitted.config, positions),
            segment=1,
        )
        findings.check_lengths(started)
        made.held_out(started.context, findings.SLICE)  # raises if there is nothing to measure on
        start = self.initial(started)
        if base is None:
            size.check(sum(t.numel() for t in start.weights.values()))
        else:
            assert self.donor is not None
            self._cache.supply.share_model(self.donor)
        started, found, seconds = self._fitting(started, start)
        tokens = [size.specialist_tokens] + ([] if base else [size.base_tokens])
        longest = max(plan.steps(size, started.context, count) for count in tokens)
        steps = segment_seconds() * STEPS / seconds
        segment = min(longest, max(1, round(steps)))
        notes = (*self._notes(started), *findings.readings(submitted, started))
        return started.model_copy(update={"canary": found, "segment": segment, "warnings": notes})

    def _base_record(self) -> SourceRecord | None:
        """Return the record of the base that was given. Raises SourceError if its weights changed."""
        given = self.state.submitted.base
        if given is None or self.donor is None:
            return None
        return recorded(given, self.donor, open_checkpoint(self.donor, Path(given.path)))

    def _notes(self, started: Started) -> tuple[str, ...]:
        """Return notes on how the user's files were read, and on a step in parts."""
        if started.accumulation == 1:
            return self.text.notes
        batch = self.state.submitted.config.size.batch
        return (
            *self.text.notes,
            f"a step's {batch} windows do not fit in memory at once: they are computed in "
            f"{started.accumulation} parts.",
        )

    def _fitting(self, started: Started, start: Model) -> tuple[Started, str, float]:
        """Return `started` with as few parts of a step as fit in memory, and canary and seconds.

        Raises OutOfMemoryError if not even one window fits.
        """
        config = self.state.submitted.config
        batch, parts = config.size.batch // config.processes, 1
        while True:
            divided = started.model_copy(update={"accumulation": parts})
            try:
                return (divided, *self.canary(divided, start))
            except OutOfMemoryError as error:
                if parts == batch:
                    raise OutOfMemoryError(
                        f"not even one window of {started.context} tokens fits in memory ({error}). "
                        "Set a smaller context, or train on a machine with more memory."
                    ) from error
                parts = next(n for n in range(parts + 1, batch + 1) if batch % n == 0)

    def canary(self, started: Started, start: Model) -> tuple[str, float]:
        """Return the digest of a training's first steps here, and the seconds that they took."""
        submitted = self.state.submitted
        recipe = plan.base(submitted, started)
        if not isinstance(recipe, Train):
            recipe = next(iter(plan.specialists(submitted, started).values()))
        with bounded():
            return canary(
                recipe,
                start,
                self.text.streams,
                device=self.device,
                team=self._team,
            )

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
        other = self.profile().unlike(started.profile)
        if not other:
            found, _ = self.canary(started, self.initial(started))
            if found == started.canary:
                return
            other = [f"three steps of training give {found[:12]} here, not {started.canary[:12]}"]
        raise unsuited(other)

    def initial(self, started: Started) -> Model:
        """Return the model that the base's training begins with, or the base that was given."""
        recipe = plan.initial(self.state.submitted, started)
        return operations.apply(recipe, {"of": self.given()} if started.base else {})


def _snapshots(started: Started, cache: Artifacts) -> Snapshots:
    return snapshots(cache, f"{started.profile.of_machine}|{started.canary}")


def tidy(state: CognateState, cache: Artifacts) -> None:
    """Remove the snapshots of trainings that have ended and whose weights are kept."""
    for recipe in plan.trainings(state).values():
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
