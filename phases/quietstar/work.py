"""The work of a quietstar run: find hard tokens, measure on them, and write the model that thinks.

OUT/thoughts/model.safetensors     the model that learned to think, as an ordinary folder, in any case
OUT/thoughts/thoughts.safetensors  the vectors around a thought and the mixing head, float32
OUT/thoughts/thoughts.json         the tokens of a thought, and the temperature
OUT/thoughts/modeling_thoughts.py  what loads both together, with torch and transformers alone
"""

from __future__ import annotations

import json
import math
import time
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from typing_extensions import override

from agent_forge.events import Event
from agent_forge.phases.quietstar import recipes, scoring
from agent_forge.phases.quietstar.figures import PAUSED, PLAIN
from agent_forge.phases.quietstar.recipes import (
    PURPOSE,
    SILENT,
    THOUGHTS,
    Freeze,
    HardTokensFrozen,
    Started,
    frozen,
)
from agent_forge.phases.quietstar.scoring import Documents, Scores, Thinking
from agent_forge.runs.errors import DataError, NotFiniteError
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.decide import Task
from agent_forge.runs.system.durations import least
from agent_forge.studies import work
from agent_forge.studies.events import Observe, Observed, answered
from agent_forge.studies.study_view import Plain
from agent_forge.studies.training_plan import as_float32
from agent_forge.studies.work import publish_model
from agent_forge.weights import operations, pieces
from agent_forge.weights.folders.checkpoint import Checkpoint
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.thoughts import modeling_thoughts, parts
from agent_forge.weights.training.models import modules, thinking

#: Folder of the model that thinks.
THINKER = "thoughts"
#: Documents of a domain by which a forecast measures what reading them takes.
DOCUMENTS = 4


