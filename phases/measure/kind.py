"""The measurement as a kind of run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from events import Event, New
from phases.measure import findings
from phases.measure.config import MeasureConfig
from phases.measure.events import Completed, Forked, MeasureState, Started, Submitted
from phases.measure.view import MeasureView
from runs.errors import NotFoundError
from runs.event_types import Figure
from runs.kinds.asked import Asked, Checked, Lookup, Plan
from runs.kinds.forecast import Forecast
from runs.kinds.kind import Kind
from runs.kinds.tasks import Decision, Start, Task
from runs.system.rounding import alike
from studies.observing import Observe, Observed
from studies.observing import unasked as wrong_observation


class Measure(MeasureView, Kind[MeasureState]):
    """Measurement of a model beside others."""

    name = "measure"
    title = "a measurement"
    main_role = "model"
    line = "measure a model beside others on the same documents"
    unit = "model"
    config = MeasureConfig
    submitted = Submitted
    forked = Forked
    state = MeasureState
    answers: ClassVar[Mapping[type[Event], type]] = {Started: Start, Observed: Observe}
    figures_of: ClassVar[Mapping[str, str]] = findings.FIGURES
    figure_units: ClassVar[Mapping[str, str]] = {"bits_per_byte": "bits/byte", "bytes": "bytes"}
    listed = frozenset({Observed.type})

    # ---- deciding ------------------------------------------------------------------------------

    def due(self, state: MeasureState) -> Decision:
        """Return what there is to do after `started`: measure every model, then compare."""
        asked = findings.observations(state)
        if tasks := [task for task in asked if task.key not in state.answers]:
            return Decision(tasks=tasks)
        done = Completed(
            lineage_digest=state.lineage_digest(),
            chain_head=state.head,
            figures=findings.figures(state),
        )
        return Decision(facts=[New(done, f"{state.run}/completed")])

    def essential(self, state: MeasureState, task: str) -> bool:
        """Return True: a comparison needs every model."""
        return True

    def unasked(self, state: MeasureState, task: Task, event: Event) -> str | None:
        """Return why the event does not answer the open task; None if it does."""
        if isinstance(task, Observe) and isinstance(event, Observed):
            counts = {domain: len(some) for domain, some in event.items.items()}
            if counts != state.started.documents:
                return "it has other documents than those that `started` pins"
            return wrong_observation(task, event)
        return None

    def wrong_result(self, state: MeasureState) -> Iterator[str]:
        """Yield what `completed` says that the observations contradict."""
        if not alike(state.completed.figures, findings.figures(state)):
            yield "the figures are not those of the events before"

    # ---- asking for a run ------------------------------------------------------------------------

    def plan(self, asked: Asked, lookup: Lookup) -> Plan:
        """Return the plan of a run over a `model`, and others to compare it with."""
        from phases.measure import submission

        return submission.plan(self, asked, lookup)

    def placed(self, data: str) -> str:
        """Return data with an absolute path; tasks and built-in items keep their names."""
        from evaluation.data.items import absolute

        return absolute(data)

    def check(self, plan: Plan) -> Checked:
        """Open models (headers only), tokenizers and data; raise the errors of a start."""
        from phases.measure import submission

        return submission.check(plan)

    def texts(self, submitted: Submitted) -> Iterator[tuple[str, str]]:
        """Yield the names of models and the paths of data."""
        for models in submitted.given().values():
            yield from ((model.name, "a model's name") for model in models)
        yield from ((path, "a path") for path in submitted.data)

    # ---- scheduling ------------------------------------------------------------------------------

    def memory(self, state: MeasureState) -> int:
        """Return the bytes of the largest model's weights, twice: read, and in the model's object."""
        sizes = [source.parameters for source in state.started.sources] if state.started else [0]
        return 8 * max(sizes)

    # ---- results and work ------------------------------------------------------------------------

    def figures(self, state: MeasureState) -> dict[str, Figure]:
        """Return what the comparison found."""
        return dict(state.completed.figures)

    def inputs(self, state: MeasureState) -> dict[str, list[str]]:
        """Return the digests of the models of each role."""
        digests = {source.recipe_id: source.digest for source in state.started.sources}
        return {role: [digests[id_] for id_ in ids] for role, ids in state.started.roles.items()}

    def forecast(self, submitted: Submitted, cache: Any, folder: Path) -> Forecast:
        """Return what a measurement costs here, by some of its documents."""
        from phases.measure.tasks.forecast import forecast

        return forecast(submitted, cache)

    def context(self, state: MeasureState, cache: Any) -> Any:
        """Open the run's items in this process."""
        from phases.measure.tasks.execute import Context
        from weights.threads import set_threads

        set_threads()
        return Context(state, cache)

    # ---- verification ----------------------------------------------------------------------------

    def chosen(self, state: MeasureState, which: str) -> list[str]:
        """Return the recipe ids that "all", "champion" (the measured model) or an id means."""
        ids = [source.recipe_id for source in state.started.sources] if state.started else []
        if which != "all":
            ids = ids[:1] if which == "champion" else [i for i in ids if i.startswith(which)]
        if not ids:
            raise NotFoundError(f"run {state.run} has measured no model {which!r}.")
        return ids

    def rebuild(
        self, state: MeasureState, cache: Any, ids: Sequence[str], say: Any
    ) -> Iterator[Any]:
        """Compare the weights of models with the pinned ones: a measurement makes none."""
        from phases.measure.tasks.verify import same_weights

        yield from same_weights(state, cache, ids, say)

    def reopened(self, state: MeasureState, cache: Any) -> tuple[Any, Sequence[str]]:
        """Return the context of a started run, with its number of threads."""
        from phases.measure.tasks.execute import Context

        return Context.opened(state, cache), ()
