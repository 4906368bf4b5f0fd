"""Recipes and events of a cognate run, and upcasters for its earlier schemas. Pure.

The models' recipes are a function of the run's settings and of what was pinned.
"""

from __future__ import annotations

import math

from agent_forge.phases.cognate.settings import CognateConfig, Preset
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.event_types import (
    Count,
    EventPart,
    HalfPrecision,
    Large,
    ModelReference,
    SourceRecord,
)
from agent_forge.runs.record import events as run_events
from agent_forge.runs.record.device_setting import on_cpu
from agent_forge.studies import events, given_dtype, training_plan
from agent_forge.studies.events import (
    TextStarted,
    all_weights,
    earlier_settings,
    history,
    not_rounded,
    without_adapters,
)
from agent_forge.studies.making.making import Making
from agent_forge.studies.study_view import Plain
from agent_forge.studies.training_plan import CLIP, FLOOR, precision
from agent_forge.weights.operations import average
from agent_forge.weights.recipes import Algorithm, Train, Transform

#: The base, and the weights that its training begins with.
BASE, UNTRAINED = "base", "untrained"
OBJECTIVE = "lm@1"
#: Setting → optimiser. A recipe has every parameter, so that its id depends on all of them.
OPTIMISERS = {
    **training_plan.OPTIMISERS,
    "mugrokfast": Algorithm(
        name="mugrokfast@1",
        params={**training_plan.OPTIMISERS["muon"].params, "grokfast_lambda": 0.3, "tau": 100.0},
    ),
}


def fresh(config: CognateConfig) -> Transform:
    """Return the recipe of the weights that a base begins with."""
    operation, shape = config.size.initialisation()
    return Transform(operation=operation, params=shape, seed=config.seed)


def initial(submitted: Submitted, started: Started) -> Transform:
    """Return the recipe of the base's first weights, or of the given base in float32."""
    return fresh(submitted.config) if started.base is None else training_plan.as_float32(started)


def common(submitted: Submitted, started: Started) -> dict[str, float]:
    """Return domain → share of the common mix of text; the shares add up to 1."""
    config = submitted.config
    if config.mix:
        total = math.fsum(config.mix.values())
        return {domain: weight / total for domain, weight in sorted(config.mix.items())}
    if submitted.data:
        return {domain: 1 / len(started.streams) for domain in sorted(started.streams)}
    return dict(config.size.base_mix)


def base(submitted: Submitted, started: Started) -> Making:
    """Return the recipe of the trained base, or of the given base, which is not trained."""
    start = initial(submitted, started)
    if started.base is not None:
        return start
    size = submitted.config.size
    peak = submitted.config.base_rate or size.base_rate
    mix = common(submitted, started)
    return _training(submitted, started, BASE, start.id, mix, size.base_tokens, peak)


def specialists(submitted: Submitted, started: Started) -> dict[str, Train]:
    """Return domain → recipe of the training of its specialist, which starts from the base."""
    config, size = submitted.config, submitted.config.size
    start = result(config, base(submitted, started)).id
    mix = common(submitted, started)
    peak = config.specialist_rate or size.specialist_rate
    objective, params = training_plan.adapted(config, OBJECTIVE, {})
    trainings = {}
    for domain in config.domains:
        shares = size.specialist_mix(domain, mix)
        training = _training(submitted, started, domain, start, shares, size.specialist_tokens, peak)
        trainings[domain] = training.model_copy(update={"objective": objective, "params": params})
    return trainings


def result(config: CognateConfig, recipe: Making) -> Making:
    """Return the recipe of a training's model: its last step, or the average of snapshots."""
    if config.average == 1 or not isinstance(recipe, Train):
        return recipe
    return average.averaged(recipe, config.average, config.average_as)


def snapshots(config: CognateConfig, recipe: Making) -> list[Making]:
    """Return the recipes of the snapshots that a training's model is averaged from; or only its own."""
    if config.average == 1 or not isinstance(recipe, Train):
        return [recipe]
    return list(average.snapshots(recipe, config.average))


def unaveraged(submitted: Submitted, started: Started) -> dict[str, Making]:
    """Return role → recipe of the base and of every specialist's last step, before averages."""
    return {BASE: base(submitted, started), **specialists(submitted, started)}


def named(submitted: Submitted, started: Started) -> dict[str, Making]:
    """Return name → recipe of everything that the run makes; a given base is there once."""
    config, roles = submitted.config, unaveraged(submitted, started)
    results = {role: result(config, recipe) for role, recipe in roles.items()}
    recipes = given_dtype.with_rounded(started, results)
    first = initial(submitted, started)
    names = [name for name, recipe in recipes.items() if recipe == first]
    return {
        **dict.fromkeys(names or [UNTRAINED], first),
        **{
            f"{role} after {snapshot.upto:,} steps": snapshot
            for role, recipe in roles.items()
            for snapshot in snapshots(config, recipe)
            if config.average > 1 and isinstance(snapshot, Train)
        },
        **recipes,
    }