class Context(work.Context):
    """The opened text and model of a quietstar run, and the work on its tasks."""

    @override
    def window(self, opened: Checkpoint) -> int:
        return recipes.window(self.state.submitted.config, opened.positions)

    # ---- tasks ---------------------------------------------------------------------------------

    @override
    def carry_out(self, task: Task) -> Event:
        return self._frozen(task) if isinstance(task, Freeze) else super().carry_out(task)

    @cached_property
    def _documents(self) -> dict[str, dict[str, Documents]]:
        return {}

    def documents(self, on: str) -> dict[str, Documents]:
        """Return domain → the windows of each document of a slice. Raises DataError without text."""
        if on not in self._documents:
            config = self.state.submitted.config
            texts = [text for text in self.text.texts if text.slice == on]
            if not texts:
                raise DataError(f"there is no text in the slice {on}. Give more text.")
            self._documents[on] = scoring.held_out(
                texts,
                self.text.tokenizer,
                self.state.started.context,
                config.document_tokens,
                config.measured_tokens,
            )
        return self._documents[on]

    def thinking(self, on: str, domain: str) -> Thinking:
        """Return the settings of a domain's thoughts; all arms share their random draws."""
        config = self.state.submitted.config
        key = (PURPOSE, config.seed, on, domain)
        return Thinking(config.thought_lengths[-1], config.temperature, config.greedy, key)

    def _scores(self, recipe_id: str, measure: str, on: str) -> dict[str, Scores]:
        """Return domain → a model's losses by token on a slice. Raises NotFiniteError."""
        recipe = next(candidate for candidate in self.recipes.values() if candidate.id == recipe_id)
        model = Tensors(self.settings, self.weights(recipe))
        build = modules.build if measure == PLAIN else thinking.build
        module = build(model, self.device).eval()
        scores: dict[str, Scores] = {}
        for domain, documents in self.documents(on).items():
            how = self.thinking(on, domain)
            with pieces.divided():
                scores[domain] = scoring.score(module, measure, documents, how)
            if not all(map(math.isfinite, (losses.sum() for losses in scores[domain].losses))):
                raise NotFiniteError(f"model {recipe_id[:12]} gives NaN or Inf for {domain}.")
        return scores

    @override
    def measurement_seconds(self, measure: str, on: str, is_given: bool) -> float:
        first = self.initial(self.state.started)
        if measure == PLAIN:
            module = modules.build(first, self.device).eval()
        else:
            thoughtful = self._thoughtful(self.state.started, first, pause=measure == PAUSED)
            module = thinking.build(thoughtful, self.device).eval()
        seconds = 0.0
        for domain, documents in self.documents(on).items():
            part, how = documents[:DOCUMENTS], self.thinking(on, domain)
            share = _tokens(documents) / _tokens(part)
            seconds += least(partial(scoring.score, module, measure, part, how)) * share
        return seconds

    def _frozen(self, task: Freeze) -> HardTokensFrozen:
        began = time.monotonic()
        scores = self._scores(task.recipe_id, PLAIN, task.on)
        share = self.state.submitted.config.hard
        hard = {d: recipes.worst(domain_scores.losses, share) for d, domain_scores in scores.items()}
        return HardTokensFrozen(
            recipe_id=task.recipe_id,
            on=task.on,
            tokens={domain: places for domain, (places, _) in hard.items()},
            sizes={
                domain: tuple(map(len, domain_scores.losses))
                for domain, domain_scores in scores.items()
            },
            thresholds={domain: least for domain, (_, least) in hard.items()},
            seconds=time.monotonic() - began,
        )

    @override
    def _observed(self, task: Observe) -> Observed:
        pinned = frozen(self.state, task.on)
        assert pinned is not None
        self.documents(task.on)  # before the time is taken: arms are compared by it
        began = time.monotonic()
        scores = self._scores(task.recipe_id, task.measure, task.on)
        items, sizes = scoring.parts(scores, pinned.tokens)
        return answered(task, items, sizes, began)

    # ---- started -------------------------------------------------------------------------------

    @override
    def pinned(self, common: Plain) -> Started:
        """Return `started`. Raises SourceError; ConfigError if one pass cannot compute thoughts."""
        started = Started(**common, dtype=self.dtype)
        thinking.check_heeds(thinking.build(self._thoughtful(started, self.initial(started))))
        return started

    def _thoughtful(self, started: Started, first: Tensors, pause: bool = False) -> Tensors:
        """Return the model `first` with a new part for thoughts, or for pauses."""
        recipe = recipes.initial(self.state.submitted, as_float32(started).id, pause)
        return operations.apply(recipe, {"of": first})

    @override
    def canary(self, started: Started, first: Tensors) -> tuple[str, float]:
        start = as_float32(started).id
        recipe = recipes.thinking(self.state.submitted, started, start, start, False)
        inputs = dict.fromkeys(recipe.inputs, first)
        begun = self._thoughtful(started, first)
        return self.tried(recipe, begun, inputs)

    initial = work.Context.in_float32


def _tokens(documents: Documents) -> int:
    return sum(len(window) for document in documents for window in document)


def write_thinker(study: Any, home: Home, state: Any, out: Path) -> str:
    """Write the model that thinks into a folder in `out`; return the path of that folder."""
    context, run, place = Context.opened(state, Artifacts.of(home)), study.run(state), out / THINKER
    config = state.submitted.config
    settings = {"length": config.thought_lengths[-1], "temperature": config.temperature}

    def add_part(folder: Path) -> None:
        from safetensors.torch import save_file

        part = parts.split(context.weights(context.recipes[THOUGHTS]))[1]
        save_file({n: t.contiguous() for n, t in part.items()}, folder / modeling_thoughts.TENSORS)
        (folder / modeling_thoughts.SETTINGS).write_text(json.dumps(settings) + "\n", "utf-8")
        (folder / parts.MODELING.name).write_bytes(parts.MODELING.read_bytes())

    card = study.prose.card(run, THINKER)
    publish_model(context, place, SILENT, state.head, card, add_part)
    return str(place)
