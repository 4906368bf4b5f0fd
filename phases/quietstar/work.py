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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import Module
from typing_extensions import override

from agent_forge.evaluation.data.items import Text
from agent_forge.evaluation.data.packing import Ids, documents
from agent_forge.events import Event
from agent_forge.phases.quietstar import figures, recipes
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
from agent_forge.runs.errors import DataError, NotFiniteError
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.decide import Task
from agent_forge.runs.system.durations import least
from agent_forge.studies import work
from agent_forge.studies.events import Observe, Observed, answered
from agent_forge.studies.study_view import Plain
from agent_forge.studies.training_plan import as_float32
from agent_forge.studies.work import publish_model
from agent_forge.weights import operations, pieces, randomness
from agent_forge.weights.folders.checkpoint import Checkpoint
from agent_forge.weights.folders.vocabularies import Tokenizer
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.thoughts import modeling_thoughts
from agent_forge.weights.thoughts.parts import MODELING, split
from agent_forge.weights.training.models import modules, thinking
from agent_forge.weights.training.objectives.thoughts import predictions

#: Windows of a forward pass.
ROWS = 8

Values = NDArray[np.float64]
#: The windows of each document.
Documents = Sequence[Sequence[Ids]]


@dataclass(frozen=True)
class Scores:
    """Measured values of each document's predicted tokens, in order."""

    #: −log p in nats.
    losses: list[Values]
    #: Share of the thought in the mixture; empty for a model as it is.
    weights: list[Values]


def cut(texts: Sequence[Text], tokenizer: Tokenizer, context: int, most: int, all_: int) -> Documents:
    """Return each document's windows, at most `most` tokens of one and about `all_` in all.

    A window predicts at most `context` tokens. Raises DataError if the tokenizer does not know a text.
    """
    windows_by_document: list[list[Ids]] = []
    tokens = 0
    for text in texts:
        if tokens >= all_:
            break
        (document,) = documents([text], tokenizer, context + 1)
        windows, left = [], most
        for window in document.windows:
            if left > 0:
                windows.append(window[: left + 1])
                left -= len(windows[-1]) - 1
        tokens += most - left
        windows_by_document.append(windows)
    return windows_by_document


def held_out(
    texts: Sequence[Text], tokenizer: Tokenizer, context: int, most: int, all_: int
) -> dict[str, Documents]:
    """Return domain → the windows of its documents; see `cut`."""
    by_domain: dict[str, list[Text]] = {}
    for text in texts:
        by_domain.setdefault(text.domain, []).append(text)
    return {
        d: cut(domain_texts, tokenizer, context, most, all_)
        for d, domain_texts in sorted(by_domain.items())
    }


@dataclass(frozen=True)
class Thinking:
    """Settings of the thoughts that a model is measured with."""

    #: Tokens of a thought, and the temperature at which they are sampled.
    length: int
    temperature: float
    #: True for the likeliest thoughts instead of sampled ones.
    greedy: bool
    #: Key of what is sampled, and of the order in which thoughts are exchanged within a window.
    key: tuple[str | int, ...]

    def draws(self, windows: Sequence[int], places: int) -> torch.Tensor | None:
        """Return uniform numbers to sample thoughts by, [windows, length, places]; None if greedy."""
        if self.greedy:
            return None
        size = (self.length, places)
        numbers = [randomness.uniform(math.prod(size), "thoughts", *self.key, n) for n in windows]
        return torch.from_numpy(np.stack(numbers).reshape(-1, *size))

    def order(self, windows: Sequence[int], places: int) -> torch.Tensor:
        """Return random orders: the place whose thought each place gets, int64 [windows, places]."""
        orders = [randomness.permutation(places, "order", *self.key, n) for n in windows]
        return torch.from_numpy(np.stack(orders))


def score(module: Module, measure: str, document_windows: Documents, how: Thinking) -> Scores:
    """Return `Scores`: by document, the losses of its predicted tokens and the weights of thoughts."""
    flat = [window for document in document_windows for window in document]
    values: dict[int, tuple[Values, Values]] = {}
    passes = list(_batches(flat))

    def work(number: int) -> pieces.Tensors:
        numbers = passes[number]
        rows = torch.from_numpy(np.stack([flat[n] for n in numbers]))
        losses, weights = _rows(module, measure, rows, how, numbers)
        return {"losses": torch.from_numpy(losses), "weights": torch.from_numpy(weights)}

    for numbers, read in zip(passes, pieces.each(len(passes), work), strict=True):
        losses, weights = read["losses"].numpy(), read["weights"].numpy()
        for row, number in enumerate(numbers):
            values[number] = (losses[row], weights[row])
    scores, number = Scores([], []), 0
    for document in document_windows:
        pairs = [values[number + n] for n in range(len(document))]
        scores.losses.append(np.concatenate([losses for losses, _ in pairs]))
        scores.weights.append(np.concatenate([weights for _, weights in pairs]))
        number += len(document)
    return scores


