"""The models of a cognate run as recipes: a function of its settings and of what was pinned. Pure."""

from __future__ import annotations

from typing import Any

from phases.cognate.config import CognateConfig
from phases.cognate.events import CognateState, Started
from phases.cognate.presets import Preset
from weights.recipes import Algorithm, Train, Transform

BASE = "base"
OBJECTIVE = "lm@1"
#: Largest norm of the gradient; share of the peak learning rate that is left at the end.
CLIP, FLOOR = 1.0, 0.1
_MUON: dict[str, Any] = {
    "grokfast_lambda": 0.0,
    "grokfast_alpha": 0.98,
    "tau": None,
    "momentum": 0.95,
    "nesterov": True,
    "newton_schulz_steps": 5,
    "adjust_rate": "match_rms_adamw",
    "weight_decay": 0.1,
    "betas": [0.9, 0.95],
}
#: Setting → optimiser. A recipe has every parameter, so that its id says all.
OPTIMISERS = {
    "adamw": Algorithm(
        name="adamw@1",
        params={"beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.1},
    ),
    "muon": Algorithm(name="mugrokfast@1", params=_MUON),
    "mugrokfast": Algorithm(
        name="mugrokfast@1", params={**_MUON, "grokfast_lambda": 0.3, "tau": 100.0}
    ),
}


def initial(config: CognateConfig) -> Transform:
    """Return the recipe of the base's weights before training."""
    size = config.size
    shape = {
        "vocabulary": size.vocabulary,
        "hidden": size.hidden,
        "layers": size.layers,
        "heads": size.heads,
        "kv_heads": size.kv_heads,
        "intermediate": size.intermediate,
        "context": size.context,
    }
    return Transform(operation="qwen2-init@1", params=shape, seed=config.seed)


def base(config: CognateConfig, started: Started) -> Train:
    """Return the recipe of the base."""
    size = config.size
    peak = config.base_rate or size.base_rate
    return _training(
        config, started, BASE, initial(config).id, size.base_mix, size.base_tokens, peak
    )


def specialists(config: CognateConfig, started: Started) -> dict[str, Train]:
    """Return domain → the recipe of its specialist, which starts from the base."""
    size, start = config.size, base(config, started).id
    return {
        domain: _training(
            config,
            started,
            domain,
            start,
            size.specialist_mix(domain),
            size.specialist_tokens,
            config.specialist_rate or size.specialist_rate,
        )
        for domain in config.domains
    }


def models(state: CognateState) -> dict[str, Train]:
    """Return role → recipe of every model that the run gives, the base first."""
    config, started = state.submitted.config, state.started
    return {BASE: base(config, started), **specialists(config, started)}


def steps(size: Preset, tokens: int) -> int:
    """Return the number of steps that read `tokens` tokens."""
    return max(1, tokens // (size.batch * size.context))


def _training(
    config: CognateConfig,
    started: Started,
    role: str,
    start: str,
    mix: dict[str, float],
    tokens: int,
    peak: float,
) -> Train:
    size = config.size
    count = steps(size, tokens)
    return Train(
        objective=OBJECTIVE,
        start=start,
        data=mix,
        data_digests={domain: started.streams[domain] for domain in mix},
        batch=size.batch,
        context=size.context,
        optimiser=OPTIMISERS[config.optimiser],
        schedule=Algorithm(
            name="cosine@1", params={"peak": peak, "warmup": size.warmup, "floor": FLOOR}
        ),
        precision=config.precision,
        clip=CLIP,
        seed=config.seed,
        purpose=role,
        steps=count,
        upto=count,
    )
