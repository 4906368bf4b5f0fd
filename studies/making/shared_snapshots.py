"""Snapshots of living trainings in the shared store, for machines with other disks. No torch.

    snapshot-HASH    the files of a snapshot; HASH is that of PROFILE/ID, its place in a cache

Only snapshots that the log has recorded are fetched, and each is compared with its event: files in
a store are a cache, and another machine may have written them. A store that fails costs time only.

`sentences` tell from which snapshots, here or in the store, the trainings under way go on.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from agent_forge.runs.errors import ForgeError, SourceChangedError, TamperedError
from agent_forge.runs.kinds.decide import open_tasks
from agent_forge.studies.making import making
from agent_forge.studies.making.making import MakeTask, MakingState
from agent_forge.weights.recipes import Train

if TYPE_CHECKING:
    from agent_forge.weights.storage.artifact_store import Vault
    from agent_forge.weights.storage.weight_cache import Artifacts
    from agent_forge.weights.training.loop import Snapshot
    from agent_forge.weights.training.snapshots import Snapshots

log = logging.getLogger(__name__)

#: At most this many names are looked up one by one; a list of all takes longer the larger the store.
FEW = 16


def group(profile: str) -> str:
    """Return the name of the folder of all snapshots under a profile: 16 hex digits of its hash."""
    return hashlib.sha256(profile.encode()).hexdigest()[:16]


def name(group_: str, recipe_id: str) -> str:
    """Return the name in the store of the snapshot of a recipe under a profile's `group`."""
    return f"snapshot-{hashlib.sha256(f'{group_}/{recipe_id}'.encode()).hexdigest()}"


def present(vault: Vault | None, names: Iterable[str]) -> set[str]:
    """Return the set of those `names` that a store has; empty without a store that can be read."""
    artifacts = set(names)
    if vault is None or not artifacts:
        return set()
    try:
        if len(artifacts) <= FEW:
            return {artifact for artifact in artifacts if vault.has(artifact)}
        return artifacts.intersection(vault.names())
    except (ForgeError, OSError) as error:
        log.warning("the shared store is not used: %s", error)
        return set()


def clear(vault: Vault | None, names: Iterable[str]) -> None:
    """Remove artifacts from a store as far as it has them; a failure is only logged."""
    for artifact in sorted(present(vault, names)):
        assert vault is not None
        try:
            vault.remove(artifact)
        except (ForgeError, OSError) as error:
            log.warning("a snapshot stays in the shared store: %s", error)
            return


class SharedSnapshots:
    """The snapshots under one profile that a store and this machine's cache exchange."""

    def __init__(self, vault: Vault | None, kept_snapshots: Snapshots) -> None:
        """Exchange between `vault` (None: there is no store) and the folder of `kept_snapshots`."""
        self._vault, self._kept = vault, kept_snapshots

    def name(self, recipe_id: str) -> str:
        """Return the name in the store of the snapshot of a recipe."""
        return name(self._kept.folder.name, recipe_id)

    def put(self, recipe: Train, older: Collection[int]) -> None:
        """Put the snapshot at `recipe.upto` steps; then remove those at the `older` steps.

        A store that is down or full only leads to a warning: the snapshot is on this machine's disk.
        """
        if self._vault is None:
            return
        try:
            self._vault.put(self.name(recipe.id), self._kept.files(recipe))
        except (ForgeError, OSError) as error:
            log.warning("a snapshot is not shared with other machines: %s", error)
            return
        clear(self._vault, [self.name(recipe.to(step).id) for step in older])

    def fetch(
        self, recipe: Train, steps: Iterable[int], check: Callable[[Snapshot], None]
    ) -> Snapshot | None:
        """Fetch the training's latest snapshot at one of `steps`; return it, None if there is none.

        This machine's cache then has it, too. `check` raises SourceChangedError for a snapshot that is
        not as recorded. Such a snapshot or a damaged one is removed, and the next earlier is fetched.
        """
        names = {step: self.name(recipe.to(step).id) for step in steps}
        there = present(self._vault, names.values())
        for step in sorted(names, reverse=True):
            if names[step] in there and (snapshot := self._fetched(recipe.to(step), check)):
                return snapshot
        return None

    def _fetched(self, recipe: Train, check: Callable[[Snapshot], None]) -> Snapshot | None:
        assert self._vault is not None
        place = self._kept.folder / recipe.id
        try:
            if self._vault.fetch(self.name(recipe.id), place):
                snapshot = self._kept.read(recipe)
                if snapshot is not None:
                    check(snapshot)
                return snapshot
        except (TamperedError, SourceChangedError) as error:
            log.warning("%s The stored snapshot %s is removed.", error, recipe.id[:12])
            shutil.rmtree(place, ignore_errors=True)
            clear(self._vault, [self.name(recipe.id)])
        except (ForgeError, OSError) as error:
            log.warning("the shared store is not used: %s", error)
        return None

    def settle(self, ended: Mapping[str, Iterable[str]]) -> None:
        """Remove from the store the snapshots of trainings whose result it has.

        `ended`: digest of the result → ids of the recipes of the training's snapshots.
        """
        names = {digest: {self.name(id_) for id_ in ids} for digest, ids in ended.items()}
        there = present(self._vault, set(names).union(*names.values()))
        for digest in there & set(names):
            clear(self._vault, names[digest] & there)


def under(started: Any) -> str:
    """Return "PROFILE|CANARY" of a started run: its snapshots depend on both and on their recipes."""
    return f"{started.profile.of_machine}|{started.canary}"


def names(state: MakingState) -> dict[str, str]:
    """Return recipe id → name in the shared store, of a run's snapshots, recorded or under way."""
    if state.started is None or state.skipped:
        return {}
    ids = {event.recipe_id for events in state.advanced.values() for event in events.values()}
    ids |= {task.recipe.id for task in open_tasks(state) if isinstance(task, MakeTask)}
    group_ = group(under(state.started))
    return {id_: name(group_, id_) for id_ in ids}


def sentences(state: MakingState, trainings: Mapping[str, Train], cache: Artifacts) -> list[str]:
    """Return a sentence for each training under way: the step that it goes on from."""
    snapshot_ids = making.kept(cache.folder)
    shared = cache.vault is not None
    if shared:
        places = names(state)
        there = present(cache.vault, places.values())
        snapshot_ids |= {id_ for id_, place in places.items() if place in there}
    return [
        _sentence(training, done, making.newest(snapshot_ids, state, recipe), shared)
        for training, recipe in trainings.items()
        if 0 < (done := state.steps(recipe)) < recipe.upto
    ]


def _sentence(training: str, done: int, step: int, shared: bool) -> str:
    """Return the sentence on a training of which `done` steps are recorded and `step` are kept.

    `shared`: there is a store, where they may be.
    """
    sentence = f"the training of {training} goes on from step {done}"
    if step == done:
        return f"{sentence}."
    since = f"from step {step} on" if step else "from its first step on"
    where = "on this machine or in the shared store" if shared else "on this machine"
    return (
        f"{sentence}: its snapshot there is not kept {where}, so it is trained again {since} and "
        "compared with the log."
    )
