"""BitNet as a kind of run: a model becomes ternary by training, beside its honest alternatives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from events import Event
from phases.bitnet import findings, origins, plan
from phases.bitnet.config import BitnetConfig
from phases.bitnet.events import BitnetState, Completed, Forked, Started, Submitted
from phases.bitnet.view import BitnetView
from studies import comparison
from studies.events import MODEL
from studies.kind import GivenKind, answers
from studies.making.events import Making
from studies.observing import Observe


class Bitnet(BitnetView, GivenKind[BitnetState]):
    """A model with ternary weights (phase 4)."""

    name = "bitnet"
    phase = 4
    package = "phases.bitnet"
    title = "a bitnet run"
    line = "train a model to have ternary weights, and compare it with the alternatives"
    config = BitnetConfig
    submitted = Submitted
    forked = Forked
    state = BitnetState
    completed = Completed
    answers: ClassVar[Mapping[type[Event], type]] = answers(Started)
    as_given = (plan.MASTER,)
    figures_of: ClassVar[Mapping[str, str]] = findings.FIGURES
    figure_units: ClassVar[Mapping[str, str]] = {
        "bits_per_byte": "bits/byte",
        "lead_over_untrained": "bits/byte",
    }

    # ---- deciding ----------------------------------------------------------------------------

    def stages(self, state: BitnetState) -> Iterator[Sequence[Making]]:
        """Yield the recipes that are made at the same time, each after those that it reads."""
        recipes = plan.recipes(state)
        first = [plan.START, *([plan.FRESH] if plan.FRESH in recipes else [])]
        last = [name for name in (MODEL, plan.SCRATCH) if name in recipes]
        yield [recipes[name] for name in first]
        yield [recipe for name, recipe in recipes.items() if name not in (*first, *last)]
        yield [recipes[name] for name in last]

    def questions(self, state: BitnetState) -> Iterator[Mapping[str, Observe]]:
        """Yield what chooses a way of rounding, then what all arms are compared by."""
        yield findings.choosing(state)
        yield findings.comparing(state)

    def conclusions(self, state: BitnetState) -> dict[str, Any]:
        """Return the fields of `completed` that follow from what was made and measured."""
        return {
            "models": findings.results(state),
            "arms": comparison.arms(findings.found(state)),
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
        found = plan.recipes(state)[MODEL].id
        return found if found in state.made else None

    def roles(self, config: Any) -> Sequence[str]:
        """Return the ternary model and its master in full precision."""
        return origins.ROLES

    # ---- verification ------------------------------------------------------------------------

    def chosen(self, state: BitnetState, which: str) -> list[str]:
        """Return the recipe ids that "all", "champion" (the ternary model), a role or an id means."""
        if which == "all":
            return [one.id for one in plan.recipes(state).values() if one.id in state.made]
        return [self.find(state, MODEL if which == "champion" else which)]
