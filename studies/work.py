"""The work of a study's tasks: pin model and text, make, measure; a study is asked for its own part."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from evaluation.backends.local_backend import ResidentModel
from evaluation.measures.perplexity import score_windows
from runs import kinds
from runs.event_types import HalfPrecision
from studies.context import GivenContext
from studies.declaration import Declaration
from studies.making.events import Making
from studies.observing import Observe, Observed, answered
from weights import operations
from weights.folders import companions
from weights.model import Model
from weights.recipes import Train, Transform
from weights.training.canary import canary
from weights.training.models import modules
from weights.training.room import bounded


class Context(GivenContext[Any]):
    """The opened text and model of a run, and the work on its tasks."""

    @property
    def study(self) -> Declaration:
        """The kind of run."""
        kind = kinds.of(self.state.kind)
        assert isinstance(kind, Declaration)
        return kind

    @property
    def recipes(self) -> Mapping[str, Making]:
        """Name → recipe of all that the run makes, as far as it is known."""
        return self.study.run(self.state).recipes

    @cached_property
    def dtype(self) -> HalfPrecision | None:
        """Half precision of the given model, which results are rounded to; None: they are float32."""
        event_class = self.study.state.registry.types()["started"]
        return super().dtype if "dtype" in event_class.model_fields else None

    @cached_property
    def sizes(self) -> Mapping[str, Any]:
        """Settings of config.json in which the models differ from the given one."""
        settings = json.loads((self.donor / companions.CONFIG).read_bytes())
        return self.study.sizes(settings, self.state.submitted.config)

    # ---- tasks ---------------------------------------------------------------------------------

    @cached_property
    def _residents(self) -> dict[tuple[bool, str], ResidentModel]:
        return {}

    def model(self, recipe_id: str) -> Model:
        """Return a model of the run, or the given one in float32."""
        if recipe_id == self.record.recipe_id:
            source = self.given()
            return Model(source.config, {name: t.float() for name, t in source.weights.items()})
        recipe = next(candidate for candidate in self.recipes.values() if candidate.id == recipe_id)
        return Model(self.settings, self.weights(recipe))

    def loaded(self, model: Model, measure: str, is_given: bool = False) -> ResidentModel:
        """Return a model, ready to be measured; all but the given one share an object."""
        shape = is_given, measure
        if shape not in self._residents:
            module = modules.build(model, self.device).eval()
            module = self.study.fitted_module(self, module, measure)
            self._residents[shape] = ResidentModel.from_module(module)
        self._residents[shape].load(model.weights)
        return self._residents[shape]

    def _observed(self, task: Observe) -> Observed:
        began, items, sizes = time.monotonic(), {}, {}
        is_given = task.recipe_id == self.record.recipe_id
        model = self.loaded(self.model(task.recipe_id), task.measure, is_given)
        data = self.held_out(task.on)
        for domain in sorted(data):
            nll, _, _ = score_windows(model, data[domain].windows)
            items[domain], sizes[domain] = tuple(nll), tuple(data[domain].bytes)
        return answered(task, items, sizes, began)

    # ---- started -------------------------------------------------------------------------------

    def pinned(self, common: dict[str, Any]) -> Any:
        """Return `started` with the study's own pins. Raises ConfigError, SourceError."""
        started = self.study.state.registry.types()["started"]
        return started(**common, **self.study.pinned_fields(self, common))

    def _slowest(self, started: Any) -> tuple[Train, Mapping[str, Making]]:
        """Return the training that recognises a machine, and id → recipe of what it may read."""
        models = self.study.models_of(self.state.submitted, started)
        training = self.study.slowest_of(models)
        assert training is not None, "a study that pins by a canary names its slowest training"
        return training, {recipe.id: recipe for recipe in models.values()}

    def canary(self, started: Any, first: Model) -> tuple[str, float]:
        """Return the digest of the slowest training's first steps here, and the seconds they took."""
        recipe, models = self._slowest(started)
        inputs = {
            role: first if id_ == recipe.start else self._input(id_, models)
            for role, id_ in recipe.inputs.items()
        }
        with bounded():
            return canary(recipe, first, self.text.streams, inputs=inputs, device=self.device)

    def initial(self, started: Any) -> Model:
        """Return the model that the slowest training begins with."""
        recipe, models = self._slowest(started)
        return self._applied(models[recipe.start], models)

    def _applied(self, recipe: Making, models: Mapping[str, Making]) -> Model:
        """Return the model of a recipe that no training precedes."""
        assert isinstance(recipe, Transform)
        inputs = {role: self._input(id_, models) for role, id_ in recipe.inputs.items()}
        return operations.apply(recipe, inputs)

    def _input(self, recipe_id: str, models: Mapping[str, Making]) -> Model:
        """Return the model of a recipe that no training precedes, or else the given one."""
        return self._applied(models[recipe_id], models) if recipe_id in models else self.given()
