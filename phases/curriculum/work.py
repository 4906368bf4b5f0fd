"""The work of a curriculum run's tasks: pin model and items, train segments, measure, dream."""

from __future__ import annotations

import time
from collections import ChainMap
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

from transformers import PreTrainedModel
from typing_extensions import override

from agent_forge.evaluation.answers import EncodedItem, solved
from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data.slices import Slice
from agent_forge.evaluation.sandbox.sandbox import Sandbox
from agent_forge.evaluation.training_text.kept_text import ITEMS
from agent_forge.evaluation.trajectories.kept import LazyStreams
from agent_forge.events import Event, failpoints
from agent_forge.phases.curriculum import items, recipes, tools
from agent_forge.phases.curriculum.mixing import mix
from agent_forge.phases.curriculum.recipes import Dream, Dreamed, MixChosen, Started
from agent_forge.phases.curriculum.settings import EVIDENCE
from agent_forge.runs.errors import DataError
from agent_forge.runs.kinds.decide import Task
from agent_forge.runs.system.durations import least, timed
from agent_forge.studies import work
from agent_forge.studies.comparison import CHOOSING
from agent_forge.studies.events import Observe, Observed, answered
from agent_forge.studies.study_view import Plain
from agent_forge.tools.tasks.episodes import Speech
from agent_forge.weights import pieces
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training.models import modules
from agent_forge.weights.training.objectives.answers import ends
from agent_forge.weights.training.windows import Ids


