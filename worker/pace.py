"""How a run's evaluations are run: as its settings say, as was probed, as its profile is pinned to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from evomerge.build import Weights
from evomerge.config import EvoMergeConfig
from evomerge.facts import Started
from evomerge.fitness import probing
from evomerge.fitness.packing import Packed
from evomerge.fitness.resident import ResidentModel


def follow(model: ResidentModel, config: EvoMergeConfig, started: Started | None) -> ResidentModel:
    """Set the model as the profile says; before there is one, as the settings do."""
    if started is not None:
        tokens, dtype = started.profile.batch_tokens, started.profile.evaluation
    else:
        if "probe" in (config.batch_tokens, config.evaluation_dtype):
            return model  # by `probe`
        tokens = config.batch_tokens
        dtype = "" if config.evaluation_dtype == "model" else config.evaluation_dtype
    model.batch_tokens = None if config.batch_tokens is None else int(tokens or 0)
    model.dtype = getattr(torch, dtype) if dtype else None
    return model


def probe(
    model: ResidentModel,
    config: EvoMergeConfig,
    sources: Sequence[Weights],
    data: Mapping[str, Packed],
    context: int,
) -> tuple[str, ...]:
    """Measure what the settings want measured and set the model so; a line on each."""
    told = []
    model.load(sources[0])
    if config.batch_tokens == "probe":
        speeds = probing.batch(model, context)
        model.batch_tokens = probing.chosen(speeds)
        told.append(
            f"probed: {model.batch_tokens} tokens a forward pass, "
            f"{speeds[model.batch_tokens]:,.0f} tokens/s (one window: {speeds[context]:,.0f})"
        )
    elif config.batch_tokens is not None:
        model.batch_tokens = config.batch_tokens
    if config.evaluation_dtype == "bfloat16":
        model.dtype = torch.bfloat16
    elif config.evaluation_dtype == "probe":
        found = probing.halved(model, sources, data, context)
        model.dtype = torch.bfloat16 if found.used else None
        told.append(
            f"probed: bfloat16 is {found.ratio:.2f} times as fast and changes the sources' perplexity "
            f"by at most {found.change:.2%}: {'used' if found.used else 'not used'}"
        )
    return tuple(told)
