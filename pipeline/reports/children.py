"""Runs of a pipeline's phases and measurements, read from the log for its report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from events import Envelope
from pipeline import plan
from pipeline.events import PipelineState
from runs import kinds
from runs.history import repository
from runs.history.repository import Log
from runs.kinds.kind import Kind


@dataclass(frozen=True)
class Child:
    """The run of a phase, or of a measurement, as the log has it."""

    state: Any
    rows: Sequence[Envelope]

    @property
    def run(self) -> str:
        """The run's name."""
        return self.state.run

    @property
    def kind(self) -> Kind:
        """The run's kind."""
        return kinds.of(self.state.kind)


def gathered(log: Log, state: PipelineState) -> dict[str, Child]:
    """Return run → child of a pipeline's phases and measurements, also of those under way."""
    children: dict[str, Child] = {}
    for number in state.numbers:
        ends = {"phase": state.ended_phase(number), "measure": state.measured_phase(number)}
        for what, ended in ends.items():
            run, upto = (ended.child, ended.child_version) if ended else (None, None)
            for name in [run] if run else _candidates(state, number, what):
                if repository.stream_of(log, name) is not None:
                    rows = list(repository.history(log, name, upto))
                    children[name] = Child(repository.fold(rows), rows)
    return children


def _candidates(state: PipelineState, number: int, what: Any) -> list[str]:
    """Return the names of runs that a phase without an end has had, the newest last."""
    tried = [trouble.child for trouble in state.troubles(number, what)]
    return list(dict.fromkeys([*tried, plan.child_name(state, number, what)]))
