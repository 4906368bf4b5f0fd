"""The work of a bitnet run's tasks: pin model and text, train, round, measure."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from evaluation.backends.local_backend import ResidentModel
from evaluation.data.packing import Packed
from evaluation.data.slices import Slice
from evaluation.machine_profile import machine_profile, unsuited
from evaluation.observing import Observe, Observed, answered
from evaluation.perplexity import score_windows
from evaluation.training_text.kept_text import Text
from events import Event
from phases.bitnet import findings, plan
from phases.bitnet.events import BitnetState, Started
from phases.bitnet.tasks import text
from runs.errors import NotFiniteError, SourceChangedError
from runs.event_types import Profile, SourceRecord
from runs.home import segment_seconds
from runs.kinds.tasks import Start
from weights import operations
from weights.devices import of_process
from weights.folders import companions
from weights.folders.checkpoint import digest, open_checkpoint
from weights.making.events import Making
from weights.making.maker import Maker, forget, snapshots
from weights.making.making import Make
from weights.model import Model
from weights.recipes import Transform
from weights.storage.inputs import recorded
from weights.storage.weight_cache import Artifacts
from weights.tensors import Weights
from weights.ternary import linears, packing
from weights.threads import set_threads
from weights.training import modules
from weights.training.canary import STEPS, canary
from weights.training.room import bounded
from weights.training.snapshots import Snapshots


class Context:
    """The opened text and model of a run, and the work on its tasks."""

    def __init__(self, state: BitnetState, cache: Artifacts) -> None:
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
    def donor(self) -> Path:
        """Folder of this machine's own copy of the given model."""
        started = self.state.started
        return self._cache.supply.model(
            self.state.submitted.model, started.model if started else None
        )

    def given(self) -> Model:
        """Return the given model as it is stored. Raises SourceError for other weights."""
        checkpoint = open_checkpoint(self.donor)
        weights, started = checkpoint.tensors(), self.state.started
        if started is not None and digest(weights) != started.model.digest:
            self._cache.supply.forget(self.donor)
            raise SourceChangedError(
                f"the weights of model {started.model.name} are not those that the run has pinned. Put "
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
        return Maker(
            self.state,
            self._cache,
            {recipe.id: recipe for recipe in plan.recipes(self.state).values()},
            lambda: self.settings,
            lambda: self.text.streams,
            _snapshots(started, self._cache),
            self.device,
            {started.model.recipe_id: self.given},
        )

    @cached_property
    def _residents(self) -> dict[bool, ResidentModel]:
        return {}

    def resident(self, int8: bool) -> ResidentModel:
        """Return the model object that takes the weights to measure; `int8`: with int8 activations."""
        if int8 not in self._residents:
            start = plan.recipes(self.state)[plan.START]
            module = modules.build(Model(self.settings, self.weights(start)), self.device).eval()
            if int8:
                linears.compute_packed(module, self.state.submitted.config.group, int8=True)
            self._residents[int8] = ResidentModel.from_module(module)
        return self._residents[int8]

    def held_out(self, on: Slice) -> dict[str, Packed]:
        """Return domain → the packed items of a slice."""
        return self.text.held_out(self.state.started.context, on)

    @property
    def device(self) -> str:
        """The run's device, as this process names it."""
        return of_process(self.state.submitted.config.device)

    def weights(self, recipe: Making) -> Weights:
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
        began, items, sizes = time.monotonic(), {}, {}
        recipes = plan.recipes(self.state).values()
        model = self.resident(task.measure == findings.INT8)
        model.load(self.weights(next(one for one in recipes if one.id == task.recipe_id)))
        data = self.held_out(findings.CHOOSING if task.on == findings.CHOOSING else findings.TEST)
        for domain in sorted(data):
            nll, _, _ = score_windows(model, data[domain].windows)
            items[domain], sizes[domain] = tuple(nll), tuple(data[domain].bytes)
        return answered(task, items, sizes, began)

    # ---- started -------------------------------------------------------------------------------

    def started(self) -> Started:
        """Prepare text and model; return the event that pins them.

        Raises DataError, SourceError, NotFiniteError, ConfigError, UnavailableError.
        """
        made, submitted = self.text, self.state.submitted
        config, checkpoint = submitted.config, open_checkpoint(self.donor)
        record = self._record()
        whole = Transform(operation="float32@1", inputs={"of": record.recipe_id})
        first = operations.apply(whole, {"of": self.given()})
        for name, tensor in first.weights.items():
            if not tensor.isfinite().all():
                raise NotFiniteError(
                    f"tensor {name} of model {record.name} holds NaN or Inf: it cannot be trained."
                )
        matrices = set(linears.of_config(first.config))
        ternary = sum(first.weights[name].numel() for name in matrices)
        started = Started(
            warnings=(),
            model=record,
            ternary=ternary,
            bytes=packing.bytes_of(first.weights),
            packed=packing.packed_bytes(first.weights, matrices, config.group),
            streams=made.digests,
            tokens={domain: len(ids) for domain, ids in made.streams.items()},
            files=made.files,
            items=made.items,
            profile=self.profile(),
            canary="0" * 64,
            context=plan.window(config, checkpoint.positions),
            segment=1,
        )
        findings.check_lengths(started)
        for on in (findings.CHOOSING, findings.TEST):
            made.held_out(started.context, on)  # raises if there is nothing to measure on
        self._cache.supply.share_model(self.donor)
        found, seconds = self.canary(started, first)
        steps = segment_seconds() * STEPS / seconds
        segment = min(plan.steps(config, started.context), max(1, round(steps)))
        notes = (*made.notes, *findings.readings(submitted, started))
        return started.model_copy(update={"canary": found, "segment": segment, "warnings": notes})

    def _record(self) -> SourceRecord:
        """Return the record of the given model. Raises SourceError if its weights changed."""
        given = self.state.submitted.model
        return recorded(given, self.donor, open_checkpoint(self.donor, Path(given.path)))

    def canary(self, started: Started, first: Model) -> tuple[str, float]:
        """Return the digest of the ternary training's first steps here, and the seconds they took."""
        start = plan.start(started).id
        recipe = plan.master(self.state.submitted, started, start, start)
        inputs = dict.fromkeys(recipe.inputs, first)
        with bounded():
            return canary(recipe, first, self.text.streams, inputs=inputs, device=self.device)

    def profile(self) -> Profile:
        """Return the profile of this process: all facts that can change the last bit of a number."""
        return machine_profile(self.device, self.state.submitted.config.precision, "sdpa")

    def check_unchanged(self) -> None:
        """Check text, profile and canary against `started`.

        Raises DataError for other text, UnavailableError for a process that computes other numbers.
        """
        started = self.state.started
        self.text.folder  # noqa: B018 - raises if it is another
        other = self.profile().unlike(started.profile)
        if not other:
            first = operations.apply(plan.start(started), {"of": self.given()})
            found, _ = self.canary(started, first)
            if found == started.canary:
                return
            other = [f"three steps of training give {found[:12]} here, not {started.canary[:12]}"]
        raise unsuited(other)


def _snapshots(started: Started, cache: Artifacts) -> Snapshots:
    return snapshots(cache, f"{started.profile.of_machine}|{started.canary}")


def tidy(state: BitnetState, cache: Artifacts) -> None:
    """Remove the snapshots of trainings that have ended and whose weights are kept."""
    for recipe in plan.trainings(state).values():
        made = state.made.get(recipe.id)
        if made is not None and cache.files(made.digest):
            forget(_snapshots(state.started, cache), recipe)


def opened(state: BitnetState, cache: Artifacts) -> Context:
    """Open a started run in this process, with its number of threads, and check it.

    Raises DataError or UnavailableError if other numbers would come out here.
    """
    set_threads(state.started.profile.threads)
    context = Context(state, cache)
    context.check_unchanged()
    return context
