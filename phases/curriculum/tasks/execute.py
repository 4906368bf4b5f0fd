"""The work of a curriculum run's tasks: pin model and items, train segments, measure."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

from evaluation.answers import Encoded, solved
from evaluation.given_model_runs.context import GivenContext
from evaluation.given_model_runs.training_plan import as_float32
from evaluation.observing import Observe, Observed, answered
from evaluation.training_text import kept_text
from evaluation.training_text.kept_text import ITEMS, Text
from phases.curriculum import mix, plan
from phases.curriculum.config import EVIDENCE
from phases.curriculum.events import CurriculumState, MixChosen, Started
from phases.curriculum.tasks import items
from weights import operations
from weights.making.events import Making
from weights.model import Model
from weights.training import modules
from weights.training.canary import canary
from weights.training.objectives.answers import ends
from weights.training.room import bounded


class Context(GivenContext[CurriculumState]):
    """The opened items and model of a curriculum run, and the work on its tasks."""

    @property
    def recipes(self) -> Mapping[str, Making]:
        """Name → recipe of all that the run makes, as far as mixes are chosen."""
        return plan.recipes(self.state)

    @property
    def going_on(self) -> Collection[str]:
        """Ids of the newest training of each arm: the next mix is not chosen yet."""
        if self.state.completed:
            return ()
        found = (plan.segments(self.state, arm) for arm in self.state.submitted.config.arms)
        # The one before it too: the newest begins with its optimiser until it has a snapshot.
        return {one.id for some in found for one in some[-2:]}

    @cached_property
    def text(self) -> Text:
        """The run's items: as pinned, or made by the settings."""
        submitted, started, supply = self.state.submitted, self.state.started, self._cache.supply
        fill = lambda folder: items.fill(folder, submitted.config, self.donor)  # noqa: E731
        if started is None:
            return kept_text.make(supply, fill)
        return kept_text.pinned(supply, started, False, fill)

    # ---- tasks ---------------------------------------------------------------------------------

    @cached_property
    def _module(self) -> Any:
        """A module of the models' architecture; its weights are those measured last."""
        return modules.build(self.initial(self.state.started), self.device).eval()

    @cached_property
    def _items(self) -> dict[str, Mapping[str, Sequence[Encoded]]]:
        return {}

    def _observed(self, task: Observe) -> Observed:
        began = time.monotonic()
        if task.on not in self._items:
            file = self.text.folder / ITEMS
            self._items[task.on] = items.read(file, self.text.tokenizer, task.on)
        recipe = next(one for one in self.recipes.values() if one.id == task.recipe_id)
        modules.fill(self._module, Model(self.settings, self.weights(recipe)))
        found = {
            name: tuple(map(float, solved(self._module, some)))
            for name, some in sorted(self._items[task.on].items())
        }
        return answered(
            task, found, {name: (1,) * len(some) for name, some in found.items()}, began
        )

    # ---- started -------------------------------------------------------------------------------

    def pinned(self, common: dict[str, Any]) -> Started:
        """Return `started` with the number of items. Raises ConfigError."""
        plan.check_length(self.state.submitted.config, common["context"])
        streams = self.text.streams.items()
        return Started(**common, pool={name: len(ends(ids)) for name, ids in sorted(streams)})

    def check_text(self, started: Started) -> None:
        """Raise SourceError or ConfigError for items that the model cannot be trained on."""
        items.check_items(self.state.submitted.config, self.text.tokenizer, started.context)

    def notes(self, started: Started) -> Sequence[str]:
        """Return a note on the cells with fewer items than are asked for."""
        wanted, few = self.state.submitted.config.pool, started.pool
        short = [f"{name} {count}" for name, count in few.items() if count < wanted]
        scarce = [
            name
            for name, some in items.read(
                self.text.folder / ITEMS, self.text.tokenizer, "selection"
            ).items()
            if len(some) < EVIDENCE
        ]
        notes = [f"of {', '.join(short)} there are no more items to train on."] if short else []
        if scarce:
            notes.append(f"{', '.join(scarce)} have too few items to be passed by.")
        return notes

    def canary(self, started: Started, first: Model) -> tuple[str, float]:
        """Return the digest of the first steps on all cells here, and the seconds that they took."""
        config = self.state.submitted.config
        shares, _ = mix.choose(config, "uniform", 0, {}, {})
        chosen = MixChosen(arm="uniform", segment=0, mix=shares)
        recipe = plan.segment(self.state.submitted, started, chosen, None)
        with bounded():
            return canary(recipe, first, self.text.streams, device=self.device)

    def initial(self, started: Started) -> Model:
        """Return the given model in float32."""
        return operations.apply(as_float32(started), {"of": self.given()})
