"""The opened text and models of a run that trains, and its work that is the same for all kinds."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from evaluation.machine_profile import machine_profile, unsuited
from evaluation.task_context import TaskContext
from evaluation.training_text.kept_text import Text
from events import Event
from runs.errors import UnreproducedError
from runs.event_types import HalfPrecision, Profile, SourceRecord
from runs.kinds.tasks import Start
from runs.system import freed_memory
from runs.system.stopwatch import PATIENCE
from studies import given_dtype
from studies.making.events import Making
from studies.making.maker import Maker, forget, snapshots
from studies.making.making import Make, MakingState
from studies.making.resuming import under
from studies.making.shared_snapshots import SharedSnapshots
from studies.observing import Observe, Observed
from weights.folders import companions
from weights.folders.checkpoint import half_precision, open_checkpoint
from weights.model import Model
from weights.recipes import Train
from weights.tensors import Weights
from weights.training.room import OutOfMemoryError, kept_below
from weights.training.snapshots import Snapshots
from weights.training.team import Team
from weights.training.windows import Ids

S = TypeVar("S", bound=MakingState)


class TrainingContext(TaskContext[S]):
    """The opened text and models of a run that trains."""

    # ---- what a kind says ----------------------------------------------------------------------

    @cached_property
    def text(self) -> Text:
        """The run's text: as pinned, or made by the settings."""
        raise NotImplementedError

    @cached_property
    def donor(self) -> Path | None:
        """Folder of this machine's own copy of the model that was given; None if none was."""
        raise NotImplementedError

    @property
    def record(self) -> SourceRecord | None:
        """The record of the given model in `started`."""
        raise NotImplementedError

    @property
    def recipes(self) -> Mapping[str, Making]:
        """Name → recipe of all that a started run makes."""
        raise NotImplementedError

    @property
    def further(self) -> Mapping[str, Callable[[], Model]]:
        """Recipe id → further models that a started run was given."""
        return {}

    @property
    def team(self) -> Team:
        """The processes that share each training: this one."""
        return Team()

    def started(self) -> Any:
        """Return the event that pins the run's inputs."""
        raise NotImplementedError

    def _observed(self, task: Observe) -> Observed:
        raise NotImplementedError

    def initial(self, started: Any) -> Model:
        """Return the model that the first training begins with."""
        raise NotImplementedError

    def canary(self, started: Any, first: Model) -> tuple[str, float]:
        """Return the digest of a training's first steps here, and the seconds that they took."""
        raise NotImplementedError

    # ---- what is the same for all ----------------------------------------------------------------

    #: Seconds of the canary at the start, if this process made the start.
    stepping = 0.0

    def step_seconds(self) -> float:
        """Return the seconds of the canary's steps: the start's own or, if short, the less of two."""
        if self.stepping > PATIENCE:
            return self.stepping
        again = self.canary(self.state.started, self.initial(self.state.started))[1]
        return min(self.stepping or again, again)

    @property
    def trainings(self) -> Mapping[str, Train]:
        """Name → recipe of every model that the run trains."""
        return given_dtype.trainings(self.recipes)

    @property
    def streams(self) -> Mapping[str, Ids]:
        """Name → token ids of all that trainings read."""
        return self.text.streams

    @property
    def names(self) -> Mapping[str, str]:
        """Recipe id → name of what the run makes."""
        return {recipe.id: name for name, recipe in self.recipes.items()}

    @property
    def maker(self) -> Maker:
        """The maker of the run's recipes that are known now."""
        sources = {self.record.recipe_id: self.given} if self.record else {}
        return Maker(
            self.state,
            self._cache,
            {recipe.id: recipe for recipe in self.recipes.values()},
            lambda: self.settings,
            lambda: self.streams,
            self.kept,
            self.device,
            {**sources, **self.further},
            self.team,
            self.names,
            self.unlike,
        )

    def given(self) -> Model:
        """Return the given model as it is stored. Raises SourceChangedError for other weights."""
        assert self.donor is not None
        pinned = None if self.state.started is None else self.record
        return self._cache.supply.checked(self.donor, pinned)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The config.json of all models."""
        return json.loads((self.text.folder / companions.CONFIG).read_text("utf-8"))

    @cached_property
    def dtype(self) -> HalfPrecision | None:
        """Half precision of the given model, which results are rounded to; None: they are float32."""
        started = self.state.started
        if started is not None:
            return started.dtype
        return None if self.donor is None else half_precision(open_checkpoint(self.donor))

    @property
    def form(self) -> Mapping[str, Any]:
        """Settings of config.json that say in which dtype results are, if that is not float32."""
        return {} if self.dtype is None else {"dtype": self.dtype}

    def fitted(self, started: Any, start: Model, rows: int, parts: int) -> tuple[Any, str, float]:
        """Return `started` with as few parts of a step as fit in memory, and canary and seconds.

        A step has `rows` windows in each process, and at least `parts` parts. On a processor a part of
        several windows keeps at most `room.KEPT_BYTES` for its gradients. Raises OutOfMemoryError if
        not even one window fits.
        """
        last = ""
        for count in (n for n in range(parts, rows + 1) if rows % n == 0):
            divided = started.model_copy(update={"accumulation": count})
            small = self.device == "cpu" and count < rows
            try:
                with kept_below() if small else nullcontext():
                    return (divided, *self.canary(divided, start))
            except OutOfMemoryError as error:
                last = str(error)  # the error itself holds all that the attempt had in memory
            gc.collect()
            freed_memory.give_back()
        raise OutOfMemoryError(
            f"not even one window of {started.context} tokens fits in memory ({last}). Set a smaller "
            "context, or train on a machine with more memory."
        )

    @property
    def kept(self) -> Snapshots:
        """The snapshots of the run's trainings: those of its profile and canary."""
        return snapshots(self._cache, under(self.state.started))

    def weights(self, recipe: Making) -> Weights:
        """Return the weights of one of the run's recipes, cached or made again."""
        return self.maker.weights(recipe)

    @property
    def going_on(self) -> Collection[str]:
        """Ids of trainings whose optimiser a later one may carry on: none."""
        return ()

    def tidy(self) -> None:
        """Remove the snapshots of trainings that have ended and whose weights are kept.

        From this machine if it keeps the weights, from the shared store if that does.
        """
        ended: dict[str, list[str]] = {}
        for recipe in self.trainings.values():
            record = self.state.made.get(recipe.id)
            if record is None or recipe.id in self.going_on:
                continue
            events = self.state.advanced.get(recipe.stem, {}).values()
            ended[record.digest] = [event.recipe_id for event in events]
            if self._cache.files(record.digest):
                forget(self.kept, recipe)
        if ended:
            SharedSnapshots(self._cache.vault, self.kept).settle(ended)

    def carry_out(self, task: Any) -> Event:
        """Do the task and return its event; append nothing. Raises the errors of the work."""
        if isinstance(task, Start):
            return self.started()
        if isinstance(task, Make):
            event: Event = self.maker.make(task)
        else:
            assert isinstance(task, Observe)
            event = self._observed(task)
        freed_memory.give_back()
        return event

    def profile(self) -> Profile:
        """Return the profile of this process: all facts that can change the last bit of a number."""
        return machine_profile(self.device, self.state.submitted.config.precision, "sdpa")

    def unlike(self) -> list[str]:
        """Return how this process differs from the run's profile; [] if it does not."""
        return self.profile().unlike(self.state.started.profile)

    def check_unchanged(self) -> None:
        """Check text, profile and canary against `started`.

        Raises DataError for other text, UnavailableError for another profile, UnreproducedError for
        another canary under the same profile.
        """
        started = self.state.started
        self.text.folder  # noqa: B018 - raises if it is another
        if other := self.unlike():
            raise unsuited(other)
        canary, _ = self.canary(started, self.initial(started))
        if canary != started.canary:
            raise UnreproducedError(
                f"three steps of training give {canary[:12]} here, not {started.canary[:12]}, and "
                "nothing of the profile differs. Resume the run where it was started."
            )
