"""BitNet as a kind of run: a model becomes ternary by training, beside its honest alternatives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from evaluation.given_model_runs.kind import GivenKind, answers
from events import Event, New
from phases.bitnet import findings, origins, plan
from phases.bitnet.config import BitnetConfig
from phases.bitnet.events import BitnetState, Completed, Forked, Started, Submitted
from phases.bitnet.view import BitnetView
from runs.kinds.tasks import Decision
from weights.making import making


class Bitnet(BitnetView, GivenKind[BitnetState]):
    """A model with ternary weights (phase 4)."""

    name = "bitnet"
    package = "phases.bitnet"
    title = "a bitnet run"
    main_role = "model"
    line = "train a model to have ternary weights, and compare it with the alternatives"
    config = BitnetConfig
    submitted = Submitted
    forked = Forked
    state = BitnetState
    answers: ClassVar[Mapping[type[Event], type]] = answers(Started)
    figures_of: ClassVar[Mapping[str, str]] = findings.FIGURES

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
            **self.conclusions(state),
        )
        return Decision(facts=[New(done, f"{state.run}/completed")])

    def conclusions(self, state: BitnetState) -> dict[str, Any]:
        """Return the fields of `completed` that follow from what was made and measured."""
        return {
            "models": findings.results(state),
            "arms": findings.arms(state),
            "untrained": findings.chosen(state),
            "figures": findings.figures(state),
        }

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
