"""How a run's evaluations are run: as its settings say, as was probed, as its profile is pinned to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from evomerge.build import Weights
from evomerge.config import EvoMergeConfig
from evomerge.facts import Started
from evomerge.fitness import compiled, probing
from evomerge.fitness.packing import Packed
from evomerge.fitness.resident import ResidentModel


def follow(model: ResidentModel, config: EvoMergeConfig, started: Started | None) -> ResidentModel:
    """Set the model as the profile says; before there is one, as the settings do."""
    if started is not None:
        profile = started.profile
        _set(model, config, profile.batch_tokens, profile.evaluation)
        shape = (model.rows(started.context), started.context)
        model.compiled = shape if profile.compiled else None
    elif not (_probes_batch(config, model) or config.evaluation_dtype == "probe"):
        dtype = "" if config.evaluation_dtype == "model" else config.evaluation_dtype
        _set(model, config, config.batch_tokens, dtype)
    return model  # else by `probe`


def _set(
    model: ResidentModel, config: EvoMergeConfig, tokens: int | str | None, dtype: str
) -> None:
    as_said = config.batch_tokens is not None or _probes_batch(config, model)
    model.batch_tokens = int(tokens or 0) if as_said else None
    model.dtype = getattr(torch, dtype) if dtype else None


def _probes_batch(config: EvoMergeConfig, model: ResidentModel) -> bool:
    """Where nothing is said, on a GPU: there the size of a batch matters."""
    unsaid = config.batch_tokens is None and model.device.type == "cuda"
    return unsaid or config.batch_tokens == "probe"


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
    if _probes_batch(config, model):
        speeds = probing.batch(model, context)
        model.batch_tokens = probing.chosen(speeds)
        told.append(
            f"probed: {model.batch_tokens} tokens a forward pass, "
            f"{speeds[model.batch_tokens]:,.0f} tokens/s (one window: {speeds[context]:,.0f})"
        )
    elif config.batch_tokens is not None:
        model.batch_tokens = int(config.batch_tokens)
    if config.evaluation_dtype == "bfloat16":
        model.dtype = torch.bfloat16
    elif config.evaluation_dtype == "probe":
        found = probing.halved(model, sources, data, context)
        model.dtype = torch.bfloat16 if found.equal else None
        told.append(_told("bfloat16 is", found, found.equal))
    if config.evaluation_compile == "probe":
        told.append(_compiled(model, config, sources, data, context))
    return tuple(told)


def _compiled(
    model: ResidentModel,
    config: EvoMergeConfig,
    sources: Sequence[Weights],
    data: Mapping[str, Packed],
    context: int,
) -> str:
    """Try compiled passes, and set the model so where they pay within the run's search."""
    if not compiled.compiler(model.device):
        return "not probed: this machine has no compiler for evaluation_compile: not used"
    found = probing.compiled(model, sources, data, context)
    speed = probing.tokens_per_second(model, model.rows(context), context)
    draws = config.generations * config.population_size * config.search_windows
    used = found.pays(draws * len(data) * context, speed)
    model.compiled = (model.rows(context), context) if used else None
    return _told(f"compiling takes {found.seconds:.0f} s, and evaluation is", found, used)


def _told(what: str, found: probing.Trial, used: bool) -> str:
    return (
        f"probed: {what} {found.ratio:.2f} times as fast and changes the sources' perplexity "
        f"by at most {found.change:.2%}: {'used' if used else 'not used'}"
    )
