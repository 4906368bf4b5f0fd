"""Measurements of a cognate run's models: quality, the line from the base, task vectors."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

import torch

from evaluation.backends.local_backend import ResidentModel
from evaluation.data.packing import Packed
from evaluation.measures.perplexity import score_windows
from phases.cognate.figures import PLACES
from studies.observing import Items, Observe, Observed, answered

Weights = Mapping[str, torch.Tensor]


def quality(
    task: Observe, model: ResidentModel, weights: Weights, data: Mapping[str, Packed]
) -> Observed:
    """Measure −log p of every window, and the bytes that it predicts, by domain."""
    began, items, sizes = time.monotonic(), {}, {}
    model.load(weights)
    for domain in sorted(data):
        nll, _, _ = score_windows(model, data[domain].windows)
        items[domain], sizes[domain] = tuple(nll), tuple(data[domain].bytes)
    return answered(task, items, sizes, began)


def line(
    task: Observe,
    model: ResidentModel,
    base: Weights,
    specialist: Weights,
    data: Mapping[str, Packed],
    ends: Mapping[float, Items],
) -> Observed:
    """Measure −log p of every window, and its predicted tokens, at each place of the line.

    `ends` are places whose models were measured: place → domain → −log p of every window.
    """
    began, items, sizes = time.monotonic(), {}, {}
    for place in PLACES:
        if place not in ends:
            blend = {n: torch.lerp(base[n].float(), specialist[n].float(), place) for n in base}
            model.load(blend)
        for domain in sorted(data):
            windows = data[domain].windows
            losses = ends.get(place)
            nll = score_windows(model, windows)[0] if losses is None else losses[domain]
            items[f"{place}/{domain}"] = tuple(nll)
            sizes[f"{place}/{domain}"] = tuple(len(window) - 1 for window in windows)
    return answered(task, items, sizes, began)


def geometry(task: Observe, base: Weights, specialists: Mapping[str, Weights]) -> Observed:
    """Measure the task vectors' norms relative to the base's, and their cosines ("a,b")."""
    began, names = time.monotonic(), list(specialists)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i:]]
    products, square = dict.fromkeys(pairs, 0.0), 0.0
    for tensor, weights in sorted(base.items()):  # a tensor at a time: models may be large
        square += float(weights.double().square().sum())
        moved = {
            n: (specialist[tensor] - weights).double().flatten()
            for n, specialist in specialists.items()
        }
        for a, b in pairs:
            products[a, b] += float(moved[a] @ moved[b])
    norms = {name: math.sqrt(products[name, name]) for name in names}
    values = {name: norm / math.sqrt(square) for name, norm in norms.items()}
    for (a, b), product in products.items():
        if a != b:
            values[f"{a},{b}"] = product / (norms[a] * norms[b] or 1.0)
    return Observed(
        recipe_id=task.recipe_id,
        measure=task.measure,
        on=task.on,
        values=values,
        seconds=time.monotonic() - began,
    )
