"""The work of a cognate run's tasks: prepare text, train, measure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from evaluation.backends.local_backend import ResidentModel
from evaluation.data.packing import Packed
from evaluation.training_text.kept_text import Text
from phases.cognate import findings, plan
from phases.cognate.events import CognateState, Started
from phases.cognate.tasks import measure, text
from runs.event_types import SourceRecord
from runs.home import segment_steps
from studies import training_defaults
from studies.making.maker import Maker
from studies.observing import Items, Observe, Observed
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


class Context(TrainingContext[CognateState]):
    """The opened text of a cognate run, and the work on its tasks."""

    # ---- what is opened when it is first used --------------------------------------------------

    @cached_property
    def text(self) -> Text:
        """The run's text: as pinned, or made by the settings."""
        submitted, started, supply = self.state.submitted, self.state.started, self._cache.supply
        if started is None:
            return text.make(supply, submitted, self.donor, self.form)
        return text.pinned(supply, started, submitted, lambda: self.donor, self.form)

    @cached_property
    def donor(self) -> Path | None:
        """Folder of this machine's own copy of the base that was given; None if none was."""
        given, started = self.state.submitted.base, self.state.started
        if given is None:
            return None
        return self._cache.supply.model(given, started.base if started else None)

    @property
    def record(self) -> SourceRecord | None:
        """The record of the given base in `started`; None if none was given."""
        return self.state.started.base

    @property
    def trainings(self) -> Mapping[str, Train]:
        """Role → recipe of every model that the run trains."""
        return plan.trainings(self.state)

    @cached_property
    def maker(self) -> Maker:
        """The maker of the run's recipes."""
        started = self.state.started
        given = {started.base.recipe_id: self.given} if started.base else {}
        known = plan.recipes(self.state)
        return Maker(
            self.state,
            self._cache,
            {id_: recipe for id_, (_, recipe) in known.items()},
            lambda: self.settings,
            lambda: self.text.streams,
            self.kept,
            self.device,
            given,
            self._team,
            {id_: role for id_, (role, _) in known.items()},
            self.unlike,
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

    # ---- tasks ---------------------------------------------------------------------------------

    def _observed(self, task: Observe) -> Observed:
        models = plan.models(self.state)
        base = models[plan.BASE]
        weights = self.weights(next(m for m in models.values() if m.id == task.recipe_id))
        if task.measure == findings.QUALITY:
            return measure.quality(task, self.resident, weights, self.held_out)
        if task.measure == findings.LINE:
            ends = {0.0: base.id, 1.0: task.recipe_id}
            return measure.line(
                task, self.resident, self.weights(base), weights, self.held_out, self._known(ends)
            )
        others = {role: self.weights(m) for role, m in models.items() if role != plan.BASE}
        return measure.geometry(task, weights, others)

    def _known(self, ends: Mapping[float, str]) -> dict[float, Items]:
        """Return place → −log p of every window by domain, of the recipes whose quality is known."""
        asked = {
            place: Observe(id_, findings.QUALITY, findings.SLICE) for place, id_ in ends.items()
        }
        events = {place: self.state.answers.get(task.key) for place, task in asked.items()}
        return {place: one.items for place, one in events.items() if isinstance(one, Observed)}

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
            trainable=trainable(submitted.config, self.settings),
            base=base,
            streams=made.digests,
            tokens={domain: len(ids) for domain, ids in made.streams.items()},
            files=made.files,
            items=made.items,
            profile=self.profile(),
            canary="0" * 64,
            context=plan.window(submitted.config, positions),
            dtype=self.dtype,
            segment=1,
        )
        training_defaults.check_lengths(started)
        made.held_out(started.context, findings.SLICE)  # raises if there is nothing to measure on
        start = self.initial(started)
        if base is None:
            size.check(sum(t.numel() for t in start.weights.values()))
        else:
            assert self.donor is not None
            self._cache.supply.share_model(self.donor)
        config = submitted.config
        rows = size.batch // config.processes
        started, found, seconds = self.fitted(started, start, rows, started.accumulation)
        tokens = [size.specialist_tokens] + ([] if base else [size.base_tokens])
        longest = max(plan.steps(size, started.context, count) for count in tokens)
        segment = min(longest, segment_steps(seconds / STEPS))
        parts = training_defaults.divided(size.batch, 1, started.accumulation)
        rounded = gguf_note.warnings(Path(submitted.base.path)) if submitted.base else ()
        notes = (*rounded, *self.text.notes, *parts, *findings.readings(submitted, started))
        return started.model_copy(update={"canary": found, "segment": segment, "warnings": notes})

    def _base_record(self) -> SourceRecord | None:
        """Return the record of the base that was given. Raises SourceError if its weights changed."""
        given = self.state.submitted.base
        if given is None or self.donor is None:
            return None
        return recorded(given, self.donor, open_checkpoint(self.donor, Path(given.path)))

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

    def initial(self, started: Started) -> Model:
        """Return the model that the base's training begins with, or the base that was given."""
        recipe = plan.initial(self.state.submitted, started)
        return operations.apply(recipe, {"of": self.given()} if started.base else {})
