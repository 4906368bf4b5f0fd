"""The rule of the cycles: what an iteration needs next, how it ended, when a cycle does. Pure.

An iteration bakes the verified turns of the current model under a prompt, at a part of the strength.
Its model is kept if it solves at least as much of the selection slice as the model before, else that
one goes on and the cycle ends. A cycle also ends if there is nothing to bake, or on a plateau: the
slope of the moving average of its scores is below ε. The other cycle goes on then; none does if this
one has gained less than ε and the one before it gained as little, or had no more to bake. So no model
is baked twice alike.
"""

from __future__ import annotations

from collections.abc import Sequence

from evaluation.trajectories.sampled import Sampled
from events import Event, New
from phases.baking import findings, plan, plateau
from phases.baking.config import LEAST, BakingConfig, Cycle
from phases.baking.events import (
    BakingState,
    CycleSwitched,
    IterationEnded,
    Propose,
    Proposed,
    Reason,
)
from phases.baking.plan import Round
from runs.kinds.tasks import Decision, Task
from studies.making import making
from studies.observing import Observe, Observed
from weights.training.trajectories import BAKED


def next_of(state: BakingState) -> Decision:
    """Return what is next of the cycles; nothing once they have ended."""
    switched = switching(state)
    if switched is not None:
        return _fact(state, switched, f"switch/{switched.iteration}")
    last = [*plan.rounds(state)][-1]
    return Decision() if last.ended else _iteration(state, last)


def _fact(state: BakingState, event: Event, key: str) -> Decision:
    return Decision(facts=[New(event, f"{state.run}/{key}")])


# ---- an iteration --------------------------------------------------------------------------------


def _iteration(state: BakingState, one: Round) -> Decision:
    """Return what is next of the iteration that is under way: a task, or how it ended."""
    config: BakingConfig = state.submitted.config
    if one.cycle == "personas":
        asked: list[Task] = [Propose(one.start.id)]
        proposed = state.answers.get(asked[0].key)
        if not isinstance(proposed, Proposed):
            return Decision(tasks=asked)
        if not proposed.personas:
            return _nothing(state, one, "the model proposes no persona")
        task = findings.auditioned(one.start)
        if task.key not in state.answers:
            return Decision(tasks=[task])
        if findings.persona(state, one.start) is None:
            return _nothing(state, one, "no persona solves more than the model without one")
    sampling = plan.sample(config, one.cycle, one.start)
    if one.written is None:
        return Decision(tasks=[sampling])
    if one.written.streams[BAKED].trajectories < LEAST:
        return _nothing(state, one, _few(one.written))
    return _baked(state, one)


def _few(written: Sampled) -> str:
    return f"{written.streams[BAKED].trajectories} turns under the prompt led to a solved task"


def _baked(state: BakingState, one: Round) -> Decision:
    """Return what is next of an iteration that has turns to bake."""
    assert one.written is not None
    config, segment = state.submitted.config, state.started.segment
    end = plan.full(state, one.start, one.written)
    model = plan.half(config, one.start, end)
    given = findings.given(state, model)
    for recipe in (end, model, given):
        decision = making.next_of(state, [recipe], segment)
        if decision.facts or decision.tasks:
            return decision
    wanted = (findings.scored(given), findings.apart(given))
    missing = [task for task in wanted if task.key not in state.answers]
    if missing:
        return Decision(tasks=missing)
    before, after = _before(state, one), _score(state, wanted[0])
    personas = one.cycle == "personas"
    ended = IterationEnded(
        iteration=one.number,
        cycle=one.cycle,
        outcome="kept" if after >= before else "reverted",
        before=before,
        after=after,
        persona=findings.persona(state, one.start) if personas else None,
        why="",
    )
    return _fact(state, ended, f"iteration/{one.number}")


def _before(state: BakingState, one: Round) -> float:
    """Return the score of the model that an iteration begins with."""
    return _score(state, findings.scored(findings.given(state, one.start)))


def _score(state: BakingState, task: Observe) -> float:
    found = state.answers[task.key]
    assert isinstance(found, Observed)
    return findings.score(found)


def _nothing(state: BakingState, one: Round, why: str) -> Decision:
    """Return the end of an iteration that has nothing to bake."""
    before = _before(state, one)
    ended = IterationEnded(
        iteration=one.number,
        cycle=one.cycle,
        outcome="nothing",
        before=before,
        after=None,
        persona=None,
        why=why,
    )
    return _fact(state, ended, f"iteration/{one.number}")


# ---- the end of a cycle ----------------------------------------------------------------------------


def switching(state: BakingState) -> CycleSwitched | None:
    """Return the switch that follows from the iterations; None if the cycle goes on."""
    config: BakingConfig = state.submitted.config
    since = state.switches[-1].iteration if state.switches else 0
    phase = state.iterations[since:]
    if not phase or (state.switches and state.switches[-1].next is None):
        return None
    scores = _scores(phase)
    slope = plateau.found(scores, config.smoothing, config.window)
    reason = _reason(config, phase[-1], len(state.iterations), slope)
    if reason is None:
        return None
    others: list[Cycle] = [cycle for cycle in config.cycles if cycle != phase[-1].cycle]
    over = reason == "limit" or not others or _exhausted(state, scores)
    return CycleSwitched(
        iteration=len(state.iterations),
        ended=phase[-1].cycle,
        next=None if over else others[0],
        reason=reason,
        scores=scores,
        slope=slope,
    )


def _scores(phase: Sequence[IterationEnded]) -> tuple[float, ...]:
    """Return the score at the start of a cycle, and after each of its iterations that was kept."""
    kept = [one.after for one in phase if one.outcome == "kept" and one.after is not None]
    return (phase[0].before, *kept)


def _reason(
    config: BakingConfig, last: IterationEnded, done: int, slope: float | None
) -> Reason | None:
    """Return why a cycle ends; None if it goes on."""
    if done >= config.iterations:
        return "limit"
    if last.outcome != "kept":
        return last.outcome
    return "plateau" if slope is not None and slope < config.epsilon else None


def _exhausted(state: BakingState, scores: Sequence[float]) -> bool:
    """Return True if this cycle has gained too little, and the one before it has no more to give."""
    epsilon = state.submitted.config.epsilon
    if not state.switches or scores[-1] - scores[0] >= epsilon:
        return False
    before = state.switches[-1]
    gained = before.scores[-1] - before.scores[0] >= epsilon
    return not gained or before.reason != "plateau"
