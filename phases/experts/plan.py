"""The models of an experts run as recipes: functions of its settings and of what was pinned. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from evaluation.given_model_runs import training_plan
from evaluation.given_model_runs.training_plan import as_float32
from phases.experts.events import ExpertsState, Factors, Started, Submitted
from weights.recipes import Train, Transform

#: The given model in float32, its decomposition, and the vectors that experts begin with.
GIVEN, SVD, ONES = "given", "svd", "ones"
#: Beginning of the names of experts, of the given model with one expert, and of a domain's mixture.
EXPERT, ONLY, FITTED = "expert-", "only-", "fitted-"
#: Beginning of the names of models with adapters that are trained as an expert is.
LORA = "lora-"
#: The mean of the further models.
MEAN = "mean-of-models"
#: Key of all random draws.
PURPOSE = "experts"


def decomposition(submitted: Submitted, started: Started) -> Transform:
    """Return the recipe of the given model's decomposition."""
    parts = list(submitted.config.parts)
    own = {"of": as_float32(started).id}
    return Transform(operation="svf-decompose@1", inputs=own, params={"parts": parts})


def ones(submitted: Submitted, started: Started) -> Transform:
    """Return the recipe of the vectors that change nothing."""
    svd = decomposition(submitted, started)
    return Transform(operation="svf-ones@1", inputs={"svd": svd.id})


def trainable(submitted: Submitted, started: Started) -> tuple[str, ...]:
    """Return the domains that an expert may be of: those with training text, not the neutral one."""
    config = submitted.config
    return tuple(d for d in config.domains if d != config.neutral and d in started.streams)


def expert(submitted: Submitted, started: Started, domain: str) -> Train:
    """Return the recipe of a domain's expert: its vectors."""
    config = submitted.config
    first = ones(submitted, started).id
    purpose = f"{PURPOSE}/{domain}"
    made = training_plan.reading(
        submitted, started, {domain: 1.0}, purpose, first, "svf@1", config.rate
    )
    inputs = {"of": as_float32(started).id, "svd": decomposition(submitted, started).id}
    own = {"params": {"pull": config.pull}, "inputs": inputs, "divergence": config.divergence}
    return made.model_copy(update=own)


def lora(submitted: Submitted, started: Started, domain: str) -> Train:
    """Return the recipe of the given model with adapters, trained on the windows of an expert.

    The run must have adapters.
    """
    config, own = submitted.config, started.adapters
    assert own is not None
    first, purpose = as_float32(started).id, f"{PURPOSE}/{domain}"
    made = training_plan.reading(
        submitted, started, {domain: 1.0}, purpose, first, "lora@1", config.lora_rate
    )
    params = {
        "objective": "lm@1",
        "params": {},
        "rank": own.rank,
        "alpha": float(own.rank),
        "modules": list(own.modules),
    }
    return made.model_copy(update={"params": params, "divergence": config.divergence})


def mixture(state: ExpertsState, experts: Sequence[str], factors: Factors) -> Transform:
    """Return the recipe of a mixture of the further models and of the domains' experts.

    Parts with the factor 0 are left out.
    """
    submitted, started = state.submitted, state.started
    inputs = {"of": as_float32(started).id}
    models: list[float] = []
    vectors: list[float] = []
    for source, factor in zip(started.merges, factors, strict=False):
        if factor:
            inputs[f"model-{len(models):04}"] = source.recipe_id
            models.append(factor)
    for domain, factor in zip(experts, factors[len(started.merges) :], strict=True):
        if factor:
            inputs[f"expert-{len(vectors):04}"] = expert(submitted, started, domain).id
            vectors.append(factor)
    if vectors:
        inputs["svd"] = decomposition(submitted, started).id
    params = {"models": models, "experts": vectors}
    return Transform(operation="mixture@1", inputs=inputs, params=params)


def only(state: ExpertsState, domain: str) -> Transform:
    """Return the recipe of the given model with one expert."""
    none = (0.0,) * len(state.started.merges)
    return mixture(state, [domain], (*none, 1.0))
