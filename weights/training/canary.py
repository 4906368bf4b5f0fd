"""Canary: the digest of three fixed steps, which is equal on two equal machines.

The profile lists all that should matter for the bits of a training; the canary tests it.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent_forge.runs.system import pace
from agent_forge.weights.folders.checkpoint import digest
from agent_forge.weights.recipes import Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training.team import Team, segment
from agent_forge.weights.training.windows import Ids

STEPS = 3


def canary(
    recipe: Train,
    start: Tensors,
    streams: Mapping[str, Ids],
    *,
    inputs: Mapping[str, Tensors] | None = None,
    device: str = "cpu",
    team: Team = Team(),
) -> tuple[str, float]:
    """Do the first three steps from `start`; return (BLAKE3 of weights and optimiser, seconds).

    `inputs` are the models that the objective reads, by role. The optimiser begins without state, even
    if the recipe carries one on. A shorter training does all its steps.
    """
    fresh = recipe.model_copy(update={"carries": False})
    last = min(recipe.first + STEPS, recipe.upto)
    with pace.counted_as("steps of this machine's check"):
        snapshot = segment(
            fresh, start, None, streams, recipe.first, last, inputs=inputs, device=device, team=team
        )
    weights = {f"model/{name}": tensor for name, tensor in snapshot.weights.items()}
    return digest(weights | snapshot.optimiser), snapshot.seconds
