"""The models of an experts run as recipes: functions of its settings and of what was pinned. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from phases.experts.events import Factors, Started, Submitted
from phases.experts.settings import ExpertsConfig
from studies import given_dtype, training_plan
from studies.making.events import Making
from studies.training_plan import as_float32
from weights.recipes import Algorithm, Train, Transform

#: The given model in float32, its decomposition, and the vectors that experts begin with.
GIVEN, SVD, ONES = "given", "svd", "ones"
#: Beginning of the names of experts, of the given model with one expert, and of a domain's mixture.
EXPERT, ONLY, FITTED = "expert-", "only-", "fitted-"
#: Beginning of the names of models with adapters that are trained as an expert is.
LORA = "lora-"
#: The mean of the further models.
MEAN = "mean-of-models"
#: Points of a search for vectors of which one is followed, and the least deviation of a number.
SHARE, LEAST = 4, 0.001
#: Measure of all models, and the slice that mixtures are searched on.
MEASURE, SEARCH = "bits-per-byte@1", "search"
#: Key of all random draws.
PURPOSE = "experts"


def decomposition(submitted: Submitted, started: Started) -> Transform:
    """Return the recipe of the given model's decomposition."""
    parts = list(submitted.config.parts)
    inputs = {"of": as_float32(started).id}
    return Transform(operation="svf-decompose@1", inputs=inputs, params={"parts": parts})


def ones(submitted: Submitted, started: Started) -> Transform:
    """Return the recipe of the vectors that change nothing."""
    svd = decomposition(submitted, started)
    return Transform(operation="svf-ones@1", inputs={"svd": svd.id})


def first(submitted: Submitted, started: Started) -> dict[str, Making]:
    """Return name → recipe of what experts are made from; the given model as it is measured is first.

    In 16 bits it is rounded from the model in float32.
    """
    return {
        **given_dtype.with_rounded(started, {GIVEN: as_float32(started)}),
        SVD: decomposition(submitted, started),
        ONES: ones(submitted, started),
    }


def trainable(submitted: Submitted, started: Started) -> tuple[str, ...]:
    """Return the domains that an expert may be of: those with training text, not the neutral one.

    Families of tasks are not among them.
    """
    config = submitted.config
    return tuple(d for d in config.domains if d != config.neutral and d in started.streams)


def expert(submitted: Submitted, started: Started, domain: str) -> Train:
    """Return the recipe of the expert of a domain or family: its vectors."""
    config = submitted.config
    first, purpose = ones(submitted, started).id, f"{PURPOSE}/{domain}"
    shares = {domain: 1.0}
    training = training_plan.reading(
        submitted, started, shares, purpose, first, "svf@1", config.rate
    )
    inputs = {"of": as_float32(started).id, "svd": decomposition(submitted, started).id}
    changes = {"params": {"pull": config.pull}, "inputs": inputs, "divergence": config.divergence}
    training = training.model_copy(update=changes)
    if domain in config.families:
        training = _of_family(submitted, started, domain, training)
        changes = {"objective": training.objective, "params": training.params, "pull": config.pull}
        training = training.model_copy(update={"objective": "svf@2", "params": changes})
    return _searched(config, training) if config.train == "cem" else training


def lora(submitted: Submitted, started: Started, domain: str) -> Train:
    """Return the recipe of the given model with adapters, trained as the expert of a domain is.

    By gradients in any case. The run must have adapters.
    """
    config, adapters = submitted.config, started.adapters
    assert adapters is not None
    first, purpose = as_float32(started).id, f"{PURPOSE}/{domain}"
    shares = {domain: 1.0}
    training = training_plan.reading(
        submitted, started, shares, purpose, first, "lm@1", config.lora_rate
    )
    training = training.model_copy(update={"divergence": config.divergence})
    if domain in config.families:
        training = _of_family(submitted, started, domain, training, config.lora_rate)
    params = {
        "objective": training.objective,
        "params": training.params,
        "rank": adapters.rank,
        "alpha": float(adapters.rank),
        "modules": list(adapters.modules),
    }
    return training.model_copy(update={"objective": "lora@1", "params": params})


