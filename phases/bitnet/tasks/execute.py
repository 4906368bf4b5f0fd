"""The work of a bitnet run's tasks: pin model and text, train, round, measure."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from evaluation.backends.local_backend import ResidentModel
from evaluation.data.packing import Packed
from evaluation.data.slices import Slice
from evaluation.observing import Observe, Observed, answered
from evaluation.perplexity import score_windows
from evaluation.training_runs.training_context import TrainingContext
from evaluation.training_text.kept_text import Text
from phases.bitnet import findings, plan
from phases.bitnet.events import BitnetState, Started
from phases.bitnet.tasks import text
from runs.errors import NotFiniteError
from runs.event_types import SourceRecord
from runs.home import segment_seconds
from weights import operations
from weights.folders.checkpoint import open_checkpoint
from weights.making.maker import Maker
from weights.model import Model
from weights.recipes import Train, Transform
from weights.storage.inputs import recorded
from weights.ternary import linears, packing
from weights.training import modules
from weights.training.canary import STEPS, canary
from weights.training.room import bounded


class Context(TrainingContext[BitnetState]):
    """The opened text and model of a bitnet run, and the work on its tasks."""

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

    @property
    def record(self) -> SourceRecord:
        """The record of the given model in `started`."""
        return self.state.started.model

    @property
    def trainings(self) -> Mapping[str, Train]:
        """Name → recipe of every model that the run trains."""
        return plan.trainings(self.state)

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
            self.kept,
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

    # ---- tasks ---------------------------------------------------------------------------------

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

    def initial(self, started: Started) -> Model:
        """Return the given model in float32."""
        return operations.apply(plan.start(started), {"of": self.given()})
