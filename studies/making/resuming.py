"""Snapshots that trainings under way go on from, on this machine or in the shared store. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_forge.runs.kinds.decide import open_tasks
from agent_forge.studies.making import making, shared_snapshots
from agent_forge.studies.making.making import MakeTask, MakingState
from agent_forge.weights.recipes import Train
from agent_forge.weights.storage.weight_cache import Artifacts


def under(started: Any) -> str:
    """Return "PROFILE|CANARY" of a started run: its snapshots depend on both and on their recipes."""
    return f"{started.profile.of_machine}|{started.canary}"


def names(state: MakingState) -> dict[str, str]:
    """Return recipe id → name in the shared store, of a run's snapshots, recorded or under way."""
    if state.started is None or state.skipped:
        return {}
    ids = {event.recipe_id for events in state.advanced.values() for event in events.values()}
    ids |= {task.recipe.id for task in open_tasks(state) if isinstance(task, MakeTask)}
    group = shared_snapshots.group(under(state.started))
    return {id_: shared_snapshots.name(group, id_) for id_ in ids}


def sentences(state: MakingState, trainings: Mapping[str, Train], cache: Artifacts) -> list[str]:
    """Return a sentence for each training under way: the step that it goes on from."""
    snapshot_ids = making.kept(cache.folder)
    shared = cache.vault is not None
    if shared:
        places = names(state)
        there = shared_snapshots.present(cache.vault, places.values())
        snapshot_ids |= {id_ for id_, place in places.items() if place in there}
    return [
        _sentence(name, done, making.newest(snapshot_ids, state, recipe), shared)
        for name, recipe in trainings.items()
        if 0 < (done := state.steps(recipe)) < recipe.upto
    ]


def _sentence(name: str, done: int, step: int, shared: bool) -> str:
    """Return the sentence on a training of which `done` steps are recorded and `step` are kept.

    `shared`: there is a store, where they may be.
    """
    sentence = f"the training of {name} goes on from step {done}"
    if step == done:
        return f"{sentence}."
    since = f"from step {step} on" if step else "from its first step on"
    where = "on this machine or in the shared store" if shared else "on this machine"
    return (
        f"{sentence}: its snapshot there is not kept {where}, so it is trained again {since} and "
        "compared with the log."
    )