def _batches(windows: Sequence[Ids]) -> Iterator[list[int]]:
    """Yield lists of window numbers: windows of one length, at most `ROWS` of them."""
    alike: dict[int, list[int]] = {}
    for number, window in enumerate(windows):
        alike.setdefault(len(window), []).append(number)
    for _, numbers in sorted(alike.items()):
        for at in range(0, len(numbers), ROWS):
            yield numbers[at : at + ROWS]


@torch.no_grad()
def _rows(
    module: Any, measure: str, rows: torch.Tensor, how: Thinking, numbers: Sequence[int]
) -> tuple[Values, Values]:
    """Return (losses, weights of thoughts), float64 [rows, tokens], of windows of one length."""
    device = module.get_input_embeddings().weight.device
    rows = rows.to(device)
    text, ahead = rows[:, :-1], rows[:, None, 1:]
    if measure == figures.PLAIN:
        logits = module(input_ids=text, use_cache=False).logits.float().log_softmax(-1)
        losses = -logits.gather(-1, rows[:, 1:, None]).squeeze(-1)
        return losses.double().cpu().numpy(), np.zeros((len(rows), 0))
    part = module.get_submodule(modeling_thoughts.PART)
    if measure == figures.PAUSED:
        layers = modeling_thoughts.paused(module, part, how.length, ahead[:, :0])
    else:
        draws = how.draws(numbers, text.shape[1])
        draws = None if draws is None else draws.to(device)
        ids = modeling_thoughts.sampled(module, part, text, how.length, draws, how.temperature)
        if measure == figures.EXCHANGED:
            order = how.order(numbers, text.shape[1]).to(device)
            ids = ids.gather(2, order[:, None].expand_as(ids))
        layers = modeling_thoughts.embedded(module, part, ids, ahead[:, :0])
    passed = modeling_thoughts.forward(module, text, layers)
    losses = -predictions(part, passed, ahead)[0][:, 0]
    weights = part.logit(passed.states[:, 0], passed.states[:, -1]).sigmoid()
    return losses.double().cpu().numpy(), weights.double().cpu().numpy()


def parts(
    scores: Mapping[str, Scores], hard: Mapping[str, Sequence[Sequence[int]]]
) -> tuple[dict[str, list[float]], dict[str, list[int]]]:
    """Return (items, sizes) of an observation: loss sums and counts of hard and of all tokens.

    `hard`: domain → for each document the places of its hard tokens.
    """
    items: dict[str, list[float]] = {}
    sizes: dict[str, list[int]] = {}
    for domain, domain_scores in scores.items():
        pairs = list(zip(domain_scores.losses, hard[domain], strict=True))
        items[f"{figures.HARD}/{domain}"] = [float(x[list(at)].sum()) for x, at in pairs]
        sizes[f"{figures.HARD}/{domain}"] = [len(at) for _, at in pairs]
        items[f"{figures.EVERY}/{domain}"] = [float(x.sum()) for x in domain_scores.losses]
        sizes[f"{figures.EVERY}/{domain}"] = [len(x) for x in domain_scores.losses]
        if any(map(len, domain_scores.weights)):
            items[f"{figures.WEIGHT}/{domain}"] = [float(w.sum()) for w in domain_scores.weights]
            sizes[f"{figures.WEIGHT}/{domain}"] = [len(w) for w in domain_scores.weights]
    return items, sizes


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
            self._documents[on] = held_out(
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
        for domain, windows in self.documents(on).items():
            how = self.thinking(on, domain)
            with pieces.divided():
                scores[domain] = score(module, measure, windows, how)
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
        for domain, windows in self.documents(on).items():
            part, how = windows[:DOCUMENTS], self.thinking(on, domain)
            share = _tokens(windows) / _tokens(part)
            seconds += least(partial(score, module, measure, part, how)) * share
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
        items, sizes = parts(scores, pinned.tokens)
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


def _tokens(windows: Documents) -> int:
    return sum(len(window) for document in windows for window in document)


def write_thinker(study: Any, home: Home, state: Any, out: Path) -> str:
    """Write the model that thinks into a folder in `out`; return the path of that folder."""
    context, run, place = Context.opened(state, Artifacts.of(home)), study.run(state), out / THINKER
    config = state.submitted.config
    settings = {"length": config.thought_lengths[-1], "temperature": config.temperature}

    def add_part(folder: Path) -> None:
        from safetensors.torch import save_file

        part = split(context.weights(context.recipes[THOUGHTS]))[1]
        save_file({n: t.contiguous() for n, t in part.items()}, folder / modeling_thoughts.TENSORS)
        (folder / modeling_thoughts.SETTINGS).write_text(json.dumps(settings) + "\n", "utf-8")
        (folder / MODELING.name).write_bytes(MODELING.read_bytes())

    card = study.prose.card(run, THINKER)
    publish_model(context, place, SILENT, state.head, card, add_part)
    return str(place)
