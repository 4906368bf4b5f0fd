"""The models of a quietstar run as recipes: a function of its settings and of what was pinned. Pure."""

from __future__ import annotations

from typing import Any

from phases.quietstar.events import Started, Submitted
from phases.quietstar.settings import QuietstarConfig
from runs.errors import ConfigError
from studies import given_dtype
from studies.making.events import Making
from studies.training_plan import as_float32, training
from weights.recipes import Train, Transform

#: Key of the random draws of all arms: they read the same windows.
PURPOSE = "quietstar"
#: The given model in float32, and the trained base that the arms branch from.
START, BASE = "start", "base"
#: Arms: ordinary training, the same computation without thoughts, thoughts.
CONTINUED, PAUSE, THOUGHTS = "continued", "pause", "thoughts"
#: The models that the last two begin with, and the one with thoughts as an ordinary model.
PAUSING, THINKING, SILENT = "pausing", "thinking", "silent"
#: The arm whose thoughts are exchanged between positions; it is measured, not made.
SHUFFLED = "shuffled"
#: Tokens of a window without a setting, if the model takes as many.
CONTEXT = 64
#: Tokens of a window, at least.
SHORTEST = 8


def layers(config: QuietstarConfig) -> int:
    """Return the places that a thought needs beyond a token: start, thought, end, text after it."""
    return max(config.thought_lengths) + 1 + config.ahead


def window(config: QuietstarConfig, longest: int | None) -> int:
    """Return the tokens of a window. `longest` is the longest sequence that the model takes.

    Raises ConfigError if window and thoughts do not fit.
    """
    if longest is None:
        return config.context or CONTEXT
    room = longest - layers(config)
    if room < (config.context or SHORTEST):
        raise ConfigError(
            f"a window of {config.context or SHORTEST} tokens and {layers(config)} places for thoughts "
            f"are more than the {longest} tokens that the model takes: set a smaller context, shorter "
            "thought_lengths or ahead."
        )
    return config.context or min(CONTEXT, room)


def base(submitted: Submitted, started: Started) -> Making:
    """Return the recipe of the model that the arms branch from."""
    config, first = submitted.config, as_float32(started)
    if not config.base_tokens:
        return first
    base_training = _plain(submitted, started, f"{PURPOSE}/base", first.id)
    steps = max(1, config.base_tokens // (config.batch * started.context))
    return base_training.model_copy(update={"steps": steps, "upto": steps})


def _plain(submitted: Submitted, started: Started, purpose: str, first: str) -> Train:
    config = submitted.config
    return training(
        *(submitted, started, purpose, first, "lm@1", {}, config.rate),
        divergence=config.divergence,
    )


def initial(submitted: Submitted, of: str, pause: bool) -> Transform:
    """Return the recipe of a model with a new part for thoughts, or for pauses."""
    config = submitted.config
    params: dict[str, Any] = {"weight": config.weight, "pause": pause}
    return Transform(
        operation="thoughts-init@1", inputs={"of": of}, params=params, seed=config.seed
    )


def thinking(
    submitted: Submitted, started: Started, first: str, teacher: str, pause: bool
) -> Train:
    """Return the recipe of a training with thoughts, or pauses, from the recipe `first`."""
    config = submitted.config
    params: dict[str, Any] = {
        "thinks": "pause" if pause else "sampled",
        "lengths": list(config.thought_lengths),
        "passes": config.passes,
        "ahead": config.ahead,
        "temperature": config.temperature,
        "own": config.own,
        "settling": config.settling,
        "policy": config.policy,
        "kl": config.kl,
    }
    inputs = {"teacher": teacher} if config.kl else {}
    return training(
        *(submitted, started, PURPOSE, first, "thoughts@1", params, config.rate, inputs),
        divergence=config.divergence,
    )


def models(submitted: Submitted, started: Started) -> dict[str, Making]:
    """Return name → recipe of all that the run makes, each after those that it reads."""
    first, common = as_float32(started), base(submitted, started)
    pausing = initial(submitted, common.id, True)
    thoughtful = initial(submitted, common.id, False)
    arms = {
        CONTINUED: _plain(submitted, started, PURPOSE, common.id),
        PAUSE: thinking(submitted, started, pausing.id, common.id, True),
        THOUGHTS: thinking(submitted, started, thoughtful.id, common.id, False),
    }
    # What the given model lacks, the part for thoughts, stays float32.
    recipes_by_name = given_dtype.with_rounded(started, arms, dtype="float32")
    return {
        **given_dtype.with_rounded(started, {START: first}),
        BASE: common,
        PAUSING: pausing,
        THINKING: thoughtful,
        **recipes_by_name,
        SILENT: Transform(
            operation="thoughts-removed@1", inputs={"of": recipes_by_name[THOUGHTS].id}
        ),
    }
