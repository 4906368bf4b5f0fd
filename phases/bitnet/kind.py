"""BitNet as a kind of run: a model becomes ternary by training, beside its honest alternatives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from evaluation.observing import Observe, Observed
from evaluation.training_runs.training_kind import TrainingKind
from events import Event, New
from phases.bitnet import findings, origins, plan
from phases.bitnet.config import BitnetConfig
from phases.bitnet.events import BitnetState, Completed, Forked, Started, Submitted
from phases.bitnet.view import BitnetView
from runs.event_types import Figure
from runs.kinds.tasks import Decision, Start
from runs.system.rounding import alike
from weights.making import making
from weights.making.events import Advanced, Made, Trained
from weights.making.making import Make

if TYPE_CHECKING:
    pass


class Bitnet(BitnetView, TrainingKind[BitnetState]):
    """A model with ternary weights (phase 4)."""

    name = "bitnet"
    package = "phases.bitnet"
    title = "a bitnet run"
    main_role = "model"
    line = "train a model to have ternary weights, and compare it with the alternatives"
    unit = "step"
    result_name = "models"
    config = BitnetConfig
    submitted = Submitted
    forked = Forked
    state = BitnetState
    answers: ClassVar[Mapping[type[Event], type]] = {
        Started: Start,
        Made: Make,
        Advanced: Make,
        Observed: Observe,
    }
    figures_of: ClassVar[Mapping[str, str]] = findings.FIGURES
    listed = frozenset({Advanced.type, Made.type, Trained.type, Observed.type})

    # ---- deciding ----------------------------------------------------------------------------

    def due(self, state: BitnetState) -> Decision:
        """Return what there is to do after `started`: make the models, choose, compare, end."""
        for wanted in _stages(state):
            decision = making.next_of(state, wanted, state.started.segment)
            if decision.facts or decision.tasks:
                return decision
        for asked in (findings.choosing(state), findings.comparing(state)):
            if tasks := [task for task in asked.values() if task.key not in state.answers]:
                return Decision(tasks=tasks)
        done = Completed(
            lineage_digest=state.lineage_digest(),
            chain_head=state.head,
            **_conclusions(state),
        )
        return Decision(facts=[New(done, f"{state.run}/completed")])

    def agrees(self, state: BitnetState, recorded: Event, found: Event) -> bool:
        """Return True if a second result does not contradict the recorded one.

        The length of segments is settled by the first `started`.
        """
        if isinstance(recorded, Started) and isinstance(found, Started):
            found = found.model_copy(update={"segment": recorded.segment})
        return super().agrees(state, recorded, found)

    def wrong_result(self, state: BitnetState) -> Iterator[str]:
        """Yield what `completed` says that the events before it contradict."""
        for name, value in _conclusions(state).items():
            if not alike(getattr(state.completed, name), value):
                yield f"the {name} are not those of the events before"

    # ---- asking for a run --------------------------------------------------------------------

    def texts(self, submitted: Submitted) -> Iterator[tuple[str, str]]:
        """Yield the name of the model and the paths of data."""
        yield submitted.model.name, "a model's name"
        for path in submitted.data:
            yield path, "a path"

    # ---- scheduling --------------------------------------------------------------------------

    def memory(self, state: BitnetState) -> int:
        """Return the bytes of weights, gradients and optimiser of one training, and of a teacher."""
        if state.started is None:
            return 0
        teacher = 4 if state.submitted.config.distillation else 0
        return (16 + teacher) * state.started.model.parameters

    # ---- results and work --------------------------------------------------------------------

    def result_id(self, state: BitnetState) -> str | None:
        """Return the recipe id of the ternary model once it is made."""
        if state.started is None:
            return None
        found = plan.recipes(state)[plan.MODEL].id
        return found if found in state.made else None

    def roles(self, config: Any) -> Sequence[str]:
        """Return the ternary model and its master in full precision."""
        return origins.ROLES

    def figures(self, state: BitnetState) -> dict[str, Figure]:
        """Return what the comparison found."""
        return dict(state.completed.figures)

    def inputs(self, state: BitnetState) -> dict[str, list[str]]:
        """Return the digest of the given model."""
        return {"model": [state.started.model.digest]}

    # ---- verification ------------------------------------------------------------------------

    def chosen(self, state: BitnetState, which: str) -> list[str]:
        """Return the recipe ids that "all", "champion" (the ternary model), a role or an id means."""
        if which == "all":
            return [one.id for one in plan.recipes(state).values() if one.id in state.made]
        return [self.find(state, plan.MODEL if which == "champion" else which)]


def _stages(state: BitnetState) -> Iterator[list[Any]]:
    """Yield the recipes that are made at the same time, each after those that it reads."""
    recipes = plan.recipes(state)
    first = [plan.START, *([plan.FRESH] if plan.FRESH in recipes else [])]
    last = [name for name in (plan.MODEL, plan.SCRATCH) if name in recipes]
    yield [recipes[name] for name in first]
    yield [recipe for name, recipe in recipes.items() if name not in (*first, *last)]
    yield [recipes[name] for name in last]


def _conclusions(state: BitnetState) -> dict[str, Any]:
    """Return the fields of `completed` that follow from what was made and measured."""
    return {
        "models": findings.results(state),
        "arms": findings.arms(state),
        "untrained": findings.chosen(state),
        "figures": findings.figures(state),
    }
