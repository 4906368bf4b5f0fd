"""Iterations, and the rule of the cycles: when one ends, and which goes on. Pure.

A cycle ends if its last bake was not kept, if there was nothing to bake, or on a plateau: the slope of
the moving average of its scores is below ε. The other cycle goes on then; none does if this one has
gained less than ε and the one before it gained as little, or had no more to bake. So no model is baked
twice alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from evaluation.trajectories.sampled import Sampled
from phases.tool_baking.events import CycleSwitched, IterationEnded, Outcome, Reason
from phases.tool_baking.settings import BakingConfig, Cycle
from studies.making.events import Making
from studies.script import Note


@dataclass
class Iteration:
    """An iteration, as far as it is known."""

    number: int
    cycle: Cycle
    #: The model that it begins with, in float32, and its success on the selection slice.
    start: Making
    before: float
    #: Persona → success on the selection slice under it.
    auditions: Mapping[str, float] = field(default_factory=dict)
    #: The persona that is baked, and what the model wrote.
    persona: str | None = None
    written: Sampled | None = None
    ended: IterationEnded | None = None

    def note(self, outcome: Outcome, after: float | None = None, why: str = "") -> Note:
        """Return the step that records its end."""
        event = IterationEnded(
            iteration=self.number,
            cycle=self.cycle,
            outcome=outcome,
            before=self.before,
            after=after,
            persona=None if outcome == "nothing" else self.persona,
            why=why,
        )
        return Note(f"iteration/{self.number}", event)


def averages(scores: Sequence[float], smoothing: int) -> list[float]:
    """Return for each score the mean of it and up to `smoothing` − 1 scores before it."""
    windows = [scores[max(0, end - smoothing) : end] for end in range(1, len(scores) + 1)]
    return [sum(window) / len(window) for window in windows]


def slope(values: Sequence[float]) -> float:
    """Return the least-squares slope of two or more values at 0, 1, 2, …"""
    middle = (len(values) - 1) / 2
    spread = sum((at - middle) ** 2 for at in range(len(values)))
    return sum((at - middle) * value for at, value in enumerate(values)) / spread


def newest_slope(scores: Sequence[float], smoothing: int, window: int) -> float | None:
    """Return the slope over the last `window` moving averages; None as long as there are fewer."""
    smooth = averages(scores, smoothing)
    return slope(smooth[-window:]) if len(smooth) >= window else None


def switch(
    settings: BakingConfig,
    iterations: Sequence[IterationEnded],
    switches: Sequence[CycleSwitched],
) -> CycleSwitched | None:
    """Return the switch that follows after the last of the iterations; None if its cycle goes on."""
    cycle = iterations[switches[-1].iteration if switches else 0 :]
    later_scores = [
        ended.after for ended in cycle if ended.outcome == "kept" and ended.after is not None
    ]
    scores = (cycle[0].before, *later_scores)
    newest = newest_slope(scores, settings.smoothing, settings.window)
    reason = _reason(settings, cycle[-1], newest)
    if reason is None:
        return None
    other_cycles: list[Cycle] = [name for name in settings.cycles if name != cycle[-1].cycle]
    over = reason == "limit" or not other_cycles or _exhausted(settings, scores, switches)
    return CycleSwitched(
        iteration=len(iterations),
        ended=cycle[-1].cycle,
        next=None if over else other_cycles[0],
        reason=reason,
        scores=scores,
        slope=newest,
    )


def _reason(settings: BakingConfig, last: IterationEnded, newest: float | None) -> Reason | None:
    """Return why a cycle ends with an iteration; None if it goes on."""
    if last.iteration >= settings.iterations:
        return "limit"
    if last.outcome != "kept":
        return last.outcome
    return "plateau" if newest is not None and newest < settings.epsilon else None


def _exhausted(
    settings: BakingConfig, scores: Sequence[float], switches: Sequence[CycleSwitched]
) -> bool:
    """Return True if this cycle has gained too little, and the one before it has no more to give."""
    if not switches or scores[-1] - scores[0] >= settings.epsilon:
        return False
    before = switches[-1]
    return before.reason != "plateau" or before.scores[-1] - before.scores[0] < settings.epsilon
