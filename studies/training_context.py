"""The opened text and models of a run that trains, and the work that is the same for all such kinds.

The text of a training from a given model is cut by that model's tokenizer. It is the pinned text, or
made by the settings. `submitted` has `config` (`TextConfig`) and `data`. `sizes` are settings of
config.json in which the models of the run differ from the given one; `added` are domains of built-in
text beside the user's.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch
from typing_extensions import override

from agent_forge.evaluation.autotune import has_bfloat16, machine_profile, unsuited
from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data import training_texts
from agent_forge.evaluation.data.builtin import corpus as builtin_corpus
from agent_forge.evaluation.data.packing import ItemPack
from agent_forge.evaluation.data.slices import Slice
from agent_forge.evaluation.kept_items import TaskContext
from agent_forge.evaluation.training_text import kept_text
from agent_forge.evaluation.training_text.kept_text import TextFolder
from agent_forge.events import Event
from agent_forge.events.envelope import Plain
from agent_forge.runs.errors import NotFiniteError, UnreproducedError
from agent_forge.runs.event_types import HalfPrecision, Profile, SourceRecord
from agent_forge.runs.home import segment_steps
from agent_forge.runs.kinds.decide import Start
from agent_forge.runs.record.events import Started
from agent_forge.runs.system import process_limits
from agent_forge.runs.system.durations import PATIENCE
from agent_forge.studies import given_dtype, training_plan
from agent_forge.studies.comparison import CHOOSING, TEST
from agent_forge.studies.events import GivenStarted, GivenSubmitted, Observe, Observed, TextStarted
from agent_forge.studies.making.maker import Maker, forget, snapshots
from agent_forge.studies.making.making import MakeTask, Making, MakingState
from agent_forge.studies.making.shared_snapshots import SharedSnapshots, under
from agent_forge.studies.settings import MIX
from agent_forge.weights import pieces
from agent_forge.weights.folders import companions, gguf_note
from agent_forge.weights.folders.checkpoint import Checkpoint, half_precision, open_checkpoint
from agent_forge.weights.recipes import Train
from agent_forge.weights.storage.inputs import recorded
from agent_forge.weights.tensors import Tensors, Weights
from agent_forge.weights.training.canary import STEPS
from agent_forge.weights.training.room import OutOfMemoryError, kept_below
from agent_forge.weights.training.snapshots import Snapshots
from agent_forge.weights.training.team import Team
from agent_forge.weights.training.windows import Ids

S = TypeVar("S", bound=MakingState)
Pinned = TypeVar("Pinned", bound=TextStarted)


class TrainingContext(TaskContext[S]):
    """The opened text and models of a run that trains."""

    # ---- what a kind says ----------------------------------------------------------------------

    @cached_property
    def text(self) -> TextFolder:
        """The run's text: as pinned, or made by the settings."""
        submitted, started, supply = self.state.submitted, self.state.started, self._cache.supply
        if started is None:
            return kept_text.make(supply, self.write_text)
        return kept_text.pinned(supply, started, bool(submitted.data), self.write_text)

    def write_text(self, folder: Path) -> Sequence[str]:
        """Write the text made by the settings; return notes on how the user's files were read."""
        raise NotImplementedError

    @cached_property
    def donor(self) -> Path | None:
        """Folder of this machine's own copy of the model that was given; None if none was."""
        raise NotImplementedError

    @property
    def record(self) -> SourceRecord | None:
        """The record of the given model in `started`; None if no model was given."""
        raise NotImplementedError

    @property
    def recipes(self) -> Mapping[str, Making]:
        """Name → recipe of all that a started run makes."""
        raise NotImplementedError

    @property
    def further(self) -> Mapping[str, Callable[[], Tensors]]:
        """Recipe id → function that opens a further model that a started run was given: none."""
        return {}

    @property
    def team(self) -> Team:
        """The processes that share each training: this one."""
        return Team()

    def _observed(self, task: Observe) -> Observed:
        raise NotImplementedError

    def initial(self, started: Any) -> Tensors:
        """Return the model that the first training begins with."""
        raise NotImplementedError

    def canary(self, started: Any, first: Tensors) -> tuple[str, float]:
        """Return (digest after a training's first steps here, the seconds that they took)."""
        raise NotImplementedError

    # ---- what is the same for all ----------------------------------------------------------------

    @cached_property
    def _residents(self) -> dict[tuple[bool, str], ResidentModel]:
        """(Is it the given model, measure) → module to measure with."""
        return {}

    #: Seconds of the canary at the start, if this process made the start.
    stepping = 0.0

    def step_seconds(self) -> float:
        """Return the seconds of the canary's steps: the start's or, if short, the less of two times."""
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

    def given(self) -> Tensors:
        """Return the given model as it is stored. Raises SourceChangedError for other weights."""
        assert self.donor is not None
        pinned = None if self.state.started is None else self.record
        return self._cache.supply.checked(self.donor, pinned)

    @cached_property
    def settings(self) -> Plain:
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
    def form(self) -> Mapping[str, object]:
        """Settings of config.json that say in which dtype results are, if that is not float32."""
        return {} if self.dtype is None else {"dtype": self.dtype}

    def fitted(
        self, started: Pinned, start: Tensors, rows: int, parts: int
    ) -> tuple[Pinned, str, float]:
        """Return (`started` with the fewest parts of a step that fit in memory, canary, its seconds).

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
            process_limits.give_back()
        raise OutOfMemoryError(
            f"not even one window of {started.context} tokens fits in memory ({last}). Set a smaller "
            "context, or train on a machine with more memory."
        )

    @property
    def kept(self) -> Snapshots:
        """The `Snapshots` of the cache under the run's profile and canary."""
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

        This machine and the shared store each drop the snapshots of weights that they have.
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

    def carry_out(self, task: object) -> Event:
        """Do the task and return its event; append nothing. Raises the errors of the work."""
        if isinstance(task, Start):
            return self.started()
        if isinstance(task, MakeTask):
            if isinstance(task.recipe, Train):  # it needs the memory of what measures
                self._residents.clear()
                models = (ResidentModel, torch.nn.Module)
                for name in [n for n, value in vars(self).items() if isinstance(value, models)]:
                    delattr(self, name)
            event: Event = self.maker.make(task)
        else:
            assert isinstance(task, Observe)
            event = self._observed(task)
        process_limits.give_back()
        return event

    @property
    def parameters(self) -> int:
        """The number of parameters of the model that trainings begin with."""
        return sum(tensor.numel() for tensor in self.given().weights.values())

    @override
    def profile(self) -> Profile:
        setting, started = self.state.submitted.config.precision, self.state.started
        if setting == "auto":
            half = has_bfloat16(torch.device(self.device)) and (
                started.profile.dtype == "bfloat16"
                if started is not None
                else self.parameters >= training_plan.BFLOAT16_FROM and not self.team.sharded
            )
            setting = "bfloat16" if half else "float32"
        return machine_profile(self.device, setting, "sdpa")

    def unlike(self) -> list[str]:
        """Return a line for each field of the profile that differs in this process; [] if none does."""
        return self.profile().unlike(self.state.started.profile)

    @override
    def check_unchanged(self) -> None:
        """Raise an error if text, profile or canary is not the one that `started` has.

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


class GivenContext(TrainingContext[S]):
    """The opened text and model of a run, and the part of its start that all such kinds share."""

    # ---- what a kind says ------------------------------------------------------------------------

    @cached_property
    def sizes(self) -> Mapping[str, object]:
        """Sizes in config.json in which the models differ from the given one; by default none."""
        return {}

    @cached_property
    def added(self) -> Sequence[str]:
        """Domains of built-in text beside the user's own; by default none."""
        return ()

    @property
    def unread(self) -> Sequence[str]:
        """Domains of the training text that no training reads as text; by default none."""
        return ()

    def window(self, opened: Checkpoint) -> int:
        """Return the number of tokens of a window. Raises ConfigError if the model takes fewer."""
        return training_plan.window(self.state.submitted.config, opened.positions)

    def pinned(self, common: Plain) -> GivenStarted:
        """Return the event `started` of the kind: with the `common` fields and the kind's own."""
        raise NotImplementedError

    # ---- what is opened when it is first used ----------------------------------------------------

    @override
    def write_text(self, folder: Path) -> Sequence[str]:
        return fill(folder, self.state.submitted, self.donor, self.changes, self.added)

    @property
    def changes(self) -> Mapping[str, object]:
        """Settings of config.json in which the models differ from the given one in float32."""
        return {**self.sizes, **self.form}

    @cached_property
    @override
    def donor(self) -> Path:
        started = self.state.started
        return self._cache.supply.model(self.state.submitted.model, started.model if started else None)

    @property
    @override
    def record(self) -> SourceRecord:
        return self.state.started.model

    def held_out(self, on: str) -> dict[str, ItemPack]:
        """Return domain → the packed items of a slice: CHOOSING, or else TEST."""
        slice_: Slice = "selection" if on == CHOOSING else "test"
        return self.text.held_out(self.state.started.context, slice_)

    def check_text(self, started: TextStarted) -> None:
        """Raise DataError if the text is too short to train or to measure on."""
        training_plan.check_lengths(started)
        for on in (CHOOSING, TEST):
            self.text.held_out(started.context, on)

    def notes(self, started: TextStarted) -> Sequence[str]:
        """Return sentences for users about the text, before anything is trained; may be empty."""
        return training_plan.readings(self.state.submitted, started, self.unread)

    # ---- started ---------------------------------------------------------------------------------

    @override
    def started(self) -> Started:
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
        divided = training_plan.divided(config.batch, config.accumulation, parts)
        rounded = gguf_note.warnings(Path(model.path))
        notes = (*rounded, *text.notes, *divided, *self.notes(started))
        return started.model_copy(update={"canary": canary, "segment": segment, "warnings": notes})

    def _fitting(self, started: GivenStarted) -> tuple[GivenStarted, str, float]:
        """Return (`started`, canary, its seconds); `accumulation`, if a field, is determined here."""
        config = self.state.submitted.config
        with pieces.divided():
            start = self.initial(started)
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


def fill(
    folder: Path,
    submitted: GivenSubmitted,
    donor: Path,
    sizes: Mapping[str, object],
    added: Sequence[str] = (),
) -> Sequence[str]:
    """Write streams, items, tokenizer, configuration to `folder`; return notes on the files read."""
    config, notes = submitted.config, ()
    if submitted.data:
        texts = training_texts.read(submitted.data)
        documents = builtin_corpus.corpus(config.seed, config.characters, added) if added else {}
        notes, rows = texts.notes, [*kept_text.rows(texts.documents, texts.others)]
        rows += builtin_corpus.items(documents, config.seed) if added else []
        every = {**texts.documents, **documents}
        training = {domain: split["train"] for domain, split in every.items()}
        if config.mix:
            training = {domain: training[domain] for domain in config.mix}
    else:
        documents = builtin_corpus.corpus(config.seed, config.characters, config.domains)
        rows = builtin_corpus.items(documents, config.seed)
        mix = config.mix or MIX
        training = kept_text.builtin(documents, config.seed, config.characters, mix)
        training = {domain: training[domain] for domain in mix}
    kept_text.write_given(folder, donor, sizes)
    kept_text.write(folder, kept_text.given_tokenizer(donor), training, rows)
    return notes
