"""Children of runs: of a kind whose tasks are runs. Pure, but `report`, which reads their logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from agent_forge.events import Envelope
from agent_forge.runs import kinds
from agent_forge.runs.kinds.capability import Capability, S
from agent_forge.runs.kinds.decide import Delegate
from agent_forge.runs.kinds.state import State
from agent_forge.runs.panels.panels import Panel
from agent_forge.runs.panels.stages import Stage
from agent_forge.runs.record.events import ChildEnded
from agent_forge.runs.record.lineage import Child


class Children(Capability[S]):
    """The runs that runs of a kind delegate."""

    def returned(self, state: S, task: Delegate, child: State) -> ChildEnded:
        """Return the answer to a task whose child has ended."""
        raise NotImplementedError

    def refused(self, state: S, task: Delegate, why: str) -> ChildEnded:
        """Return the answer to a task whose child could not be submitted."""
        raise NotImplementedError

    def completed(self, state: S) -> Iterator[tuple[Delegate, ChildEnded]]:
        """Yield the tasks whose child has completed, each with its answer."""
        raise NotImplementedError

    def retries(self, state: S, task: Delegate) -> str | None:
        """Return the idempotency key to retry a failed child for this task under; by default None.

        None: the child's failure is the answer.
        """
        return None

    def reuses(self, state: S) -> bool:
        """Return True if an ended run may replace a child that would equal it; by default False."""
        return False

    def unlike(self, state: S, task: Delegate, child: State) -> str | None:
        """Return why, by the logs, a run is not what a task asks for; by default None: it may be."""
        return None

    def asked_otherwise(self, state: S, task: Delegate, child: State) -> str | None:
        """Return why a child's kind or settings are not as its task asks; by default None: they are."""
        return None

    # ---- shown ---------------------------------------------------------------------------------

    def stage_of(self, state: S, key: str) -> str:
        """Return words for the stage that the task `key` is in this run; `key` if there are none."""
        view = self.kind.view
        return view.task_words(key, view.names(state)) or key

    def stages(self, state: S, children: Sequence[Child]) -> Sequence[Stage]:
        """Return the stages of a run, in their order; by default ()."""
        return ()

    def panels(self, state: S, children: Sequence[Child]) -> Sequence[Panel]:
        """Return the panels of a run together with its children; by default those of the run alone."""
        return self.kind.view.panels(state)

    def report(self, log: Any, state: S, rows: Sequence[Envelope]) -> str:
        """Return the report for people as Markdown, at any time; `log` has the children."""
        raise NotImplementedError


#: Children of a kind whose states are not known where it is used.
AnyChildren = Children[Any]


def completed_children(state: State) -> Iterator[tuple[Delegate, ChildEnded]]:
    """Yield the tasks of any run whose child has completed, each with its answer."""
    children = kinds.of(state.kind).children
    return iter(()) if children is None else children.completed(state)
