"""Cognate as a kind of run: specialists of one base, trained, measured, and ready to be merged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from events import Event, New
from phases.cognate import architectures, findings, plan
from phases.cognate.config import CognateConfig
from phases.cognate.events import CognateState, Completed, Forked, Started, Submitted
from phases.cognate.view import CognateView
from runs.errors import ConfigError
from runs.event_types import Figure
from runs.kinds.architecture import Architecture
from runs.kinds.retries import failure
from runs.kinds.tasks import Decision, Start
from runs.system.rounding import alike
from studies.making import making
from studies.making.events import Advanced, Made, Trained
from studies.making.making import Make
from studies.observing import Observe, Observed
from studies.training_kind import TrainingKind

if TYPE_CHECKING:
    pass


class Cognate(CognateView, TrainingKind[CognateState]):
    """Specialists of one base (phase 1)."""

    name = "cognate"
    phase = 1
    package = "phases.cognate"
    title = "a cognate run"
    line = "train a small base and specialists of it, to merge"
    unit = "step"
    curve_of = "loss"
    result_name = "models"
    config = CognateConfig
    submitted = Submitted
    forked = Forked
    state = CognateState
    answers: ClassVar[Mapping[type[Event], type]] = {
        Started: Start,
        Made: Make,
        Advanced: Make,
        Observed: Observe,
    }
    figures_of: ClassVar[Mapping[str, str]] = {
        "lead": "bits per byte that the next best model needs more on a specialist's own domain, the "
        "least of all specialists"
    }
    figure_units: ClassVar[Mapping[str, str]] = {"lead": "bits/byte"}
    listed = frozenset({Advanced.type, Made.type, Trained.type, Observed.type})

    # ---- deciding ----------------------------------------------------------------------------

    def due(self, state: CognateState) -> Decision:
        """Return what there is to do after `started`: the base, specialists, measuring, the end.

        A budget that is spent ends a run that has work left.
        """
        work = _work(state)
        if work.tasks and (over := _spent(state)):
            return Decision(facts=[failure(state, over)])
        if work.tasks or work.facts:
            return work
        if wrong := findings.no_specialist(state):
            return Decision(facts=[failure(state, wrong)])
        done = Completed(
            lineage_digest=state.lineage_digest(),
            chain_head=state.head,
            models=findings.results(state),
        )
        return Decision(facts=[New(done, f"{state.run}/completed")])

    def wrong_result(self, state: CognateState) -> Iterator[str]:
        """Yield what `completed` says that the events before it contradict."""
        if not alike(state.completed.models, findings.results(state)):
            yield "the models are not those of the events before"

    def check_fork(self, state: CognateState, changes: Mapping[str, Any]) -> None:
        """Raise ConfigError if a change would touch what is made already."""
        if not changes or state.started is None:
            return
        free = {"max_hours", "max_device_hours"}
        for name in changes:
            if name == "domains":
                _check_domains(state, changes[name])
            elif name not in free:
                raise ConfigError(
                    f"setting {name} cannot change in a fork of a cognate run that has started: models "
                    "are made with it. Start a new run instead."
                )

    # ---- asking for a run --------------------------------------------------------------------

    def texts(self, submitted: Submitted) -> Iterator[tuple[str, str]]:
        """Yield the name of the base and the paths of data."""
        if submitted.base is not None:
            yield submitted.base.name, "a model's name"
        for path in submitted.data:
            yield path, "a path"

    # ---- scheduling --------------------------------------------------------------------------

    def memory(self, state: CognateState) -> int:
        """Return the bytes of weights, gradients and optimiser of one training."""
        return plan.memory(state.started) if state.started else 0

    # ---- results and work --------------------------------------------------------------------

    def result_id(self, state: CognateState) -> str | None:
        """Return the base's recipe id once it is made: the model that people mean by the run."""
        made = state.made.get(plan.models(state)[plan.BASE].id) if state.started else None
        return made.recipe_id if made else None

    def roles(self, config: CognateConfig) -> Sequence[str]:
        """Return base and specialists."""
        return [plan.BASE, *config.domains]

    def architectures(
        self, config: CognateConfig, given: Mapping[str, Sequence[Architecture | None]]
    ) -> Mapping[str, Architecture]:
        """Return the given base's for all models, or that of the preset."""
        preset = architectures.described(config.size)
        found = given["base"][0] if given.get("base") else preset
        return dict.fromkeys(self.roles(config), found) if found else {}

    def figures(self, state: CognateState) -> dict[str, Figure]:
        """Return the least lead that a specialist has on its own domain."""
        leads = [one.lead for one in state.completed.models.values() if one.lead is not None]
        least = min(leads, key=lambda lead: lead.low)
        return {"lead": Figure(value=least.difference, low=least.low, high=least.high)}

    def inputs(self, state: CognateState) -> dict[str, list[str]]:
        """Return the digest of the base that was given, if one was."""
        return {"base": [state.started.base.digest]} if state.started.base else {}

    # ---- verification ------------------------------------------------------------------------

    def chosen(self, state: CognateState, which: str) -> list[str]:
        """Return the recipe ids that "all", "champion" (the base), a role or an id means."""
        if which == "all":
            return [recipe.id for recipe in plan.models(state).values() if recipe.id in state.made]
        return [self.find(state, plan.BASE if which == "champion" else which)]


def _work(state: CognateState) -> Decision:
    """Return the open tasks, or the trainings that have ended; empty if all is made and measured."""
    for recipes in plan.stages(state):
        decision = making.next_of(state, recipes, state.started.segment)
        if decision.facts or decision.tasks:
            return decision
    asked = findings.observations(state)
    return Decision(tasks=[task for task in asked if task.key not in state.answers])


def _check_domains(state: CognateState, domains: Sequence[str]) -> None:
    """Raise ConfigError unless a fork keeps every specialist that is begun, and adds known text."""
    models = plan.specialists(state.submitted, state.started)
    for domain, recipe in models.items():
        if state.steps(recipe) and domain not in domains:
            raise ConfigError(f"the {domain} specialist is begun: a fork here keeps it in domains.")
    for domain in domains:
        if domain not in state.started.streams:
            raise ConfigError(
                f"the run has pinned no text of {domain}: a fork can add "
                f"{', '.join(sorted(set(state.started.streams) - set(models)))} only."
            )


def _spent(state: CognateState) -> str:
    """Return why the run's budget ends it; empty if it does not."""
    config, spent = state.submitted.config, state.spent
    for name, hours, seconds in (
        ("max_hours", config.max_hours, spent.wall),
        ("max_device_hours", config.max_device_hours, spent.device),
    ):
        if hours is not None and seconds >= hours * 3600:
            return (
                f"{name} is spent: {seconds / 3600:.2f} hours. A fork with more goes on from here."
            )
    return ""
