"""Forecast of a bake: its start, its replies and its first steps are done here; nothing is recorded."""

from __future__ import annotations

from pathlib import Path

from evaluation.given_model_runs import training_plan
from evaluation.given_model_runs.events import MODEL
from evaluation.given_model_runs.folders import write_companions
from evaluation.training_text.kept_text import ITEMS
from phases.bake import plan, prompts, stages
from phases.bake.events import BakeState, Submitted
from phases.bake.tasks.execute import Context
from runs.kinds.forecast import Amount, Forecast
from runs.system.durations import duration
from runs.system.stopwatch import timed
from weights.folders import stand_ins
from weights.folders.checkpoint import SHARD_BYTES, write_weights
from weights.storage.weight_cache import Artifacts
from weights.threads import set_threads
from weights.training.canary import STEPS, canary

#: Bytes of a number of the models, which are stored in float32.
STORED = 4


def forecast(submitted: Submitted, cache: Artifacts, folder: Path) -> Forecast:
    """Return what a run costs here. Raises the errors of a start.

    The given model's replies are sampled, and steps are timed; measurements are not.
    """
    set_threads()
    state = BakeState()
    state.take(submitted)
    context = Context(state, cache)
    opening = timed(lambda: state.take(context.started()))
    first, config = context.initial(state.started), submitted.config
    sampling = timed(lambda: state.take(context.carry_out(plan.sample(state)), key=_key(state)))
    recipe = stages.trainings(state)[plan.FULL]
    given = dict.fromkeys(recipe.inputs, first)
    _, stepping = canary(recipe, first, context.streams, inputs=given, device=context.device)
    parameters = state.started.model.parameters
    stand_in = folder / plan.PARENT
    stand_in.mkdir(parents=True)
    write_weights(stand_in, first.weights, SHARD_BYTES)
    write_companions(context, stand_in)
    text = sum(file.stat().st_size for file in context.text.folder.iterdir())
    steps = min(STEPS, config.steps)
    bakes = len(prompts.stages(config))
    models, every = len(stages.recipes(state)) * bakes, config.steps * bakes
    return Forecast(
        Amount(
            opening + sampling + every * stepping / steps,
            f"timed here: the start {duration(opening)}, the replies {duration(sampling)}, {steps} "
            f"steps {duration(stepping)}, and there are {every:,}. Measurements come on top",
        ),
        Amount(
            models * parameters * STORED + text,
            f"counted: {models} models of {parameters:,} numbers in float32, and the text",
        ),
        Amount(
            training_plan.memory(parameters, state.started.trainable),
            "counted: weights, gradients and two moments of the training, and the given model; "
            "activations come on top",
        ),
        {MODEL: stand_ins.write(stand_in, folder / MODEL, MODEL)},
        context.text.folder / ITEMS,
    )


def _key(state: BakeState) -> str:
    """Return the key that the event of the replies is recorded under."""
    return f"{state.run}/{plan.sample(state).key}"
