"""The work of a student run's tasks: pin model and text, draw weights, train, measure."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from evaluation.backends.local_backend import ResidentModel
from evaluation.measures.perplexity import score_windows
from phases.student import plan, sizes
from phases.student.events import Started, StudentState
from phases.student.submission import check_smaller
from studies.context import GivenContext
from studies.making.events import Making
from studies.observing import Observe, Observed, answered
from weights import operations
from weights.folders import companions
from weights.model import Model
from weights.operations.resized import parameters
from weights.training.canary import canary
from weights.training.models import modules
from weights.training.room import bounded


class Context(GivenContext[StudentState]):
    """The opened text and model of a student run, and the work on its tasks."""

    @property
    def recipes(self) -> Mapping[str, Making]:
        """Name → recipe of all that the run makes."""
        return plan.recipes(self.state)

    @cached_property
    def sizes(self) -> Mapping[str, Any]:
        """Settings of config.json in which the student differs from the given model."""
        given = json.loads((self.donor / companions.CONFIG).read_bytes())
        found = sizes.changes(given, self.state.submitted.config)
        return {name: list(v) if isinstance(v, tuple) else v for name, v in found.items()}

    # ---- tasks ---------------------------------------------------------------------------------

    @cached_property
    def _teacher(self) -> Model:
        """The given model with weights in float32."""
        given = self.given()
        return Model(given.config, {name: t.float() for name, t in given.weights.items()})

    @cached_property
    def _residents(self) -> dict[bool, ResidentModel]:
        return {}

    def _loaded(self, task: Observe) -> ResidentModel:
        """Return the model to measure, ready; one object serves all students."""
        teaches = task.recipe_id == self.record.recipe_id
        if teaches:
            model = self._teacher
        else:
            recipe = next(one for one in self.recipes.values() if one.id == task.recipe_id)
            model = Model(self.settings, self.weights(recipe))
        if teaches not in self._residents:
            module = modules.build(model, self.device).eval()
            self._residents[teaches] = ResidentModel.from_module(module)
        self._residents[teaches].load(model.weights)
        return self._residents[teaches]

    def _observed(self, task: Observe) -> Observed:
        began, items, found = time.monotonic(), {}, {}
        model, data = self._loaded(task), self.held_out(task.on)
        for domain in sorted(data):
            nll, _, _ = score_windows(model, data[domain].windows)
            items[domain], found[domain] = tuple(nll), tuple(data[domain].bytes)
        return answered(task, items, found, began)

    # ---- started -------------------------------------------------------------------------------

    def pinned(self, common: dict[str, Any]) -> Started:
        """Return `started` with the student's sizes. Raises ConfigError, SourceError."""
        own = parameters(self.settings)
        check_smaller(own, common["model"].parameters)
        return Started(**common, sizes=dict(self.sizes), parameters=own)

    def canary(self, started: Started, first: Model) -> tuple[str, float]:
        """Return the digest of the distilled student's first steps here, and the seconds they took."""
        recipe = plan.distilled(self.state.submitted, started)
        inputs = {role: self.given() for role in recipe.inputs}
        with bounded():
            return canary(recipe, first, self.text.streams, inputs=inputs, device=self.device)

    def initial(self, started: Started) -> Model:
        """Return the student with new weights."""
        recipe = plan.fresh(self.state.submitted, started)
        return operations.apply(recipe, {"of": self.given()})
