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
#: Parameters of the optimiser. A recipe has every parameter, so that its id says all.
ADAMW: dict[str, Any] = {"beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.1}


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
    return _training(
        config, started, BASE, initial(config).id, size.base_mix, size.base_tokens, size.base_rate
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
            size.specialist_rate,
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
        optimiser=Algorithm(name="adamw@1", params=ADAMW),
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
