"""Damage that was planted in one domain is caught there, and rounding elsewhere is not taken for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen2ForCausalLM

from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data.outcomes import DomainOutcomes, Outcomes
from agent_forge.evaluation.measures.bootstrap import Comparison
from agent_forge.evaluation.measures.perplexity import score_windows
from agent_forge.evomerge.fitness import composite
from agent_forge.evomerge.fitness.composite import Weighting
from agent_forge.evomerge.fitness.paired_bootstrap import compare, rounding
from testing.models import toy_models

Weights = dict[str, torch.Tensor]
EMBEDDING = "model.embed_tokens.weight"
#: Domain → the first of its 40 tokens.
DOMAINS = {"low": 1, "high": 200}


def texts(first: int, count: int, key: int) -> list[np.ndarray]:
    """Counting in steps of one to three: the token after two others is known."""
    rng = np.random.default_rng(key)
    starts, steps = rng.integers(0, 40, (count, 1)), rng.integers(1, 4, (count, 1))
    return list(first + (starts + steps * np.arange(32)) % 40)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[ResidentModel, Weights]:
    """A small model that has learned both domains."""
    torch.manual_seed(0)
    module: Any = Qwen2ForCausalLM(toy_models.config(hidden_size=32))
    ids = torch.tensor(np.array([w for first in DOMAINS.values() for w in texts(first, 200, first)]))
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    for number in range(80):
        rows = ids[torch.from_numpy(np.random.default_rng(number).permutation(len(ids))[:48])]
        optimizer.zero_grad()
        module(input_ids=rows, labels=rows).loss.backward()
        optimizer.step()
    folder = tmp_path_factory.mktemp("trained")
    module.save_pretrained(folder)
    weights = {n: p.detach().clone() for n, p in module.named_parameters()}
    return ResidentModel(folder, "cpu", tied=True), weights


def exchanged(weights: Mapping[str, torch.Tensor], first: int, key: int) -> Weights:
    """The rows of a domain's tokens in another order (a shift would count on as before)."""
    rows = weights[EMBEDDING].clone()
    order = np.random.default_rng(key).permutation(40)
    rows[first : first + 40] = rows[torch.from_numpy(first + order)]
    return {**weights, EMBEDDING: rows}


def scored(model: ResidentModel, weights: Weights) -> Outcomes:
    """What a model does on both domains."""
    model.load(weights)
    result = {}
    for name, first in DOMAINS.items():
        windows = texts(first, 60, first + 1)
        nll, tokens, hits = score_windows(model, windows)
        result[name] = DomainOutcomes(nll=tuple(nll), tokens=tuple(tokens), hits=tuple(hits))
    return result


def lead(a: Outcomes, b: Outcomes, domain: str) -> tuple[Comparison, float]:
    """Of a domain's score, and what of it may be rounding."""
    unit = composite.components(b, 1.0, 1.0)
    assert unit
    weighting = Weighting(perplexity=0, accuracy=0, speed=0, memory=0, domains={domain: 1.0})
    best = composite.reference([unit], [domain])
    return compare(a, b, best, weighting, False, "damage"), rounding(best, weighting, False)


@pytest.mark.slow
@pytest.mark.parametrize("where", DOMAINS)
def test_damage_is_caught_in_its_own_domain_and_nowhere_else(trained: Any, where: str):
    """Exchanged rows change the order of the other domain's sums over the vocabulary, nothing more.
    The interval of that may leave zero out (here, in one exchange of 24).
    """
    model, weights = trained
    whole = scored(model, weights)
    other = next(d for d in DOMAINS if d != where)
    for key in range(12):
        worse = scored(model, exchanged(weights, DOMAINS[where], key))
        own, noise = lead(worse, whole, where)
        assert own.verdict(noise) == "worse"
        assert own.difference < -0.9
        beside, noise = lead(worse, whole, other)
        assert beside.verdict(noise) == "level"
