"""The compression as a kind of run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from events import Event, New
from phases.compression import findings, plan
from phases.compression.config import CompressionConfig
from phases.compression.events import (
    Completed,
    CompressionState,
    Encoded,
    Forked,
    Packed,
    Refused,
    Started,
    Submitted,
)
from phases.compression.findings import SELECTION, TEST, observe
from phases.compression.view import CompressionView
from runs.event_types import Figure, MadeModel
from runs.kinds.architecture import Architecture
from runs.kinds.retries import failure
from runs.kinds.tasks import Decision, Start, Task
from runs.system.rounding import alike
from studies.making import making
from studies.making.making import Make
from studies.making.making_kind import MakingKind
from studies.observing import Observe, Observed, Unmeasurable
from studies.observing import unasked as wrong_observation


class Compression(CompressionView, MakingKind[CompressionState]):
    """Compression of a model at a rate chosen from a measured curve."""

    name = "compression"
    phase = 8
    package = "phases.compression"
    title = "a compression"
    main_role = "model"
    line = "encode a model in few bytes, at a rate chosen from a measured curve"
    unit = "task"
    result_name = "model"
    config = CompressionConfig
    submitted = Submitted
    forked = Forked
    state = CompressionState
    answers: ClassVar[Mapping[type[Event], type]] = {
        Started: Start,
        Encoded: Make,
        Refused: Make,
        Packed: Make,
        Observed: Observe,
        Unmeasurable: Observe,
    }
    figures_of: ClassVar[Mapping[str, str]] = findings.FIGURES
    figure_units: ClassVar[Mapping[str, str]] = {
        "bits_per_byte": "bits/byte",
        "bytes": "bytes",
        "bits_per_weight": "bits/parameter",
    }
    listed = frozenset(
        event.type for event in (Encoded, Refused, Packed, Observed, Unmeasurable, Completed)
    )

    # ---- deciding ------------------------------------------------------------------------------

    def due(self, state: CompressionState) -> Decision:
        """Return what there is to do after `started`: encode, pack and measure, mix, choose."""
        if (why := findings.hopeless(state)) is not None:
            return Decision(facts=[failure(state, why)])
        for work in (plan.unencoded, _singles, _probes, _mixtures):
            if (decision := work(state)).tasks:
                return decision
        chosen = findings.choose(state)
        if chosen is None:
            return Decision(facts=[failure(state, findings.unmet(state))])
        last = [observe(id_, TEST) for id_ in (plan.source(state.started), chosen.recipe.id)]
        if open_ := [task for task in last if task.key not in state.answers]:
            return Decision(tasks=open_)
        done = Completed(
            lineage_digest=state.lineage_digest(),
            chain_head=state.head,
            chosen=findings.result(state, chosen),
            figures=findings.figures(state, chosen),
        )
        return Decision(facts=[New(done, f"{state.run}/completed")])

    def essential(self, state: CompressionState, task: str) -> bool:
        """Return True: a front needs every point."""
        return True

    def unasked(self, state: CompressionState, task: Task, event: Event) -> str | None:
        """Return why the event does not answer the open task; None if it does."""
        if isinstance(task, Make) and isinstance(event, Encoded | Packed):
            encodes = task.recipe.kind == "transform" and task.recipe.operation == "encode@1"
            if encodes != isinstance(event, Encoded):
                return "it is of a matrix, and a model was asked for, or the other way round"
            return making.unasked(task, event)
        if isinstance(task, Make) and isinstance(event, Refused):
            return None if event.recipe_id == task.recipe.id else "another recipe was refused"
        if isinstance(task, Observe) and isinstance(event, Unmeasurable):
            return wrong_observation(task, event)
        if isinstance(task, Observe) and isinstance(event, Observed):
            counts = {domain: len(some) for domain, some in event.items.items()}
            pinned = state.started.test if task.on == TEST else state.started.selection
            if counts != pinned:
                return "it has other documents than those that `started` pins"
            return wrong_observation(task, event)
        return None

    def wrong_result(self, state: CompressionState) -> Iterator[str]:
        """Yield what `completed` says that the events before it contradict."""
        chosen = findings.choose(state)
        if chosen is None or state.completed.chosen != findings.result(state, chosen):
            yield "the model is not the one that the policy chooses by the events before"
        elif not alike(state.completed.figures, findings.figures(state, chosen)):
            yield "the figures are not those of the events before"

    # ---- asking for a run ------------------------------------------------------------------------

    def placed(self, data: str) -> str:
        """Return data with an absolute path; tasks and built-in items keep their names."""
        from evaluation.data.items import absolute

        return absolute(data)

    def texts(self, submitted: Submitted) -> Iterator[tuple[str, str]]:
        """Yield the names of the models and the paths of data."""
        given = (*submitted.model, *submitted.students)
        yield from ((model.name, "a model's name") for model in given)
        yield from ((path, "a path") for path in submitted.data)

    # ---- scheduling ------------------------------------------------------------------------------

    def memory(self, state: CompressionState) -> int:
        """Return the bytes of all models three times: as given, decoded, and in a model's object."""
        every = plan.subjects(state.started) if state.started else ()
        return 12 * sum(subject.source.parameters for subject in every)

    # ---- results and work ------------------------------------------------------------------------

    def result_id(self, state: CompressionState) -> str | None:
        """Return the recipe id of the chosen model; None before."""
        return state.completed.chosen.recipe_id if state.completed else None

    def result(self, state: CompressionState) -> str | None:
        """Return the digest of the chosen model's weights; None before."""
        return state.completed.chosen.digest if state.completed else None

    def roles(self, config: CompressionConfig) -> Sequence[str]:
        """Return the compressed model."""
        return [plan.ROLE]

    def architectures(
        self, config: CompressionConfig, given: Mapping[str, Sequence[Architecture | None]]
    ) -> Mapping[str, Architecture]:
        """Return the given model's; none with students, of which one may be chosen."""
        found = next(iter(given.get(plan.ROLE, ())), None)
        return {plan.ROLE: found} if found and not given.get(plan.STUDENTS) else {}

    def results(self, state: CompressionState) -> dict[str, MadeModel]:
        """Return the compressed model, decoded."""
        chosen = state.completed.chosen
        return {plan.ROLE: MadeModel(recipe_id=chosen.recipe_id, digest=chosen.digest)}

    def figures(self, state: CompressionState) -> dict[str, Figure]:
        """Return the figures of the chosen model."""
        return dict(state.completed.figures)

    def inputs(self, state: CompressionState) -> dict[str, list[str]]:
        """Return the digests of the given model and of the students."""
        given, *students = [one.source.digest for one in plan.subjects(state.started)]
        return {plan.ROLE: [given], **({plan.STUDENTS: students} if students else {})}

    def keep(self, state: CompressionState, cache: Any) -> None:
        """Remove what processes that were killed have left of files."""
        from phases.compression.tasks.execute import packing

        if state.ended:
            shutil.rmtree(packing(cache, state.run), ignore_errors=True)

    # ---- verification ----------------------------------------------------------------------------

    @property
    def remeasured(self) -> tuple[type[Event], ...]:
        """The answers that `forge verify --recompute` obtains again: sizes are measured, too."""
        return (Encoded, Refused, Packed, Observed, Unmeasurable)

    def comparable(self, event: Any, recorded: Any) -> dict[str, Any]:
        """Return the data of an answer that must come out again; reasons are words for people."""
        data = super().comparable(event, recorded)
        return {name: value for name, value in data.items() if name != "reason"}

    def chosen(self, state: CompressionState, which: str) -> list[str]:
        """Return the recipe ids that "all", "champion" (the chosen one), a point or an id means."""
        if which == "all":
            return [*state.made]
        return [self.find(state, "" if which == "champion" else which)]


def _singles(state: CompressionState) -> Decision:
    """Return the models of one setting that are not packed, or else not measured."""
    return _packed_and_measured(state, findings.singles(state))


def _probes(state: CompressionState) -> Decision:
    """Return the matrices that are not tried alone; nothing if no mixtures are wanted."""
    config = state.submitted.config
    if not config.mixtures or len(config.settings) < 2:
        return Decision()
    asked = findings.probing(state)
    return Decision(tasks=[task for task in asked if task.key not in state.answers])


def _mixtures(state: CompressionState) -> Decision:
    """Return the mixtures that are not packed, or else not measured."""
    return _packed_and_measured(state, findings.mixed(state))


def _packed_and_measured(state: CompressionState, points: Sequence[findings.Point]) -> Decision:
    open_ = {point.recipe.id: Make(point.recipe) for point in points if point.packed is None}
    if open_:
        return Decision(tasks=list(open_.values()))
    given = map(plan.source, plan.subjects(state.started))
    ids = dict.fromkeys([*given, *(point.recipe.id for point in points)])
    tasks = [observe(id_, SELECTION) for id_ in ids]
    return Decision(tasks=[task for task in tasks if task.key not in state.answers])
