"""Scores of mixtures in memory: one module takes the weights of one mixture after the other.

Scored are windows of text, and answers after the prompts of tasks. The classifier that dispatches takes
the nearest centroid of a model's hidden states at a text's beginning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import Module

from agent_forge.evaluation.answers import EncodedItem
from agent_forge.evaluation.backends.backend import Evaluator
from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data.packing import Ids, ItemPack
from agent_forge.evaluation.measures.perplexity import score_windows
from agent_forge.phases.experts.recipes import Factors
from agent_forge.phases.experts.search.generations import StopLimit
from agent_forge.studies.events import Observed
from agent_forge.weights import svf
from agent_forge.weights.svf import Changes
from agent_forge.weights.tensors import Tensors, Weights
from agent_forge.weights.training.models import modules

#: Digits after the point of what a window is recorded with, in nats.
DIGITS = 4


@dataclass(frozen=True)
class DomainSequences:
    """Sequences of a domain, and the part of each that is predicted."""

    windows: Sequence[Ids]
    #: Predictions that are left out at the beginning: those of the tokens of a prompt.
    starts: Sequence[int]
    #: UTF-8 bytes of what is predicted.
    bytes: Sequence[int]

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self.windows)

    def part(self, first: int | None, last: int | None) -> DomainSequences:
        """Return the sequences numbered `first` to before `last`."""
        span = slice(first, last)
        return DomainSequences(self.windows[span], self.starts[span], self.bytes[span])


def of_text(packed: ItemPack) -> DomainSequences:
    """Return sequences of windows of text; all tokens but the first are predicted."""
    return DomainSequences(packed.windows, [0] * len(packed.windows), packed.bytes)


def of_answers(items: Sequence[EncodedItem], texts: Sequence[str]) -> DomainSequences:
    """Return sequences of tasks; the answer and the end token are predicted.

    An answer's bytes are those of its text in `texts` and of the blank before it.
    """
    return DomainSequences(
        [np.asarray((*item.prompt, *item.answer), np.int64) for item in items],
        [len(item.prompt) - 1 for item in items],
        [len(text.encode()) + 1 for text in texts],
    )


def sums(model: Evaluator, held: DomainSequences) -> list[float]:
    """Return Σ −log p in nats, float64, of the predicted part of each sequence."""
    pairs = zip(model.losses(held.windows), held.starts, strict=True)
    return [float(losses[start:].astype(np.float64).sum()) for (losses, _), start in pairs]


def joined(parts: Sequence[DomainSequences]) -> DomainSequences:
    """Return all sequences of the parts, one part after the other."""
    return DomainSequences(
        [window for part in parts for window in part.windows],
        [start for part in parts for start in part.starts],
        [size for part in parts for size in part.bytes],
    )


class Mixer:
    """A module into which the weights of mixtures are loaded; unchanged tensors are shared."""

    def __init__(self, base: Tensors, parts: Sequence[Changes], device: str) -> None:
        """Keep the base and the changes of the parts on the device."""
        self._base = {n: t.to(device, torch.float32) for n, t in base.weights.items()}
        self._parts = [{n: t.to(device) for n, t in part.items()} for part in parts]
        self._model = ResidentModel.from_module(modules.build(base, device))

    def weights(self, factors: Factors) -> Weights:
        """Return the weights of the mixture with these factors."""
        return svf.added(self._base, self._parts, factors)

    def mixed(self, factors: Factors) -> ResidentModel:
        """Return the module, after loading the weights of a mixture into it."""
        self._model.load(self.weights(factors))
        return self._model


class MixtureScorer:
    """Losses of mixtures on the windows of the search.

    The losses of a mixture are cached: the arms of a search begin with the same mixtures.
    """

    def __init__(self, mixer: Mixer, data: Mapping[str, DomainSequences]) -> None:
        """Measure mixtures of a mixer on `data`, domain → its windows."""
        self._mixer, self._data = mixer, data
        self._known: dict[tuple[Factors, int, int | None], dict[str, tuple[float, ...]]] = {}

    def scored(self, factors: Factors, base: Observed, bar: StopLimit) -> dict[str, tuple[float, ...]]:
        """Return domain → Σ −log p of each window; only of the first if the mixture is far behind.

        Empty if a number is not finite.
        """
        first = self._losses(factors, 0, bar.probe)
        if not first or bar.gives_up(first, base):
            return first
        rest = self._losses(factors, bar.probe, None)
        return {domain: (*first[domain], *rest[domain]) for domain in first} if rest else {}

    def _losses(self, factors: Factors, first: int, last: int | None) -> dict[str, tuple[float, ...]]:
        """Return domain → Σ −log p of each window from `first` to before `last`, from a cache."""
        key = factors, first, last
        if key not in self._known:
            data = {domain: held.part(first, last) for domain, held in self._data.items()}
            self._known[key] = losses(self._mixer.mixed(factors), data)
        return self._known[key]


def losses(model: ResidentModel, data: Mapping[str, DomainSequences]) -> dict[str, tuple[float, ...]]:
    """Return domain → Σ −log p of each window in nats; empty if a number is not finite."""
    every = joined([data[domain] for domain in sorted(data)])
    nll = sums(model, every) if every else []
    if not all(map(math.isfinite, nll)):
        return {}
    left = iter(round(value, DIGITS) for value in nll)
    return {domain: tuple(next(left) for _ in data[domain].windows) for domain in sorted(data)}


def mean_loss(model: ResidentModel, windows: Sequence[Ids]) -> float:
    """Return the mean loss over windows in nats a token; 1e6 if it is not finite."""
    nll, tokens, _ = score_windows(model, windows)
    loss = math.fsum(nll) / sum(tokens)
    return round(loss, 6) if math.isfinite(loss) else 1e6


def features(module: Module, windows: Sequence[Ids], length: int) -> torch.Tensor:
    """Return the mean last hidden state of the first `length` tokens, float64 [windows, width]."""
    ids = torch.stack([torch.as_tensor(window[:length], dtype=torch.int64) for window in windows])
    device = next(module.parameters()).device
    rows = []
    with torch.inference_mode():
        for part in ids.split(32):
            states = module(
                input_ids=part.to(device), output_hidden_states=True, use_cache=False
            ).hidden_states[-1]
            rows.append(states.double().mean(dim=1).cpu())
    return torch.cat(rows)


#: Added to a deviation that is divided by.
SMALL = 1e-6


@dataclass(frozen=True)
class Classifier:
    """A classifier by the nearest centroid, in units of the deviation within domains."""

    domains: tuple[str, ...]
    #: [domains, width] and [width], float64.
    centroids: torch.Tensor
    deviation: torch.Tensor

    def nearest(self, rows: torch.Tensor) -> list[str]:
        """Return the domain whose centroid is nearest, for each of the rows [rows, width]."""
        apart = (rows[:, None, :] - self.centroids[None]) / self.deviation
        return [self.domains[i] for i in apart.square().sum(dim=2).argmin(dim=1).tolist()]


def fitted(rows: Mapping[str, torch.Tensor]) -> Classifier:
    """Return the classifier whose centroids are the means of each domain's rows [rows, width]."""
    domains = tuple(sorted(rows))
    centroids = torch.stack([rows[domain].mean(dim=0) for domain in domains])
    within = torch.cat([rows[d] - centroids[i] for i, d in enumerate(domains)])
    return Classifier(domains, centroids, within.square().mean(dim=0).sqrt() + SMALL)
