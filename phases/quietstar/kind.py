"""Quiet-STaR as a kind of run: a model learns to think, beside what costs as much without thoughts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from events import Event
from phases.quietstar import findings, hard_tokens, plan
from phases.quietstar.config import QuietstarConfig
from phases.quietstar.events import (
    Completed,
    Forked,
    Freeze,
    HardTokensFrozen,
    QuietstarState,
    Started,
    Submitted,
)
from phases.quietstar.view import QuietstarView
from runs.kinds.tasks import Decision, Task
from studies.comparison import CHOOSING, TEST
from studies.events import MODEL
from studies.kind import answers, unanswered
from studies.making import making
from studies.making.events import Making
from studies.observing import Observe, Observed
from studies.one_result import OneResult
from studies.training_plan import as_float32


class Quietstar(QuietstarView, OneResult[QuietstarState]):
    """A model that thinks before each token (phase 3)."""

    name = "quietstar"
    phase = 3
    package = "phases.quietstar"
    title = "a quietstar run"
    line = "train a model to think before each token, and see if its thoughts help"
    config = QuietstarConfig
    submitted = Submitted
    forked = Forked
    state = QuietstarState
    completed = Completed
    result_title = "model"
    answers: ClassVar[Mapping[type[Event], type]] = {**answers(Started), HardTokensFrozen: Freeze}
    figures_of: ClassVar[Mapping[str, str]] = findings.FIGURES
    figure_units: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("gain", "over_continued", "over_pause", "genuine"), "nats/token"),
        **dict.fromkeys(("exchanged", "gain_on_selection", "hard_nats", "moved"), "nats/token"),
    }
    as_given = (MODEL,)

    # ---- deciding ----------------------------------------------------------------------------

    def course(self, state: QuietstarState) -> Iterator[Decision]:
        """Yield what is to do before the end: the hard tokens come before any training."""
        for recipe in (as_float32(state.started), plan.recipes(state)[plan.START]):
            yield making.next_of(state, [recipe], state.started.segment)
        yield unanswered(state, findings.freezing(state))
        yield from super().course(state)

    def stages(self, state: QuietstarState) -> Iterator[Sequence[Making]]:
        """Yield the recipes that are made at the same time, each after those that it reads."""
        recipes, trainings = plan.recipes(state), plan.trainings(state)
        arms = (plan.CONTINUED, plan.PAUSE, plan.THOUGHTS)
        yield [recipes[plan.BASE]]
        yield [recipes[name] for name in (plan.PAUSING, plan.THINKING)]
        yield [trainings[name] for name in arms]
        yield [recipes[name] for name in arms]
        yield [recipes[plan.SILENT]]

    def questions(self, state: QuietstarState) -> Iterator[Mapping[str, Observe]]:
        """Yield what all arms are compared by; a model with two names is measured once."""
        yield {task.key: task for task in findings.observations(state)}

    def conclusions(self, state: QuietstarState) -> dict[str, Any]:
        """Return the fields of `completed` that follow from what was made and measured."""
        return {
            "models": findings.results(state),
            "arms": findings.arms(state),
            "chosen": findings.chosen(state),
            "figures": findings.figures(state),
        }

    def unasked(self, state: QuietstarState, task: Task, event: Event) -> str | None:
        """Return why the event does not answer the open task; None if it does."""
        if isinstance(task, Freeze) and isinstance(event, HardTokensFrozen):
            if (event.recipe_id, event.on) != (task.recipe_id, task.on):
                return "the hard tokens are of another model or slice than was asked for"
            return hard_tokens.wrong(event, state.submitted.config.hard)
        wrong = super().unasked(state, task, event)
        if wrong or not isinstance(event, Observed):
            return wrong
        return _elsewhere(state, event)

    # ---- scheduling --------------------------------------------------------------------------

    def memory(self, state: QuietstarState) -> int:
        """Return the bytes of weights, gradients and optimiser of one training, and of a teacher."""
        if state.started is None:
            return 0
        teacher = 4 if state.submitted.config.kl else 0
        return (16 + teacher) * state.started.model.parameters

    def needs(self, task: Any) -> str | None:
        """Return the id of the model or snapshot that a task reads."""
        return task.recipe_id if isinstance(task, Freeze) else super().needs(task)

    # ---- results -----------------------------------------------------------------------------

    def named(self, state: QuietstarState) -> Mapping[str, Making]:
        """Return name → recipe of all that the run makes; `model` is there once it is known."""
        return findings.named(state)

    def measured(self, arm: Any) -> Mapping[str, float]:
        """Return what the model registry lists of an arm: nats a token, hard ones and all."""
        return {
            **{f"{domain} hard nats": value for domain, value in arm.hard.items()},
            **{f"{domain} nats": value for domain, value in arm.every.items()},
        }


def _elsewhere(state: QuietstarState, event: Observed) -> str | None:
    """Return that an arm was not measured on the frozen tokens; None if it was."""
    assert event.on in (CHOOSING, TEST)
    pinned = findings.frozen(state, event.on)
    if pinned is None:
        return "the hard tokens were not frozen before"
    wanted = {f"{findings.EVERY}/{domain}": sizes for domain, sizes in pinned.sizes.items()}
    for domain, documents in pinned.tokens.items():
        wanted[f"{findings.HARD}/{domain}"] = tuple(map(len, documents))
    own = {n: tuple(s) for n, s in event.sizes.items() if not n.startswith(f"{findings.WEIGHT}/")}
    return None if own == wanted else "it was measured on other tokens than those that were frozen"
