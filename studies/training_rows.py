"""Rows of a run's trainings for a tracker: loss, gradient, learning rate and speed by step. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runs.kinds.tracking import TrackedName
from studies.making.making import MakingState
from weights.recipes import Train

#: The trainings of a model, one after the other: curriculum segments, or one whole training.
Chain = Sequence[Train]
#: Name → chain, of models whose trainings stand side by side over the same steps.
Group = Mapping[str, Chain]

NAMES = (
    TrackedName("step", "count", "steps so far; those of models side by side are counted once"),
    TrackedName("{model}/loss", "nats/token", "loss of the training, since the point before"),
    TrackedName("{model}/norm", "1", "norm of the gradient before it is clipped"),
    TrackedName("{model}/rate", "1", "learning rate"),
    TrackedName("{model}/tokens_per_second", "tokens/s", "speed of the last segment"),
)


def rows(
    state: MakingState, groups: Sequence[Group], after: int, last: Mapping[str, int] | None = None
) -> list[tuple[int, dict[str, Any]]]:
    """Return (step, row) of steps above `after`: the groups one after the other.

    A step is told once every model of its group is behind it, and a group once the one before has
    ended: several devices may train at once, and a tracker takes no earlier step afterwards.
    `last`: model → its last step, if its chain does not say it yet.
    """
    step_rows: list[tuple[int, dict[str, Any]]] = []
    before = 0
    for group in groups:
        ends = {name: chain[-1].upto if chain else 0 for name, chain in group.items()}
        ends |= {name: end for name, end in (last or {}).items() if name in group}
        reached = {name: _reached(state, chain) for name, chain in group.items()}
        behind = (reached[name] for name in group if reached[name] < ends[name])
        done = min(behind, default=max(ends.values(), default=0))
        rows_by_step: dict[int, dict[str, Any]] = {}
        for name, chain in group.items():
            _add(rows_by_step, name, state, chain, before)
        step_rows += [
            (at, rows_by_step[at]) for at in sorted(rows_by_step) if after < at <= before + done
        ]
        if any(reached[name] < ends[name] for name in group):
            break
        before += done
    return step_rows


def _reached(state: MakingState, chain: Chain) -> int:
    """Return the step that a model is at: 0 before its first training has advanced."""
    return max(
        (state.steps(training) for training in chain if state.advanced.get(training.stem)),
        default=0,
    )


def _add(
    rows_by_step: dict[int, dict[str, Any]],
    name: str,
    state: MakingState,
    chain: Chain,
    before: int,
) -> None:
    """Add a model's points to the rows by step; `before`: steps of the groups before."""
    for recipe in chain:
        for event in state.advanced.get(recipe.stem, {}).values():
            for point in event.curve:
                at = before + point.step
                columns = {f"{name}/{k}": v for k, v in point.model_dump().items() if k != "step"}
                rows_by_step.setdefault(at, {"step": at}).update(columns)
            if event.seconds and event.curve:
                at, speed = before + event.step, event.tokens / event.seconds
                rows_by_step.setdefault(at, {"step": at})[f"{name}/tokens_per_second"] = speed
