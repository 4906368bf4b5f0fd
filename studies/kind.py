"""Kinds of run that train from one given model and compare what comes out. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from events import Event, New
from runs.event_types import Figure
from runs.kinds.architecture import Architecture
from runs.kinds.tasks import Decision, Start, Task
from runs.record.events import Completed
from runs.system.rounding import alike
from studies.making import making
from studies.making.events import Advanced, Made, Making, Trained
from studies.making.making import Make, MakingState
from studies.observing import Observe, Observed
from studies.training_kind import TrainingKind

S = TypeVar("S", bound=MakingState)

#: Events of such kinds that are listed.
LISTED = frozenset({Advanced.type, Made.type, Trained.type, Observed.type})


def answers(started: type[Event]) -> Mapping[type[Event], type]:
    """Return event → the task that it answers; `started` is the kind's own."""
    return {started: Start, Made: Make, Advanced: Make, Observed: Observe}


def unanswered(state: MakingState, tasks: Iterable[Task]) -> Decision:
    """Return those of some tasks that have no answer yet."""
    return Decision(tasks=[task for task in tasks if task.key not in state.answers])


class GivenKind(TrainingKind[S]):
    """A kind of run that trains from one given model."""

    main_role = "model"
    unit = "step"
    curve_of = "loss"
    result_name = "models"
    listed: ClassVar[frozenset[str]] = LISTED
    #: Roles of its models that are of the given model's architecture and sizes.
    as_given: ClassVar[Sequence[str]] = ()
    #: The kind's own event of the end.
    completed: type[Completed]

    def stages(self, state: S) -> Iterator[Sequence[Making]]:
        """Yield the recipes that are made at the same time, each after those that it reads."""
        raise NotImplementedError

    def questions(self, state: S) -> Iterator[Mapping[str, Observe]]:
        """Yield arm → its measurement: of what is asked first, then of what follows from answers."""
        raise NotImplementedError

    def course(self, state: S) -> Iterator[Decision]:
        """Yield what is to do before the end: make, choose, compare. A decision is empty once done."""
        for wanted in self.stages(state):
            yield making.next_of(state, wanted, state.started.segment)
        for asked in self.questions(state):
            yield unanswered(state, asked.values())

    def due(self, state: S) -> Decision:
        """Return what there is to do after `started`: the next of the course, or the end."""
        for decision in self.course(state):
            if decision.facts or decision.tasks:
                return decision
        done = self.completed(
            lineage_digest=state.lineage_digest(),
            chain_head=state.head,
            **self.conclusions(state),
        )
        return Decision(facts=[New(done, f"{state.run}/completed")])

    def conclusions(self, state: S) -> dict[str, Any]:
        """Return the fields of `completed` that follow from what was made and measured."""
        raise NotImplementedError

    def wrong_result(self, state: S) -> Iterator[str]:
        """Yield what `completed` says that the events before it contradict."""
        for name, value in self.conclusions(state).items():
            if not alike(getattr(state.completed, name), value):
                yield f"the {name} are not those of the events before"

    def texts(self, submitted: Any) -> Iterator[tuple[str, str]]:
        """Yield the name of the model and the paths of data."""
        if submitted.model is not None:
            yield submitted.model.name, "a model's name"
        for path in submitted.data:
            yield path, "a path"

    def architectures(
        self, config: Any, given: Mapping[str, Sequence[Architecture | None]]
    ) -> Mapping[str, Architecture]:
        """Return the given model's, for the models that only differ in their weights."""
        found = next(iter(given.get("model", ())), None)
        return dict.fromkeys(self.as_given, found) if found else {}

    def figures(self, state: S) -> dict[str, Figure]:
        """Return what the comparison found."""
        return dict(state.completed.figures)

    def inputs(self, state: S) -> dict[str, list[str]]:
        """Return the digest of the given model."""
        return {"model": [state.started.model.digest]}
