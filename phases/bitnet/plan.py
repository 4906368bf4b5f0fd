"""The models of a bitnet run as recipes: a function of its settings and of what was pinned. Pure."""

from __future__ import annotations

from typing import Any

from phases.bitnet.events import BitnetState, Started, Submitted
from studies.events import MODEL
from studies.making.events import Making
from studies.training_plan import as_float32, mix, training
from weights.recipes import Train, Transform

#: Key of the random draws of all trainings: they read the same windows.
PURPOSE = "bitnet"
#: Role of the full-precision weights behind the ternary ones.
MASTER = "master"
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


def full(submitted: Submitted, started: Started) -> Train:
    """Return the recipe of the continued training in full precision."""
    recipe = as_float32(started).id
    rate, watch = submitted.config.full_rate, submitted.config.divergence
    return training(submitted, started, PURPOSE, recipe, "lm@1", {}, rate, divergence=watch)


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
    rate, watch = config.rate, config.divergence
    return training(submitted, started, PURPOSE, first, "ternary@1", params, rate, inputs, watch)


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
        inputs={"of": as_float32(started).id},
        params=params,
        seed=submitted.config.seed,
    )


def untrained(submitted: Submitted, started: Started) -> dict[str, Transform]:
    """Return way → recipe of the given model, rounded without training."""
    of = as_float32(started).id
    ways = {way: packed(submitted, of, way) for way in UNTRAINED[:-1]}
    return {**ways, UNTRAINED[-1]: fed_back(submitted, started)}


def recipes(state: BitnetState) -> dict[str, Making]:
    """Return name → recipe of all that the run makes, each after those that it reads."""
    submitted, started = state.submitted, state.started
    first = as_float32(started)
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
