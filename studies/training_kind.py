"""Kinds of run that train models on text and measure them. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from events import Event
from runs.event_types import MadeModel, Measurement
from runs.kinds.decide import open_tasks
from runs.kinds.tasks import Task
from studies import paired_bits
from studies.making import making, shared_snapshots, snapshot_notes
from studies.making.events import Advanced, Made
from studies.making.making import Make, MakingState
from studies.making.making_kind import MakingKind
from studies.observing import Observe, Observed
from studies.observing import unasked as wrong_observation
from weights.recipes import Train

S = TypeVar("S", bound=MakingState)


class TrainingKind(MakingKind[S]):
    """A kind of run that trains models on text; what it pins of the text stands in its `started`."""

    gives_items = True

    def essential(self, state: S, task: str) -> bool:
        """Return True: without one of its models or figures the run has no result."""
        return True

    def agrees(self, state: S, recorded: Event, found: Event) -> bool:
        """Return True if a second result does not contradict the recorded one.

        How long segments are, and in how many parts a step is computed where there is less memory, is
        settled by the first `started`.
        """
        first: Any = recorded
        if recorded.type == found.type == "started":
            settled = {"segment": first.segment}
            parts = getattr(first, "accumulation", None)
            if getattr(found, "accumulation", None) != parts:
                names = ("accumulation", "canary", "warnings")
                settled |= {name: getattr(first, name) for name in names}
            found = found.model_copy(update=settled)
        return super().agrees(state, recorded, found)

    def unasked(self, state: S, task: Task, event: Event) -> str | None:
        """Return why the event does not answer the open task; None if it does."""
        if isinstance(task, Make) and isinstance(event, Made | Advanced):
            return making.unasked(task, event)
        if isinstance(task, Observe) and isinstance(event, Observed):
            return wrong_observation(task, event)
        return None

    def measurements(self, state: S, digest: str) -> list[Measurement]:
        """Return the bits per byte of the models of the run with these weights, made or given."""
        ids = {id_ for id_, made in state.made.items() if made.digest == digest}
        return paired_bits.measurements(state.answers.values(), ids, state.submitted.config.seed)

    def placed(self, data: str) -> str:
        """Return PATH or DOMAIN=PATH with an absolute path; a data set of the Hub is fetched."""
        from evaluation.data.training_texts import absolute

        return absolute(data)

    def asked_for(self, given: Mapping[str, Any], config: Any) -> bool:
        """Return True if the settings are those; domains that were not given are those of the data."""
        own = {"domains": config.domains} if "domains" in type(config).model_fields else {}
        return super().asked_for({**own, **given}, config)

    def needs(self, task: Any) -> str | None:
        """Return the id of the snapshot that a segment goes on from, or of the model that is read."""
        if isinstance(task, Observe):
            return task.recipe_id
        if not isinstance(task, Make):
            return None
        if isinstance(task.recipe, Train):
            begun = task.done > task.recipe.first
            return task.recipe.to(task.done).id if begun else task.recipe.start
        inputs = task.recipe.inputs
        return inputs.get("of") or inputs.get("svd") or inputs.get("end")

    def result(self, state: S) -> str | None:
        """Return the digest of the weights of the run's result, or None."""
        found = self.result_id(state)
        return state.made[found].digest if found else None

    def results(self, state: S) -> dict[str, MadeModel]:
        """Return role → model."""
        return {
            role: MadeModel(recipe_id=one.recipe_id, digest=one.digest)
            for role, one in state.completed.models.items()
        }

    def resumes(self, state: S, cache: Any) -> list[str]:
        """Return a sentence for each training under way: the step that it goes on from."""
        if state.started is None:
            return []
        kept = snapshot_notes.kept(cache.folder)
        shared = cache.vault is not None
        if shared:
            names = self._names(state)
            there = shared_snapshots.present(cache.vault, names.values())
            kept |= {id_ for id_, name in names.items() if name in there}
        return [
            _resumes(name, done, snapshot_notes.newest(kept, state, recipe), shared)
            for name, recipe in self.trainings(state).items()
            if 0 < (done := state.steps(recipe)) < recipe.upto
        ]

    def stored(self, state: S) -> frozenset[str]:
        """Return the names of the snapshots of the run's trainings, recorded or under way."""
        return frozenset(self._names(state).values())

    def _names(self, state: S) -> dict[str, str]:
        """Return id → name in the shared store of the snapshots, recorded or under way."""
        if state.started is None or state.skipped:
            return {}
        ids = {event.recipe_id for events in state.advanced.values() for event in events.values()}
        ids |= {task.recipe.id for task in open_tasks(state) if isinstance(task, Make)}
        group = shared_snapshots.group(under(state.started))
        return {id_: shared_snapshots.name(group, id_) for id_ in ids}

    def trainings(self, state: S) -> Mapping[str, Train]:
        """Return name → recipe of every model that a started run trains."""
        raise NotImplementedError

    def making_seconds(self, state: S, digest: str) -> float:
        """Return the seconds that it took to make weights of the run; 0: not known."""
        return state.making_seconds(digest)

    def items_address(self, state: S) -> str:
        """Return the content address of the run's text."""
        from evaluation.training_text import kept_text

        started = state.started
        return kept_text.address(started.streams, started.files, started.items)

    def items_file(self, state: S, cache: Any) -> Path:
        """Return this machine's file of the items that a run has pinned. Raises ForgeError."""
        from evaluation.training_text.kept_text import ITEMS

        return self._file("tasks.execute").Context(state, cache).text.folder / ITEMS

    def keep(self, state: S, cache: Any) -> None:
        """Remove the snapshots of trainings that have ended: their results are on disk."""
        if state.started is not None and state.made:
            self._file("tasks.execute").Context(state, cache).tidy()


def under(started: Any) -> str:
    """Return what the snapshots of a started run depend on beside their recipes: profile, canary."""
    return f"{started.profile.of_machine}|{started.canary}"


def _resumes(name: str, done: int, kept: int, shared: bool) -> str:
    """Return the sentence on a training of which `done` steps are recorded and `kept` are kept.

    `shared`: there is a store, where they may be.
    """
    said = f"the training of {name} goes on from step {done}"
    if kept == done:
        return f"{said}."
    since = f"from step {kept} on" if kept else "from its first step on"
    where = "on this machine or in the shared store" if shared else "on this machine"
    return (
        f"{said}: its snapshot there is not kept {where}, so it is trained again {since} and "
        "compared with the log."
    )
