"""Evaluation settings of the model: batch size, dtype and compilation, set, probed or pinned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from evaluation import autotune
from evaluation.backends import inductor
from evaluation.backends.local_backend import ResidentModel
from evaluation.data.packing import Packed
from evomerge.config import EvoMergeConfig
from evomerge.merging.builder import Weights
from evomerge.run.events import Started


def follow(model: ResidentModel, config: EvoMergeConfig, started: Started | None) -> ResidentModel:
    """Set up the model by the run's profile, or by the settings before the run has one."""
    if started is not None:
        profile = started.profile
        model.batch_tokens = None if config.batch_tokens is None else profile.batch_tokens
        model.dtype = getattr(torch, profile.evaluation) if profile.evaluation else None
        shape = (model.rows(started.context), started.context)
        model.compiled = shape if profile.compiled else None
    elif config.batch_tokens != "probe" and config.evaluation_dtype not in ("auto", "probe"):
        model.batch_tokens = config.batch_tokens
        model.dtype = torch.bfloat16 if config.evaluation_dtype == "bfloat16" else None
    return model  # values that must be found out are set by `probe`


def probe(
    model: ResidentModel,
    config: EvoMergeConfig,
    sources: Sequence[Weights],
    data: Mapping[str, Packed],
    context: int,
) -> tuple[str, ...]:
    """Measure what the settings ask to probe, set up the model by it, and return a line on each."""
    lines = []
    model.dtype = torch.bfloat16 if config.evaluation_dtype == "bfloat16" else None
    model.load(sources[0])
    if config.batch_tokens == "probe":
        speeds = autotune.batch(model, context, config.search_windows)
        model.batch_tokens = autotune.chosen(speeds)
        lines.append(
            f"probed: {model.batch_tokens} tokens a forward pass, "
            f"{speeds[model.batch_tokens]:,.0f} tokens/s (one window: {speeds[context]:,.0f})"
        )
    elif config.batch_tokens is not None:
        model.batch_tokens = config.batch_tokens
    if config.evaluation_dtype == "auto":
        model.dtype = torch.bfloat16 if autotune.natively(model, sources, data) else None
    elif config.evaluation_dtype == "probe":
        trial = autotune.halved(model, sources, data, context)
        model.dtype = torch.bfloat16 if trial.better else None
        lines.append(_told("bfloat16 is", trial, trial.better))
    if config.evaluation_compile == "probe":
        lines.append(_compiled(model, config, sources, data, context))
    return tuple(lines)


def _compiled(
    model: ResidentModel,
    config: EvoMergeConfig,
    sources: Sequence[Weights],
    data: Mapping[str, Packed],
    context: int,
) -> str:
    """Try compiled passes; use them if they save time within the run's search. Return a line on it."""
    if not inductor.compiler(model.device):
        return "not probed: this machine has no compiler for evaluation_compile: not used"
    try:
        trial = autotune.compiled(model, sources, data, context)
    except inductor.NotCompiledError as error:
        return f"not probed: {error}: not used"
    rows = model.rows(context)
    long = sum(any(len(w) == context for w in packed.windows) for packed in data.values())
    full = config.search_windows // rows * rows * context
    used = trial.pays(_search_tokens(config, long * full, trial.speed))
    model.compiled = (rows, context) if used else None
    return _told(f"compiling takes {trial.seconds:.0f} s, and evaluation is", trial, used)


def _search_tokens(config: EvoMergeConfig, each: int, speed: float) -> float:
    """Return the tokens of full batches that the search evaluates at most, `each` a candidate.

    `speed` is tokens a second; a run with a budget of hours has time for no more than that allows.
    """
    tokens = config.generations * config.search.population_size * each
    if config.budget_hours is None:
        return tokens
    return min(tokens, 3600 * config.budget_hours * speed)


def _told(what: str, trial: autotune.Trial, used: bool) -> str:
    return (
        f"probed: {what} {trial.ratio:.2f} times as fast and changes the sources' perplexity "
        f"by at most {trial.change:.2%}: {'used' if used else 'not used'}"
    )
