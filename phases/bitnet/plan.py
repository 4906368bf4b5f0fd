"""The models of a bitnet run as recipes: a function of its settings and of what was pinned. Pure."""

from __future__ import annotations

import math
from typing import Any

from phases.bitnet.config import MIX, BitnetConfig
from phases.bitnet.events import BitnetState, Started, Submitted
from runs.errors import ConfigError
from weights.making.events import Making
from weights.recipes import Algorithm, Train, Transform

#: Roles of what the run gives: ternary weights, and the full-precision weights behind them.
MODEL, MASTER = "model", "master"
#: Names of further models: the one that was given (in float32), continued training in full precision,
#: a ternary training from new weights and these.
START, FULL, SCRATCH, FRESH = "start", "full", "scratch", "fresh"
SCRATCH_MASTER = "scratch-master"
#: Ways of rounding without training.
UNTRAINED = ("absmean", "least-squares", "sigma", "feedback")
#: Standard deviations that a scale without training is; docs/benchmarks.md has what it comes to.
SIGMAS = 1.8
#: Tokens of calibration text, about.
CALIBRATION = 32_768
#: Largest norm of the gradient; shares of the steps and of the peak rate that a schedule has.
CLIP, WARMUP, FLOOR = 1.0, 0.1, 0.1
#: Tokens of a window without a setting, if the model takes as many.
CONTEXT = 256
#: Setting → optimiser, with every parameter.
OPTIMISERS = {
    "adamw": Algorithm(
        name="adamw@1",
        params={"beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.1},
    ),
    "muon": Algorithm(
        name="mugrokfast@1",
        params={
            "grokfast_lambda": 0.0,
            "grokfast_alpha": 0.98,
            "tau": None,
            "momentum": 0.95,
            "nesterov": True,
            "newton_schulz_steps": 5,
            "adjust_rate": "match_rms_adamw",
            "weight_decay": 0.1,
            "betas": [0.9, 0.95],
        },
    ),
}


def mix(submitted: Submitted, started: Started) -> dict[str, float]:
    """Return domain → share of what is trained on; the shares add up to 1."""
    given = submitted.config.mix
    if given is None:
        given = dict.fromkeys(started.streams, 1.0) if submitted.data else MIX
    total = math.fsum(given.values())
    return {domain: weight / total for domain, weight in sorted(given.items())}


def window(config: BitnetConfig, positions: int | None) -> int:
    """Return the tokens of a window. `positions` is the longest sequence that the model takes.

    Raises ConfigError if the user asks for more.
    """
    if positions is not None and config.context is not None and config.context > positions:
        raise ConfigError(
            f"context is {config.context}, the model takes {positions} tokens at most."
        )
    return config.context or min(CONTEXT, positions or CONTEXT)


def steps(config: BitnetConfig, context: int) -> int:
    """Return the number of steps that read the settings' tokens."""
    return max(1, config.tokens // (config.batch * context))


def start(started: Started) -> Transform:
    """Return the recipe of the given model in float32."""
    return Transform(operation="float32@1", inputs={"of": started.model.recipe_id})


def full(submitted: Submitted, started: Started) -> Train:
    """Return the recipe of the continued training in full precision."""
    recipe = start(started).id
    return _training(submitted, started, recipe, "lm@1", {}, submitted.config.full_rate)


def master(submitted: Submitted, started: Started, first: str, teacher: str | None) -> Train:
    """Return the recipe of a ternary training from the recipe `first`."""
    config = submitted.config
    params = {
        "group": config.group,
        "int8_activations": config.int8_activations,
        "warmup": config.quantisation_warmup,
        "distillation": config.distillation if teacher else 0.0,
    }
    inputs = {"teacher": teacher} if teacher and config.distillation else {}
    return _training(submitted, started, first, "ternary@1", params, config.rate, inputs)


def packed(submitted: Submitted, of: str, method: str = "absmean") -> Transform:
    """Return the recipe of the ternary weights of a model."""
    group = submitted.config.group
    params: dict[str, Any] = {"method": method, "group": group, "sigmas": SIGMAS}
    return Transform(operation="ternary-pack@1", inputs={"of": of}, params=params)


def fed_back(submitted: Submitted, started: Started) -> Transform:
    """Return the recipe of the given model, rounded with error feedback on the training text."""
    digests = {domain: started.streams[domain] for domain in mix(submitted, started)}
    params: dict[str, Any] = {
        "data": digests,
        "context": started.context,
        "windows": max(1, CALIBRATION // started.context),
        "sigmas": SIGMAS,
        "damping": 0.01,
    }
    return Transform(
        operation="ternary-feedback@1",
        inputs={"of": start(started).id},
        params=params,
        seed=submitted.config.seed,
    )


def untrained(submitted: Submitted, started: Started) -> dict[str, Transform]:
    """Return way → recipe of the given model, rounded without training."""
    of = start(started).id
    ways = {way: packed(submitted, of, way) for way in UNTRAINED[:-1]}
    return {**ways, UNTRAINED[-1]: fed_back(submitted, started)}


def recipes(state: BitnetState) -> dict[str, Making]:
    """Return name → recipe of all that the run makes, each after those that it reads."""
    submitted, started = state.submitted, state.started
    first = start(started)
    trained = master(submitted, started, first.id, first.id)
    found: dict[str, Making] = {
        START: first,
        FULL: full(submitted, started),
        MASTER: trained,
        **untrained(submitted, started),
        MODEL: packed(submitted, trained.id),
    }
    if submitted.config.scratch:
        fresh = Transform(
            operation="fresh@1",
            inputs={"of": started.model.recipe_id},
            seed=submitted.config.seed,
        )
        scratch = master(submitted, started, fresh.id, None)
        found |= {FRESH: fresh, SCRATCH_MASTER: scratch, SCRATCH: packed(submitted, scratch.id)}
    return found


def trainings(state: BitnetState) -> dict[str, Train]:
    """Return name → recipe of every model that the run trains."""
    return {name: one for name, one in recipes(state).items() if isinstance(one, Train)}


def _training(
    submitted: Submitted,
    started: Started,
    first: str,
    objective: str,
    params: dict[str, Any],
    peak: float,
    inputs: dict[str, str] | None = None,
) -> Train:
    """Return the recipe of a training; all read the same windows."""
    config, shares = submitted.config, mix(submitted, started)
    count = steps(config, started.context)
    schedule = {"peak": peak, "warmup": WARMUP, "floor": FLOOR}
    return Train(
        objective=objective,
        params=params,
        start=first,
        inputs=inputs or {},
        data=shares,
        data_digests={domain: started.streams[domain] for domain in shares},
        batch=config.batch,
        context=started.context,
        accumulation=config.accumulation,
        optimiser=OPTIMISERS[config.optimiser],
        schedule=Algorithm(name="cosine@1", params=schedule),
        precision=config.precision,
        checkpointing=config.checkpointing,
        clip=CLIP,
        seed=config.seed,
        purpose="bitnet",
        steps=count,
        upto=count,
    )