class Context(work.Context):
    """The opened items and model of a curriculum run, and the work on its tasks."""

    @property
    @override
    def going_on(self) -> Collection[str]:
        """Ids of the newest training of each arm, and of that before it: the next begins with one.

        The newest begins with the optimiser of the one before it until it has a snapshot; and after a
        burst the next may go back to it.
        """
        if self.state.completed:
            return ()
        run: Any = self.study.run(self.state)
        newest = (course.segments[-2:] for course in run.courses.values())
        return {id_ for pair in newest for training in pair for id_ in (training.id, training.start)}

    @property
    @override
    def streams(self) -> Mapping[str, Ids]:
        """Name → token ids of items to train on, and of dreams once they are dreamt."""
        dreamt = [event for event in self.state.answers.values() if isinstance(event, Dreamed)]
        if not dreamt:
            return self.text.streams
        return ChainMap(dict(self.text.streams), cast(Any, self._dreams(dreamt)))

    def _dreams(self, dreamt: Sequence[Dreamed]) -> LazyStreams:
        """Return name → stream of dreams, each read or dreamt again when it is used."""

        def source(event: Dreamed) -> Callable[[], Mapping[str, Ids]]:
            task = Dream(event.recipe_id, tuple(sorted(event.cells)))

            def read() -> dict[str, Ids]:
                cells = items.kept(event, self._cache, lambda: self._written(task))
                return {recipes.stream(cell, event.recipe_id): ids for cell, ids in cells.items()}

            return read

        return LazyStreams({name: source(event) for event in dreamt for name in recipes.streams(event)})

    def _written(self, task: Dream, divided: bool = False) -> dict[str, tuple[Ids, int]]:
        """Return cell → stream of dreams, and how many are right, dreamt now."""
        self._filled(task.recipe_id)
        model = ResidentModel.from_module(self._module)
        with pieces.divided() if divided else pieces.undivided():
            return items.written(model, self.text.tokenizer, self.state.submitted.config, task)

    @override
    def write_text(self, folder: Path) -> Sequence[str]:
        return items.fill(folder, self.state.submitted.config, self.donor, self.form)

    # ---- tasks ---------------------------------------------------------------------------------

    @override
    def carry_out(self, task: Task) -> Event:
        if not isinstance(task, Dream):
            return super().carry_out(task)
        event = items.answered(task, self._cache, lambda: self._written(task, divided=True))
        failpoints.hit("dreamed-kept")
        return event

    def _filled(self, recipe_id: str) -> PreTrainedModel:
        """Return the module, after loading the weights of a recipe id into it."""
        modules.fill(self._module, self.model(recipe_id))
        return self._module

    @cached_property
    def _module(self) -> PreTrainedModel:
        """A module of the models' architecture; its weights are those measured last."""
        return modules.build(self.initial(self.state.started), self.device).eval()

    @cached_property
    def _items(self) -> dict[str, Mapping[str, Sequence[EncodedItem]]]:
        return {}

    def _items_on(self, on: str) -> Mapping[str, Sequence[EncodedItem]]:
        """Return cell → the items of a slice as token ids."""
        if on not in self._items:
            file = self.text.folder / ITEMS
            self._items[on] = items.read(file, self.text.tokenizer, on)
        return self._items[on]

    @override
    def measurement_seconds(self, measure: str, on: str, is_given: bool) -> float:
        modules.fill(self._module, self.initial(self.state.started))
        seconds = 0.0
        for encoded in self._items_on(on).values():
            part = encoded[: work.PART]
            seconds += least(partial(solved, self._module, part)) * len(encoded) / max(1, len(part))
        if cells := self._tool_items(on):
            name, (first, *_) = max(cells.items())
            model, single = ResidentModel.from_module(self._module), {name: [first]}
            playing = timed(lambda: tools.solved(model, self._speech, single, lambda: self._sandbox))
            seconds += playing * sum(map(len, cells.values()))
        return seconds

    @override
    def _observed(self, task: Observe) -> Observed:
        began = time.monotonic()
        module = self._filled(task.recipe_id)
        encoded_items, cells = self._items_on(task.on), self._tool_items(task.on)
        speech = self._speech
        with pieces.divided():
            scores = {
                name: tuple(map(float, solved(module, encoded)))
                for name, encoded in encoded_items.items()
            }
            if cells:
                model = ResidentModel.from_module(module)
                scores |= tools.solved(model, speech, cells, lambda: self._sandbox)
        scores = dict(sorted(scores.items()))
        sizes = {name: (1,) * len(values) for name, values in scores.items()}
        return answered(task, scores, sizes, began)

    # ---- tools ---------------------------------------------------------------------------------

    @cached_property
    def _speech(self) -> Speech:
        return tools.speech_of(self.state.submitted.config, self.text.tokenizer)

    @cached_property
    def _tool_sets(self) -> dict[str, tools.Cells]:
        return {}

    @cached_property
    def _sandbox(self) -> Sandbox:
        return Sandbox.open()

    def _tool_items(self, on: str) -> tools.Cells:
        """Return cell → tasks that use tools, of the slice "selection" or "test"."""
        if on not in self._tool_sets:
            slice_: Slice = "selection" if on == CHOOSING else "test"
            self._tool_sets[on] = tools.held_out(self.state.submitted.config, slice_)
        return self._tool_sets[on]

    @override
    def check_unchanged(self) -> None:
        """Raise if items, tool tasks, profile or canary differ from those of `started`.

        Raises DataError for other items, UnavailableError for a process that computes other numbers.
        """
        if tools.digest(self.state.submitted.config) != self.state.started.tool_items:
            raise DataError(
                "the tool tasks that are made here are not those that the run has pinned. Go on with "
                "the version that started it, or start a new run."
            )
        super().check_unchanged()

    # ---- started -------------------------------------------------------------------------------

    @override
    def pinned(self, common: Plain) -> Started:
        config = self.state.submitted.config
        recipes.check_length(config, common["context"])
        streams = self.text.streams
        pool = {name: len(ends(streams[name])) for name, _, _ in items.of_cells(config)}
        return Started(**common, pool=pool, tool_items=tools.digest(config), dtype=self.dtype)

    @override
    def check_text(self, started: Started) -> None:
        """Raise SourceError or ConfigError if the model cannot be trained on the items."""
        items.check_items(self.state.submitted.config, self.text.tokenizer, started.context)

    @override
    def notes(self, started: Started) -> Sequence[str]:
        """Return warnings: one of cells with too few training items, one of scarce held-out ones."""
        pool = self.state.submitted.config.pool
        cells = ((*name.split("/"), count) for name, count in started.pool.items() if count < pool)
        short = [f"{count:,} of {family} at level {level}" for family, level, count in cells]
        plain = items.read(self.text.folder / ITEMS, self.text.tokenizer, "selection")
        held = {**plain, **self._tool_items(CHOOSING)}
        scarce = [name for name, tasks in held.items() if len(tasks) < EVIDENCE]
        few = ", ".join(short).replace(" of ", " items of ", 1)
        notes = [f"there are only {few} to train on; {pool:,} were asked for."] if short else []
        if scarce:
            notes.append(f"{', '.join(scarce)} have too few items to be passed by.")
        return notes

    @override
    def canary(self, started: Started, first: Tensors) -> tuple[str, float]:
        config = self.state.submitted.config
        shares, _ = mix.choose(config, "uniform", 0, {}, {})
        chosen = MixChosen(arm="uniform", segment=0, mix=mix.with_text(config, shares))
        recipe = recipes.segment(self.state.submitted, started, chosen, None)
        return self.tried(recipe, first)

    initial = work.Context.in_float32