def window(config: CognateConfig, positions: int | None) -> int:
    """Return the number of tokens of a window: the setting, or the base's own limit if smaller.

    `positions` is the longest sequence that a given base takes; None: any. Raises ConfigError if the
    user asks for more.
    """
    context = config.context
    if positions is not None and context is not None and context > positions:
        raise ConfigError(f"context is {context}, the base takes {positions} tokens at most.")
    return min(config.size.context, positions or config.size.context)


def steps(size: Preset, context: int, tokens: int) -> int:
    """Return the number of training steps that read `tokens` tokens; at least 1."""
    return max(1, tokens // (size.batch * context))


def memory(config: CognateConfig, started: Started) -> int:
    """Return the bytes of weights, gradients and optimiser in the largest training, in all processes.

    With adapters: the frozen weights, and merged ones beside them when a snapshot is written.
    """
    copies = 1 if config.sharded else config.processes
    if started.trainable is None or started.base is None:
        return 16 * copies * started.parameters
    return copies * training_plan.memory(started.parameters, started.trainable)


def _training(
    submitted: Submitted,
    started: Started,
    role: str,
    start: str,
    mix: dict[str, float],
    tokens: int,
    peak: float,
) -> Train:
    config, size = submitted.config, submitted.config.size
    count = steps(size, started.context, tokens)
    recipe = Train(
        objective=OBJECTIVE,
        start=start,
        data=mix,
        data_digests={domain: started.streams[domain] for domain in mix},
        batch=size.batch,
        context=started.context,
        accumulation=started.accumulation,
        optimiser=OPTIMISERS[config.optimiser],
        schedule=_schedule(config, peak),
        precision=precision(config.precision, started),
        checkpointing=config.checkpointing,
        clip=CLIP,
        divergence=config.divergence,
        seed=config.seed,
        purpose=role,
        steps=count,
        upto=count,
    )
    snapshots(config, recipe)  # refuses too few steps, before anything is trained
    return recipe


def _schedule(config: CognateConfig, peak: float) -> Algorithm:
    """Return the schedule of learning rates: constant if snapshots are averaged, otherwise cosine."""
    warm = {"peak": peak, "warmup": config.size.warmup}
    if config.average > 1:
        return Algorithm(name="constant@1", params=warm)
    return Algorithm(name="cosine@1", params={**warm, "floor": FLOOR})


class Submitted(run_events.Submitted):
    """A cognate run was asked for."""

    schema_version = 9

    config: CognateConfig
    #: The model that specialists are trained of; None: a base is trained from scratch.
    base: ModelReference | None = None
    #: Files and folders of text, each PATH or DOMAIN=PATH; none: the built-in text.
    data: tuple[str, ...] = ()

    @property
    def model(self) -> ModelReference | None:
        """The given model, by the name that it has in all kinds of run."""
        return self.base


class Started(TextStarted):
    """Text, tokenizer and profile were pinned."""

    schema_version = 3

    parameters: Large
    #: Parameters of a specialist's adapters; None: all weights are trained.
    trainable: Large | None = None
    #: The model that was given as the base.
    base: SourceRecord | None = None
    #: Parts that a step's windows are computed in, because all at once did not fit in memory.
    accumulation: Count = 1
    #: Half precision that the given model has and results are rounded to; None: results are float32.
    dtype: HalfPrecision | None = None

    @property
    def model(self) -> SourceRecord | None:
        """The given model, by the name that it has in all kinds of run."""
        return self.base


class Lead(EventPart):
    """A specialist's lead on its own domain: the bits per byte that the next best model needs more.

    The interval is the middle 95 % of a paired bootstrap over windows.
    """

    rival: str
    difference: float
    low: float
    high: float


class Result(events.Result):
    """A model that the run gives."""

    #: Domain → bits per byte on the selection slice.
    bits_per_byte: dict[str, float]
    #: A specialist's lead; the base has none.
    lead: Lead | None = None


class Completed(run_events.Completed):
    """Base and specialists are made and measured."""

    #: Role → the model.
    models: dict[str, Result]


def _of_presets_vocabulary(data: Plain) -> Plain:
    """Return the data with `vocabulary` None, the preset's size; without a device, it is the CPU."""
    data = on_cpu(data)
    return {**data, "config": {**data["config"], "vocabulary": None}}


CognateState = history(
    "cognate",
    *(Submitted, Started, Completed),
    requests=(
        earlier_settings(sharded=False),
        dict,  # schema 3 only allows one preset more
        earlier_settings(divergence=None, checkpointing=False),
        earlier_settings(architecture="qwen2", memory="linear", recursions=1, halting=False),
        *(_of_presets_vocabulary, all_weights),
        earlier_settings(average=1, average_as="linear"),
        dict,  # schema 9 only allows automatic precision
    ),
    starts=(without_adapters, not_rounded),
)
