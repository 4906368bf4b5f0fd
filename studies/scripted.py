"""Kinds of run that a script decides; what such a kind makes and measures is its own. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from events import New
from runs.event_types import Figure
from runs.kinds.kind import Kind
from runs.kinds.state import EVERY, State
from runs.kinds.tasks import Decision
from runs.record.events import Completed
from runs.system.rounding import alike
from studies.comparison import BITS_PER_BYTE, Scale
from studies.events import MODEL
from studies.run import Run
from studies.script import Script
from studies.tables import FigureRule

S = TypeVar("S", bound=State)


class Scripted(Kind[S]):
    """A kind of run that is decided by a script, and whose figures follow by rules."""

    #: The kind's own event of the end.
    completed: type[Completed]
    figure_rules: ClassVar[Mapping[str, FigureRule]]
    #: Figure → "name in words: what it is", and its unit; they follow from `figure_rules`.
    figures_of: ClassVar[Mapping[str, str]]
    figure_units: ClassVar[Mapping[str, str]]
    #: What arms are compared by.
    scale: ClassVar[Scale] = BITS_PER_BYTE
    #: The arm that the others are compared with; None: the result.
    ours: ClassVar[str | None] = None
    #: Roles of the models that it gives, the result first.
    result_roles: ClassVar[Sequence[str]] = (MODEL,)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Derive settings and events from the state, figures and their units from the table."""
        super().__init_subclass__(**kwargs)
        if hasattr(cls, "state"):
            types: Any = cls.state.registry.types()
            cls.submitted, cls.forked = types["submitted"], types["forked"]
            cls.completed = types["completed"]
            cls.config = types["submitted"].model_fields["config"].annotation
        rules: Mapping[str, FigureRule] = getattr(cls, "figure_rules", {})
        cls.figures_of = {name: rule.words for name, rule in rules.items()}
        cls.figure_units = {name: rule.unit for name, rule in rules.items() if rule.unit}

    def script(self, run: Run) -> Script:
        """Run the kind; at its end return the function that gives the fields of `completed`."""
        raise NotImplementedError

    @property
    def purpose(self) -> str:
        """Key of the random draws of trainings and intervals: all arms have the same."""
        return self.name

    def run(self, state: S) -> Run:
        """Return a started run with all that its script has said."""
        return state.remembered(EVERY, lambda: Run(self, state))

    def begun(self, state: S) -> Run | None:
        """Return a run with all that its script has said; None before it has started."""
        return self.run(state) if state.started is not None else None

    def due(self, state: S) -> Decision:
        """Return what the script waits for, or the event that ends the run."""
        run = self.run(state)
        if run.ending is None:
            return run.decision
        done = self.completed(
            lineage_digest=state.lineage_digest(), chain_head=state.head, **run.conclusions
        )
        return Decision(facts=[New(done, f"{state.run}/completed")])

    def wrong_result(self, state: S) -> Iterator[str]:
        """Yield what `completed` says that the events before it contradict."""
        run = self.run(state)
        if run.ending is None:
            yield "the run does not end with the events before"
            return
        for name, value in run.conclusions.items():
            if not alike(getattr(state.completed, name), value):
                yield f"the {name} are not those of the events before"

    def essential(self, state: S, task: str) -> bool:
        """Return True: without one of its models or figures the run has no result."""
        return True

    def roles(self, config: Any) -> Sequence[str]:
        """Return the roles of the models that a run gives."""
        return self.result_roles

    def figures(self, state: S) -> dict[str, Figure]:
        """Return what a completed run has found."""
        return dict(state.completed.figures)

    # ---- work, in a process that may load torch ----------------------------------------------

    def _work(self) -> Any:
        """Return the class of contexts, which loads torch."""
        raise NotImplementedError

    def context(self, state: S, cache: Any) -> Any:
        """Open a run's inputs in this process."""
        from weights.threads import set_threads

        set_threads()
        return self._work()(state, cache)

    def reopened(self, state: S, cache: Any) -> tuple[Any, Sequence[str]]:
        """Return the context of a started run, with its number of threads."""
        return self._work().opened(state, cache), ()

    def cached(self, state: Any, cache: Any) -> Iterator[Any]:
        """Yield an error for each of the run's cached files that has another digest."""
        from studies.making import model_files

        yield from model_files.cached((event.digest for event in state.made.values()), cache)
