"""Costs of an experts run: steps, and mixtures by what the given model takes as one."""

from __future__ import annotations

from agent_forge.phases.experts import recipes
from agent_forge.phases.experts.recipes import MEASURE, SEARCH
from agent_forge.phases.experts.scoring import joined, sums
from agent_forge.phases.experts.search.generations import spaces
from agent_forge.phases.experts.work import Context
from agent_forge.runs.kinds.forecast import Amount
from agent_forge.runs.system.durations import duration, timed
from agent_forge.studies.work import Costs, Part
from agent_forge.weights.tensors import Model
from agent_forge.weights.training.canary import STEPS

#: Bytes of a number of a part in float32, and of a model's factors in float64.
STORED, FACTORED = 4, 16


def costs(context: Context) -> Costs:
    """Return the forecast of a started run; dispatch and comparison are not timed."""
    submitted, started = context.state.submitted, context.state.started
    config, stepping = submitted.config, context.step_seconds()
    domains = recipes.trainable(submitted, started)[: config.experts]
    domains += config.families[: config.experts]
    trainings = [recipes.expert(submitted, started, domain) for domain in domains]
    if started.adapters:
        trainings += [recipes.lora(submitted, started, domain) for domain in domains]
    experts, steps = len(domains), sum(training.steps for training in trainings)
    trial = min(STEPS, trainings[0].steps)
    arms = len(spaces(len(started.merges), ("",) * experts))
    first = context.model(context.record.recipe_id)
    scoring = _scoring(context, first) if config.evaluations else 0.0
    searched, parts = arms * config.evaluations, experts + len(started.merges)
    mixtures = 1 + experts + config.finalists * arms
    parameters = started.model.parameters
    return Costs(
        parts=(
            Part(
                steps * stepping / trial,
                f"{trial} steps of an expert {duration(stepping)}, and there are {steps:,} of all "
                "kinds",
            ),
            Part(
                searched * scoring,
                f"a mixture {duration(scoring)}, and there are {searched:,} at most",
            ),
        ),
        models=1 + len(trainings) + (0 if started.dtype else mixtures),
        rounded=mixtures + 1,
        numbers=parameters,
        besides="Dispatch and the comparison",
        further=(parameters * FACTORED, " at most, the decomposition"),
        memory=Amount(
            parameters * (2 * FACTORED + STORED * parts),
            "counted: a model, its decomposition and what each part adds; activations come on top",
        ),
        first=first,
    )


def _scoring(context: Context, model: Model) -> float:
    """Return the seconds that a measurement on the windows of the search takes."""
    resident = context.loaded(model, MEASURE)
    windows = joined([*context.measured(SEARCH).values()])
    return timed(lambda: sums(resident, windows))
