"""The models of a student run as recipes: a function of its settings and of what was pinned. Pure."""

from __future__ import annotations

from phases.student.events import Started, StudentState, Submitted
from studies.making.events import Making
from studies.training_plan import training
from weights.recipes import Train, Transform

#: Arms: the given model, the student that learns from it, and the same without it.
TEACHER, DISTILLED, ALONE = "teacher", "distilled", "alone"
#: The new weights that both students begin with.
FRESH = "fresh"
#: Key of the random draws of both trainings: they read the same windows.
PURPOSE = "student"


def fresh(submitted: Submitted, started: Started) -> Transform:
    """Return the recipe of the new weights."""
    sizes = {name: list(v) if isinstance(v, tuple) else v for name, v in started.sizes.items()}
    return Transform(
        operation="resized@1",
        inputs={"of": started.model.recipe_id},
        params={"changes": sizes},
        seed=submitted.config.seed,
    )


def distilled(submitted: Submitted, started: Started) -> Train:
    """Return the recipe of the student that learns from the given model."""
    config = submitted.config
    params = {"weight": config.distillation, "temperature": config.temperature}
    teacher = {"teacher": started.model.recipe_id}
    first, rate, watch = fresh(submitted, started).id, config.rate, config.divergence
    return training(submitted, started, PURPOSE, first, "distil@1", params, rate, teacher, watch)


def alone(submitted: Submitted, started: Started) -> Train:
    """Return the recipe of the same student without a teacher."""
    config, first = submitted.config, fresh(submitted, started).id
    return training(
        submitted, started, PURPOSE, first, "lm@1", {}, config.rate, divergence=config.divergence
    )


def students(state: StudentState) -> dict[str, Train]:
    """Return arm → recipe of every student that the run trains."""
    submitted, started = state.submitted, state.started
    found = {DISTILLED: distilled(submitted, started)}
    return found | ({ALONE: alone(submitted, started)} if submitted.config.alone else {})


def recipes(state: StudentState) -> dict[str, Making]:
    """Return name → recipe of all that the run makes, each after those that it reads."""
    return {FRESH: fresh(state.submitted, state.started), **students(state)}
