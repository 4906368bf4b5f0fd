"""The work of a cognate run's tasks: prepare text, train, measure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from evaluation.backends.local_backend import ResidentModel
from evaluation.data.packing import Packed
from evaluation.training_text import kept_text
from evaluation.training_text.kept_text import Text
from phases.cognate import figures, measure, recipes, text
from phases.cognate.events import Started
from phases.cognate.recipes import BASE
from runs import kinds
from runs.event_types import SourceRecord
from runs.home import segment_steps
from studies import training_defaults
from studies.making.events import Making
from studies.making.making import MakingState
from studies.observing import Items, Observe, Observed
from studies.run import Run
from studies.submission import trainable
from studies.training_context import TrainingContext
from weights import operations
from weights.folders import gguf_note
from weights.folders.checkpoint import open_checkpoint
from weights.model import Model
from weights.recipes import Train
from weights.storage.inputs import recorded
from weights.training.canary import STEPS, canary
from weights.training.models import modules
from weights.training.room import bounded
from weights.training.team import Team


class Context(TrainingContext[MakingState]):
    """The opened text of a cognate run, and the work on its tasks."""

    # ---- what is opened when it is first used --------------------------------------------------

    @cached_property
    def text(self) -> Text:
        """The run's text: as pinned, or made by the settings."""
        submitted, started, supply = self.state.submitted, self.state.started, self._cache.supply
        fill = lambda folder: text.fill(folder, submitted, self.donor, self.form)  # noqa: E731
        if started is None:
            return kept_text.make(supply, fill)
        return kept_text.pinned(supply, started, bool(submitted.data), fill)

    @cached_property
    def donor(self) -> Path | None:
        """Folder of this machine's own copy of the base that was given; None if none was."""
        base, started = self.state.submitted.base, self.state.started
        if base is None:
            return None
        return self._cache.supply.model(base, started.base if started else None)

    @property
    def record(self) -> SourceRecord | None:
        """The record of the given base in `started`; None if none was given."""
        return self.state.started.base

    @property
    def run(self) -> Run:
        """The run with all that its script has said."""
        kind: Any = kinds.of(self.state.kind)
        return kind.run(self.state)

    @property
    def recipes(self) -> Mapping[str, Making]:
        """Name → recipe of all that the run makes."""
        return self.run.recipes

    @property
    def trainings(self) -> Mapping[str, Train]:
        """Role → recipe of every training to its last step."""
        return self.run.known[figures.TRAININGS]

    @property
    def team(self) -> Team:
        """The processes that share each training."""
        config = self.state.submitted.config
        return Team(config.processes, config.sharded)

    @cached_property
    def resident(self) -> ResidentModel:
        """The model object that takes the weights to measure."""
        base = self.weights(self.recipes[BASE])
        module = modules.build(Model(self.settings, base), self.device)
        return ResidentModel.from_module(module.eval())

    @cached_property
    def held_out(self) -> dict[str, Packed]:
        """Domain → the packed items to measure on."""
        return self.text.held_out(self.state.started.context, figures.SLICE)

    # ---- tasks ---------------------------------------------------------------------------------

    def _observed(self, task: Observe) -> Observed:
        models = {role: self.recipes[role] for role in self.run.arms}
        base = models.pop(BASE)
        task_recipe = next(
            recipe for recipe in (base, *models.values()) if recipe.id == task.recipe_id
        )
        weights = self.weights(task_recipe)
        if task.measure == figures.QUALITY:
            return measure.quality(task, self.resident, weights, self.held_out)
        if task.measure == figures.LINE:
            ends = {0.0: base.id, 1.0: task.recipe_id}
            return measure.line(
                task, self.resident, self.weights(base), weights, self.held_out, self._known(ends)
            )
        specialists = {role: self.weights(recipe) for role, recipe in models.items()}
        return measure.geometry(task, weights, specialists)

    def _known(self, ends: Mapping[float, str]) -> dict[float, Items]:
        """Return place → −log p of every window by domain, of the recipes whose quality is known."""
        tasks = {place: Observe(id_, figures.QUALITY, figures.SLICE) for place, id_ in ends.items()}
        events = {place: self.state.answers.get(task.key) for place, task in tasks.items()}
        return {
            place: event.items for place, event in events.items() if isinstance(event, Observed)
        }

    # ---- started -------------------------------------------------------------------------------

    def started(self) -> Started:
        """Prepare text and tokenizer; return the event that pins them.

        Raises PresetError, DataError, SourceError, UnavailableError.
        """
        prepared_text, submitted = self.text, self.state.submitted
        size, base = submitted.config.size, self._base_record()
        positions = open_checkpoint(self.donor).positions if self.donor else None
        started = Started(
            warnings=(),
            parameters=base.parameters if base else size.parameters,
            trainable=trainable(submitted.config, self.settings),
            base=base,
            streams=prepared_text.digests,
            tokens={domain: len(ids) for domain, ids in prepared_text.streams.items()},
            files=prepared_text.files,
            items=prepared_text.items,
            profile=self.profile(),
            canary="0" * 64,
            context=recipes.window(submitted.config, positions),
            dtype=self.dtype,
            segment=1,
        )
        training_defaults.check_lengths(started)
        prepared_text.held_out(
            started.context, figures.SLICE
        )  # raises if there is nothing to measure on
        start = self.initial(started)
        if base is None:
            size.check(sum(t.numel() for t in start.weights.values()))
        else:
            assert self.donor is not None
            self._cache.supply.share_model(self.donor)
        config = submitted.config
        rows = size.batch // config.processes
        started, digest, self.stepping = self.fitted(started, start, rows, started.accumulation)
        tokens = [size.specialist_tokens] + ([] if base else [size.base_tokens])
        longest = max(recipes.steps(size, started.context, count) for count in tokens)
        segment = min(longest, segment_steps(self.stepping / STEPS))
        parts = training_defaults.divided(size.batch, 1, started.accumulation)
        rounded = gguf_note.warnings(Path(submitted.base.path)) if submitted.base else ()
        notes = (*rounded, *self.text.notes, *parts, *figures.readings(submitted, started))
        return started.model_copy(update={"canary": digest, "segment": segment, "warnings": notes})

    def _base_record(self) -> SourceRecord | None:
        """Return the record of the base that was given. Raises SourceError if its weights changed."""
        base = self.state.submitted.base
        if base is None or self.donor is None:
            return None
        return recorded(base, self.donor, open_checkpoint(self.donor, Path(base.path)))

    def canary(self, started: Started, start: Model) -> tuple[str, float]:
        """Return the digest of a training's first steps here, and the seconds that they took."""
        every = recipes.unaveraged(self.state.submitted, started).values()
        recipe = next(candidate for candidate in every if isinstance(candidate, Train))
        with bounded():
            return canary(recipe, start, self.text.streams, device=self.device, team=self.team)

    def initial(self, started: Started) -> Model:
        """Return the model that the base's training begins with, or the base that was given."""
        recipe = recipes.initial(self.state.submitted, started)
        return operations.apply(recipe, {"of": self.given()} if started.base else {})
