"""The work of a bitnet run's tasks: pin model and text, train, round, measure."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from evaluation.backends.local_backend import ResidentModel
from evaluation.measures.perplexity import score_windows
from phases.bitnet import findings, plan
from phases.bitnet.events import BitnetState, Started
from studies.context import GivenContext
from studies.making.events import Making
from studies.observing import Observe, Observed, answered
from studies.training_plan import as_float32
from weights import operations
from weights.model import Model
from weights.recipes import Transform
from weights.ternary import linears, packing
from weights.training.canary import canary
from weights.training.models import modules
from weights.training.room import bounded


class Context(GivenContext[BitnetState]):
    """The opened text and model of a bitnet run, and the work on its tasks."""

    @property
    def recipes(self) -> Mapping[str, Making]:
        """Name → recipe of all that the run makes."""
        return plan.recipes(self.state)

    @cached_property
    def _residents(self) -> dict[bool, ResidentModel]:
        return {}

    def resident(self, int8: bool) -> ResidentModel:
        """Return the model object that takes the weights to measure; `int8`: with int8 activations."""
        if int8 not in self._residents:
            start = self.recipes[plan.START]
            module = modules.build(Model(self.settings, self.weights(start)), self.device).eval()
            if int8:
                linears.compute_packed(module, self.state.submitted.config.group, int8=True)
            self._residents[int8] = ResidentModel.from_module(module)
        return self._residents[int8]

    # ---- tasks ---------------------------------------------------------------------------------

    def _observed(self, task: Observe) -> Observed:
        began, items, sizes = time.monotonic(), {}, {}
        model = self.resident(task.measure == findings.INT8)
        model.load(
            self.weights(next(one for one in self.recipes.values() if one.id == task.recipe_id))
        )
        data = self.held_out(task.on)
        for domain in sorted(data):
            nll, _, _ = score_windows(model, data[domain].windows)
            items[domain], sizes[domain] = tuple(nll), tuple(data[domain].bytes)
        return answered(task, items, sizes, began)

    # ---- started -------------------------------------------------------------------------------

    def pinned(self, common: dict[str, Any]) -> Started:
        """Return `started` with the sizes of the ternary model. Raises SourceError."""
        whole = Transform(operation="float32@1", inputs={"of": common["model"].recipe_id})
        first = operations.apply(whole, {"of": self.given()})
        matrices = set(linears.of_config(first.config))
        return Started(
            **common,
            ternary=sum(first.weights[name].numel() for name in matrices),
            bytes=packing.bytes_of(first.weights),
            packed=packing.packed_bytes(first.weights, matrices, self.state.submitted.config.group),
        )

    def canary(self, started: Started, first: Model) -> tuple[str, float]:
        """Return the digest of the ternary training's first steps here, and the seconds they took."""
        start = as_float32(started).id
        recipe = plan.master(self.state.submitted, started, start, start)
        inputs = dict.fromkeys(recipe.inputs, first)
        with bounded():
            return canary(recipe, first, self.text.streams, inputs=inputs, device=self.device)

    def initial(self, started: Started) -> Model:
        """Return the given model in float32."""
        return operations.apply(as_float32(started), {"of": self.given()})
