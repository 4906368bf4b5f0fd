"""Recipes of trainings from a given model: a function of settings and of what was pinned. Pure.

`submitted` has `config` (`TextConfig`) and `data`; `started` has `streams`, `tokens`, `context`.
No setting changes the constants here; optimisers have all of their parameters written out.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Literal

from agent_forge.events.envelope import Plain
from agent_forge.runs.errors import ConfigError, DataError
from agent_forge.studies.settings import MIX, Adapted, Precision, StepsConfig
from agent_forge.weights.recipes import Algorithm, Train, Transform

if TYPE_CHECKING:
    from agent_forge.studies.events import GivenSubmitted, TextStarted

#: Share of the steps in which the learning rate rises.
WARMUP = 0.1
#: Tokens of a window without a setting, if the model takes as many.
CONTEXT = 256


def mix(submitted: GivenSubmitted, started: TextStarted) -> dict[str, float]:
    """Return domain → share of what is trained on; the shares add up to 1."""
    weights = submitted.config.mix
    if weights is None:
        weights = dict.fromkeys(started.streams, 1.0) if submitted.data else MIX
    total = math.fsum(weights.values())
    return {domain: weight / total for domain, weight in sorted(weights.items())}


def window(config: StepsConfig, positions: int | None) -> int:
    """Return the number of tokens of a window; `positions`: the longest sequence of the model.

    Raises ConfigError if the user asks for more.
    """
    if positions is not None and config.context is not None and config.context > positions:
        raise ConfigError(f"context is {config.context}, the model takes {positions} tokens at most.")
    return config.context or min(CONTEXT, positions or CONTEXT)


def readings(
    submitted: GivenSubmitted, started: TextStarted, unread: Collection[str] = ()
) -> list[str]:
    """Return a note for each text that a training reads more than `READINGS` times over.

    `unread` are domains that it does not read as text.
    """
    tokens, notes = submitted.config.reads(started.context), list[str]()
    for domain, share in mix(submitted, started).items():
        times = tokens * share / started.tokens[domain]
        if times > READINGS and domain not in unread:
            notes.append(
                f"each training reads the text of {domain} {times:.0f} times over: give it more "
                "text, or fewer tokens to train on."
            )
    return notes


def tokens(training: Train) -> int:
    """Return the number of tokens that a training reads."""
    return training.steps * training.batch * training.context


def as_float32(started: Any) -> Transform:
    """Return the recipe of the given model in float32."""
    return Transform(operation="float32@1", inputs={"of": started.model.recipe_id})


def adapted(
    config: Adapted, objective: str, params: Plain, version: str = "lora@1"
) -> tuple[str, Plain]:
    """Return (objective, parameters) of a training, of adapters if set. `params` must be complete.

    `version` is that of the adapters' objective; kinds that have recorded runs with one keep it.
    """
    if config.train == "full":
        return objective, params
    return version, {
        "objective": objective,
        "params": params,
        "rank": config.lora_rank,
        "alpha": config.lora_alpha,
        "modules": list(config.lora_modules),
    }


def memory(parameters: int, trainable: int | None) -> int:
    """Return the bytes of weights, gradients and optimiser of a training, and of its teacher.

    `trainable` are the parameters of adapters; None: all weights are trained.
    """
    return 20 * parameters if trainable is None else 8 * parameters + 16 * trainable


def training(
    submitted: GivenSubmitted,
    started: TextStarted,
    purpose: str,
    first: str,
    objective: str,
    params: Plain,
    peak: float,
    inputs: dict[str, str] | None = None,
    divergence: float | None = None,
) -> Train:
    """Return the recipe of a training from the recipe `first`; all of a purpose read the same windows.

    `peak` is the highest learning rate, `inputs` are further models that the objective reads. A kind
    whose `started` has `accumulation` may divide a step further than its settings say.
    """
    shares = mix(submitted, started)
    recipe = reading(submitted, started, shares, purpose, first, objective, peak)
    changes = {"params": params, "inputs": inputs or {}, "divergence": divergence}
    return recipe.model_copy(update=changes)


def reading(
    submitted: GivenSubmitted,
    started: TextStarted,
    shares: dict[str, float],
    purpose: str,
    first: str,
    objective: str,
    peak: float,
) -> Train:
    """Return the recipe of a training on streams by their shares, without further parameters.

    `submitted` needs settings of `StepsConfig`, and `seed`.
    """
    config, count = submitted.config, submitted.config.steps_of(started.context)
    divided = getattr(started, "accumulation", None)
    schedule = {"peak": peak, "warmup": WARMUP, "floor": FLOOR}
    return Train(
        objective=objective,
        start=first,
        data=shares,
        data_digests={name: started.streams[name] for name in shares},
        batch=config.batch,
        context=started.context,
        accumulation=divided or config.accumulation,
        optimiser=OPTIMISERS[config.optimiser],
        schedule=Algorithm(name="cosine@1", params=schedule),
        precision=precision(config.precision, started),
        checkpointing=config.checkpointing,
        clip=CLIP,
        seed=config.seed,
        purpose=purpose,
        steps=count,
        upto=count,
    )


def precision(setting: Precision, started: TextStarted) -> Literal["float32", "bfloat16"]:
    """Return the dtype of the passes of a run's trainings: as set, or by "auto" the profile's."""
    if setting != "auto":
        return setting
    return "bfloat16" if started.profile.dtype == "bfloat16" else "float32"


#: Parameters from which `auto` computes passes in bfloat16: smaller models, for which casts take more
#: than products gain, keep the same bits on processors without this arithmetic.
BFLOAT16_FROM = 5_000_000
#: Largest norm of the gradient; share of the peak learning rate that is left at the end.
CLIP, FLOOR = 1.0, 0.1
#: Times that a text may be read over without a note: about as good as new text (arXiv 2305.16264, §6).
READINGS = 4
#: Setting → optimiser. A recipe has every parameter, so that its id says all.
OPTIMISERS = {
    "adamw": Algorithm(
        name="adamw@1", params={"beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.1}
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


def divided(windows: int, requested_parts: int, parts: int) -> list[str]:
    """Return one note if a step is computed in more parts than the settings ask for, else []."""
    if parts <= requested_parts:
        return []
    whole = "at once" if requested_parts == 1 else f"in {requested_parts} parts"
    return [
        f"a step's {windows} windows take too much memory {whole}: they are computed in {parts} parts."
    ]


def check_lengths(started: TextStarted) -> None:
    """Raise DataError if the text of a domain is too short for one window."""
    needed = started.context + 2
    for domain, tokens in started.tokens.items():
        if tokens < needed:
            raise DataError(
                f"the text of domain {domain} has {tokens} tokens: a window of {started.context} needs "
                f"at least {needed}. Give more text, or set a smaller context."
            )