def _of_family(
    submitted: Submitted, started: Started, family: str, training: Train, rate: float | None = None
) -> Train:
    """Return a training on the answers of a family, or by rewards of replies to its tasks.

    Replies are trained on in as many tokens, and with a rate of their own if none is given.
    """
    config = submitted.config
    if config.train != "reinforce":
        return training.model_copy(update={"objective": "answers@1", "params": {}})
    width = started.longest[family]
    steps = max(1, config.reads(started.context) // (config.replies * width))
    peak = {**training.schedule.params, "peak": rate or config.reinforce_rate}
    reference = {"reference": as_float32(started).id} if config.kl else {}
    return training.model_copy(
        update={
            "objective": "reinforce@1",
            "params": {"kl": config.kl, "baseline": True},
            "inputs": {**training.inputs, **reference},
            "batch": config.replies,
            "context": width,
            "accumulation": 1,
            "schedule": training.schedule.model_copy(update={"params": peak}),
            # A reward has bounds: a loss that leaps is no divergence.
            "divergence": None,
            "steps": steps,
            "upto": steps,
        }
    )


def _searched(config: ExpertsConfig, training: Train) -> Train:
    """Return the search without gradients that reads as many tokens as a training."""
    steps = max(1, training.steps // config.points)
    params = {
        "objective": training.objective,
        "params": training.params,
        "points": config.points,
        "elite": max(1, config.points // SHARE),
        "spread": config.spread,
        "least": LEAST,
    }
    optimiser = Algorithm(name="none@1", params={})
    changed = {"objective": "cem@1", "params": params, "optimiser": optimiser}
    return training.model_copy(update={**changed, "steps": steps, "upto": steps})


def mixture(
    submitted: Submitted, started: Started, experts: Mapping[str, Train], factors: Factors
) -> Transform:
    """Return the recipe of a mixture of the further models and of `experts`, by domain.

    Parts with the factor 0 are left out. A mixture is in the dtype of the given model.
    """
    halved = started.dtype is not None
    inputs = {"of": started.model.recipe_id if halved else as_float32(started).id}
    models: list[float] = []
    vectors: list[float] = []
    for source, factor in zip(started.merges, factors, strict=False):
        if factor:
            inputs[f"model-{len(models):04}"] = source.recipe_id
            models.append(factor)
    for recipe, factor in zip(experts.values(), factors[len(started.merges) :], strict=True):
        if factor:
            inputs[f"expert-{len(vectors):04}"] = recipe.id
            vectors.append(factor)
    if vectors:
        inputs["svd"] = decomposition(submitted, started).id
    params = {"models": models, "experts": vectors}
    operation = "mixture@2" if halved else "mixture@1"
    return Transform(operation=operation, inputs=inputs, params=params)


def of_experts(
    submitted: Submitted, started: Started, experts: Mapping[str, Train], factors: Factors
) -> Transform:
    """Return the recipe of a mixture of experts alone."""
    none = (0.0,) * len(started.merges)
    return mixture(submitted, started, experts, (*none, *factors))


def mean_of_models(submitted: Submitted, started: Started) -> dict[str, Transform]:
    """Return the mean of the further models, by its name; empty without any."""
    count = len(started.merges)
    if not count:
        return {}
    return {MEAN: mixture(submitted, started, {}, (round(1 / count, 6),) * count)}


def trained(
    submitted: Submitted, started: Started, bits: Mapping[str, float], solved: Mapping[str, float]
) -> tuple[dict[str, Train], dict[str, Train], dict[str, Making]]:
    """Return domain → expert, and name → adapters beside it, and the given model with it alone.

    Experts are of the domains that are predicted worst, by their `bits` per byte, and of the families
    whose tasks are `solved` least, as many of each at most.
    """
    config, pins = submitted.config, (submitted, started)
    # Runs of an earlier version may have a domain without text to choose by: no expert is of it.
    domains = [domain for domain in trainable(*pins) if domain in bits]
    worst = sorted(domains, key=lambda domain: (-bits[domain], domain))[: config.experts]
    weak = [family for family in solved if solved[family] < config.weak]
    least = sorted(weak, key=lambda family: (solved[family], family))[: config.experts]
    experts = {domain: expert(*pins, domain) for domain in (*worst, *least)}
    return (
        experts,
        {f"{LORA}{domain}": lora(*pins, domain) for domain in experts if started.adapters},
        {
            f"{ONLY}{d}": of_experts(*pins, {d: expert_recipe}, (1.0,))
            for d, expert_recipe in experts.items()
        },
    )
