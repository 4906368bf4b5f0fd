"""Experts as a kind of run: vectors by domain, a search over mixtures, one model that is folded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from events import Event, New
from phases.experts import answers as own_answers
from phases.experts import findings, plan, stages
from phases.experts.config import ExpertsConfig
from phases.experts.events import (
    Completed,
    ExpertsState,
    Fit,
    Fitted,
    Forked,
    GenerationEnded,
    Route,
    Routed,
    Score,
    Scored,
    Started,
    Submitted,
)
from phases.experts.view import ExpertsView
from runs.errors import ConfigError
from runs.kinds.tasks import Decision, Task
from studies import comparison
from studies.events import MODEL
from studies.kind import LISTED as GIVEN_LISTED
from studies.kind import answers, unanswered
from studies.making import making
from studies.making.events import Making
from studies.one_result import OneResult
from studies.training_plan import as_float32

#: Settings that choose among measured mixtures: who survives, is a finalist, may be the result.
CHOOSING_MIXTURES = ("finalists", "apart", "drift")


class Experts(ExpertsView, OneResult[ExpertsState]):
    """Experts that scale a model's singular values, and mixtures of them (phase 7)."""

    name = "experts"
    phase = 7
    package = "phases.experts"
    title = "an experts run"
    line = "train an expert for each domain that a model predicts badly, and search their mixtures"
    config = ExpertsConfig
    submitted = Submitted
    forked = Forked
    state = ExpertsState
    completed = Completed
    result_title = "mixture"
    as_given = (MODEL,)
    together = ("model", "merges")
    listed = GIVEN_LISTED | {GenerationEnded.type, Fitted.type, Routed.type}
    answers: ClassVar[Mapping[type[Event], type]] = {
        **answers(Started),
        Scored: Score,
        Fitted: Fit,
        Routed: Route,
    }
    figures_of: ClassVar[Mapping[str, str]] = findings.FIGURES
    figure_units: ClassVar[Mapping[str, str]] = {"experts": "count", "evaluations": "count"}

    # ---- deciding ----------------------------------------------------------------------------

    def course(self, state: ExpertsState) -> Iterator[Decision]:
        """Yield: decomposition, assessment, experts, the search, its best, dispatch, the test."""
        submitted, started = state.submitted, state.started
        for recipe in (
            as_float32(started),
            plan.given(started),
            plan.decomposition(submitted, started),
            plan.ones(submitted, started),
        ):
            yield making.next_of(state, [recipe], started.segment)
        yield unanswered(state, findings.assessing(state).values())
        trained = [*stages.experts(state).values(), *stages.loras(state).values()]
        yield making.next_of(state, trained, started.segment)
        yield making.next_of(state, [*stages.singles(state).values()], started.segment)
        yield unanswered(state, findings.alone(state).values())
        yield _searched(state)
        made = {one.id: one for one in stages.candidates(state).values()}
        yield making.next_of(state, [*made.values()], started.segment)
        yield unanswered(state, findings.choosing(state).values())
        yield unanswered(state, [*stages.fits(state), *([Route()] if stages.kept(state) else [])])
        found = {one.id: one for one in stages.fitted(state).values()}
        yield making.next_of(state, [*found.values()], started.segment)
        yield unanswered(state, findings.comparing(state).values())

    def conclusions(self, state: ExpertsState) -> dict[str, Any]:
        """Return the fields of `completed` that follow from what was made and measured."""
        return {
            "models": findings.results(state),
            "arms": comparison.arms(findings.found(state)),
            "chosen": findings.result_arm(state),
            "figures": findings.figures(state),
        }

    def unasked(self, state: ExpertsState, task: Task, event: Event) -> str | None:
        """Return why the event does not answer the open task; None if it does."""
        if isinstance(task, Score) and isinstance(event, Scored):
            return own_answers.wrong_scores(state, task, event)
        if isinstance(task, Fit) and isinstance(event, Fitted):
            return own_answers.wrong_fit(state, task, event)
        if isinstance(task, Route) and isinstance(event, Routed):
            return own_answers.wrong_routes(state, event)
        return super().unasked(state, task, event)

    def check_fork(self, state: ExpertsState, changes: Mapping[str, Any]) -> None:
        """Raise ConfigError if a fork at this state may not change these settings.

        Which mixtures are chosen may change until the first finalist is made: a search of an hour need
        not be repeated for that.
        """
        super().check_fork(state, {n: v for n, v in changes.items() if n not in CHOOSING_MIXTURES})
        if changes and _measured_again(state):
            raise ConfigError(
                f"setting {next(iter(changes))} cannot change once a finalist is made. Fork at an "
                "earlier event: the last of the search."
            )

    # ---- asking for a run --------------------------------------------------------------------

    def texts(self, submitted: Any) -> Iterator[tuple[str, str]]:
        """Yield the names of the models and the paths of data."""
        yield from super().texts(submitted)
        yield from ((model.name, "a model's name") for model in submitted.merges)

    def inputs(self, state: ExpertsState) -> dict[str, list[str]]:
        """Return role → digests of the models that were given."""
        merges = [source.digest for source in state.started.merges]
        return {**super().inputs(state), "merges": merges}

    # ---- scheduling --------------------------------------------------------------------------

    def memory(self, state: ExpertsState) -> int:
        """Return the bytes of a model, its decomposition, and what each part adds to it."""
        if state.started is None:
            return 0
        parts = len(state.started.merges) + state.submitted.config.experts
        return (24 + 4 * parts) * state.started.model.parameters

    def needs(self, task: Any) -> str | None:
        """Return the id of the model or snapshot that a task reads; None for mixtures in memory."""
        return None if isinstance(task, Score | Fit | Route) else super().needs(task)

    # ---- results -----------------------------------------------------------------------------

    def named(self, state: ExpertsState) -> Mapping[str, Making]:
        """Return name → recipe of all that the run makes; `model` is there once it is known."""
        return findings.named(state)


def _measured_again(state: ExpertsState) -> bool:
    """Return True once a finalist is made."""
    if state.started is None:
        return False
    return any(recipe.id in state.made for _, recipe in stages.finalists(state).values())


def _searched(state: ExpertsState) -> Decision:
    """Return what is next of every arm of the search: breed, measure, end a generation."""
    facts, tasks = list[New](), list[Task]()
    for arm, search in stages.searches(state).items():
        number, open_ = len(search.ended), list[Task]()
        if len(search.bred) > number:
            open_ = [task for task in search.tasks(number) if task.key not in state.answers]
            tasks += open_
            if open_:
                continue
            facts.append(New(search.end(number), f"{state.run}/ended/{arm}/{number}"))
        elif search.size(number):
            facts.append(New(search.breed(number), f"{state.run}/bred/{arm}/{number}"))
    return Decision(facts=facts) if facts else Decision(tasks=tasks)
