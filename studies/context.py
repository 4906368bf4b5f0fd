"""The opened text and model of a run that trains from one given model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from evaluation.data.packing import Packed
from evaluation.data.slices import Slice
from evaluation.training_text.kept_text import Text
from runs.errors import NotFiniteError
from runs.event_types import SourceRecord
from runs.home import segment_steps
from studies import text as given_text
from studies import training_defaults, training_plan
from studies.comparison import CHOOSING, TEST
from studies.making.making import MakingState
from studies.training_context import TrainingContext
from weights.folders import gguf_note
from weights.folders.checkpoint import Checkpoint, open_checkpoint
from weights.storage.inputs import recorded
from weights.tensors import Weights
from weights.training.canary import STEPS

S = TypeVar("S", bound=MakingState)


class GivenContext(TrainingContext[S]):
    """The opened text and model of a run, and the part of its start that all such kinds share."""

    # ---- what a kind says ------------------------------------------------------------------------

    @cached_property
    def sizes(self) -> Mapping[str, Any]:
        """Sizes in config.json in which the models differ from the given one."""
        return {}

    @cached_property
    def added(self) -> Sequence[str]:
        """Domains of built-in text beside the user's own."""
        return ()

    @property
    def unread(self) -> Sequence[str]:
        """Domains of the training text that no training reads as text."""
        return ()

    def window(self, opened: Checkpoint) -> int:
        """Return the tokens of a window of the opened model. Raises ConfigError for too many."""
        return training_plan.window(self.state.submitted.config, opened.positions)

    def pinned(self, common: dict[str, Any]) -> Any:
        """Return `started`: the fields that all kinds have, and the kind's own."""
        raise NotImplementedError

    # ---- what is opened when it is first used ----------------------------------------------------

    @cached_property
    def text(self) -> Text:
        """The run's text: as pinned, or made by the settings."""
        submitted, started, supply = self.state.submitted, self.state.started, self._cache.supply
        if started is None:
            return given_text.make(supply, submitted, self.donor, self.changes, self.added)
        donor, changes = lambda: self.donor, lambda: self.changes
        return given_text.pinned(supply, started, submitted, donor, changes, self.added)

    @property
    def changes(self) -> Mapping[str, Any]:
        """Settings of config.json in which the models differ from the given one in float32."""
        return {**self.sizes, **self.form}

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

    def held_out(self, on: str) -> dict[str, Packed]:
        """Return domain → the packed items of a slice: CHOOSING, or else TEST."""
        slice_: Slice = "selection" if on == CHOOSING else "test"
        return self.text.held_out(self.state.started.context, slice_)

    def check_text(self, started: Any) -> None:
        """Raise DataError if the text is too short to train or to measure on."""
        training_defaults.check_lengths(started)
        for on in (CHOOSING, TEST):
            self.text.held_out(started.context, on)

    def notes(self, started: Any) -> Sequence[str]:
        """Return what users are to know of the text before anything is trained."""
        return training_plan.readings(self.state.submitted, started, self.unread)

    # ---- started ---------------------------------------------------------------------------------

    def started(self) -> Any:
        """Prepare text and model; return the event that pins them.

        Raises DataError, SourceError, NotFiniteError, ConfigError, UnavailableError.
        """
        text, submitted = self.text, self.state.submitted
        config, model = submitted.config, submitted.model
        opened = open_checkpoint(self.donor, Path(model.path))
        common = {
            "warnings": (),
            "model": recorded(model, self.donor, opened),
            "streams": text.digests,
            "tokens": {domain: len(ids) for domain, ids in text.streams.items()},
            "files": text.files,
            "items": text.items,
            "profile": self.profile(),
            "canary": "0" * 64,
            "context": self.window(opened),
            "segment": 1,
        }
        _check_finite(model.name, self.given().weights)
        started = self.pinned(common)
        self.check_text(started)
        self._cache.supply.share_model(self.donor)
        started, canary, self.stepping = self._fitting(started)
        segment = min(config.steps_of(started.context), segment_steps(self.stepping / STEPS))
        parts = getattr(started, "accumulation", None) or config.accumulation
        divided = training_defaults.divided(config.batch, config.accumulation, parts)
        rounded = gguf_note.warnings(Path(model.path))
        notes = (*rounded, *text.notes, *divided, *self.notes(started))
        return started.model_copy(update={"canary": canary, "segment": segment, "warnings": notes})

    def _fitting(self, started: Any) -> tuple[Any, str, float]:
        """Return `started`, canary and seconds; if `started` has `accumulation`, it is found here."""
        config, start = self.state.submitted.config, self.initial(started)
        if hasattr(started, "accumulation"):
            return self.fitted(started, start, config.batch, config.accumulation)
        return (started, *self.canary(started, start))


def _check_finite(name: str, weights: Weights) -> None:
    """Raise NotFiniteError naming a tensor with NaN or Inf."""
    for tensor, values in weights.items():
        if values.is_floating_point() and not values.isfinite().all():
            raise NotFiniteError(
                f"tensor {tensor} of model {name} holds NaN or Inf: it cannot be trained."
            )
