"""Losses along the lines between models: every point is a merge, measured on the same text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter

import numpy as np
import torch

from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data.items import Item, Text
from agent_forge.evaluation.data.packing import Ids, pack
from agent_forge.evaluation.data.slices import Slice
from agent_forge.evomerge.mergeability.forecast import MergePoint, shares
from agent_forge.evomerge.merging.builder import Builder
from agent_forge.evomerge.recipes.recipe import Merge, Recipe, Source
from agent_forge.runs.errors import DataError, NotFiniteError
from agent_forge.runs.system.durations import duration
from agent_forge.weights import devices
from agent_forge.weights.folders import checkpoint, sources
from agent_forge.weights.folders.vocabularies import Tokenizer

Weights = Mapping[str, torch.Tensor]
#: Tokens of text, all domains together.
TOKENS = 32_768
#: Windows of a domain, at least.
LEAST = 4


class MergeFamily:
    """A base and its sources, in memory or memory-mapped, and the merges of them."""

    def __init__(self, base: Weights, sources: Sequence[Weights]) -> None:
        recipes = [Source(digest=f"{place:064x}") for place in range(1 + len(sources))]
        by_id: dict[str, Recipe] = {recipe.id: recipe for recipe in recipes}
        stored = dict(zip(by_id, (base, *sources), strict=True))
        self.base, self.sources = base, tuple(sources)
        self._base, *self._ids = by_id
        self._builder = Builder(by_id, stored.get)

    def at(self, place: Sequence[float]) -> Weights:
        """Return {tensor's name: weights} of base + Σ share · task vector, in the base's dtype."""
        if not any(place):
            return self.base
        if sorted(place)[:-1] == [0.0] * (len(place) - 1) and 1.0 in place:
            return self.sources[place.index(1.0)]
        params = {"weights": list(place)}
        recipe = Merge(
            method="task_arithmetic", inputs=tuple(self._ids), base=self._base, params=params
        )
        return self._builder.build(recipe)


def windows(
    items: Sequence[Item], tokenizer: Tokenizer, context: int, slice_: Slice, tokens: int = TOKENS
) -> dict[str, list[Ids]]:
    """Return {domain: windows of token ids}, about `tokens` in all, as many of each domain.

    Raise DataError if there is no text, or less than LEAST windows of a domain: an interval over one
    window has no width.
    """
    texts = [item for item in items if isinstance(item, Text) and item.slice == slice_]
    if not texts:
        raise DataError(
            f"the data has no text in the slice {slice_}: losses along lines are those of text. "
            "Give data with text: --text builtin:domains."
        )
    rows_by_domain = {
        domain: packed.windows
        for domain, packed in sorted(pack(texts, tokenizer, context)[slice_].items())
        if packed.windows
    }
    left, most = tokens, {}
    for rest, (domain, rows) in enumerate(
        sorted(rows_by_domain.items(), key=lambda pair: _size(pair[1]))
    ):
        most[domain] = left // (len(rows_by_domain) - rest)
        left -= min(most[domain], _size(rows))
    chosen = {domain: _first(rows, most[domain]) for domain, rows in rows_by_domain.items()}
    for domain, rows in chosen.items():
        if len(rows) < LEAST:
            raise DataError(
                f"{domain} gives {len(rows)} windows, and an interval needs {LEAST}: more --tokens or "
                "text, or a smaller --context."
            )
    return chosen


def _size(rows: Sequence[Ids]) -> int:
    return sum(map(len, rows))


def _first(rows: Sequence[Ids], tokens: int) -> list[Ids]:
    """Return the first windows that have at most `tokens` tokens together; at least one window."""
    ends = np.cumsum([len(row) for row in rows])
    return list(rows[: max(1, int((ends <= tokens).sum()))])


def measured(
    family: MergeFamily,
    model: ResidentModel,
    text: Mapping[str, Sequence[Ids]],
    tell: Callable[[str], None] = lambda _: None,
) -> list[MergePoint]:
    """Return a list of `MergePoint`, one for each of `forecast.shares`, with its losses on `text`.

    `tell` gets a sentence on the time that all points will take, and later on how far it is. Raise
    NotFiniteError if the loss of the base or of a source is NaN or Inf.
    """
    places = shares(len(family.sources))
    tokens = sum(_size(rows) for rows in text.values())
    model.load(family.at(places[0]))
    row = next(iter(text.values()))[0]
    model.losses([row])
    began = perf_counter()
    batch = [row] * model.rows(len(row))
    model.losses(batch)
    each = (perf_counter() - began) / _size(batch) * tokens
    tell(f"measuring {len(places)} models on {tokens:,} tokens: about {duration(len(places) * each)}")
    points, began = [], perf_counter()
    for number, place in enumerate(places, start=1):
        model.load(family.at(place))
        point = MergePoint(place, {domain: _losses(model, rows) for domain, rows in text.items()})
        if point.is_end and not np.isfinite(point.loss):
            name = "the base" if not any(place) else f"source {place.index(1.0) + 1}"
            raise NotFiniteError(f"the loss of {name} on this text is NaN or Inf.")
        points.append(point)
        if number % 8 == 0:
            rest = (perf_counter() - began) / number * (len(places) - number)
            tell(f"{number} of {len(places)} models, about {duration(rest)} more")
    return points


def _losses(model: ResidentModel, rows: Sequence[Ids]) -> tuple[list[float], list[float]]:
    row_losses = [losses for losses, _ in model.losses(rows)]
    return [float(each.sum(dtype=np.float64)) for each in row_losses], [
        float(len(each)) for each in row_losses
    ]


def family(opened: sources.OpenedModels) -> MergeFamily:
    """Return the `MergeFamily` of opened models that fit together, memory-mapped."""
    everyone = [model.tensors() for model in (opened.base, *opened.sources)]
    if not opened.tied:
        everyone = [checkpoint.untied(tensors) for tensors in everyone]
    return MergeFamily(everyone[0], everyone[1:])


def resident(opened: sources.OpenedModels, device: str) -> ResidentModel:
    """Return the `ResidentModel` that the points' weights are loaded into."""
    return ResidentModel(opened.base.folder, devices.resolve(device), opened.tied)
