"""Making of recipes: its tasks and events, what is next, and notes in snapshots' folders. No torch.

    runs.txt       names of the runs that the snapshot serves, one a line
    seconds.txt    seconds that it takes to make the snapshot again
    ended          present if all of the runs have ended: the snapshot is the first to be removed

Notes are about the place of a snapshot, not about its content: missing notes do no harm.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field
from typing_extensions import override

from agent_forge.events import Event, New
from agent_forge.runs.event_types import Count, Digest, EventPart
from agent_forge.runs.kinds.decide import NextWork
from agent_forge.runs.kinds.state import Handler, State, put
from agent_forge.weights.recipes import Train, Transform
from agent_forge.weights.storage.weight_cache import COST, ENDED, SNAPSHOTS

#: What a task makes.
Making = Transform | Train


class Point(EventPart):
    """One point of a training's curves: a step, or the mean of the steps since the point before."""

    step: Count
    #: Nats a token.
    loss: float
    #: Norm of the gradient, before it was clipped.
    norm: float
    #: Learning rate.
    rate: float


class Made(Event):
    """The weights of a recipe were made in one go."""

    type = "made"

    recipe_id: Digest
    recipe: Transform
    #: BLAKE3 of the weights.
    digest: Digest
    seconds: float = Field(ge=0)


class Trained(Event):
    """A training has ended: the weights after its last segment are a model."""

    type = "trained"

    recipe_id: Digest
    recipe: Train
    #: BLAKE3 of the weights.
    digest: Digest


class Advanced(Event):
    """A training was carried on by a segment. The length of segments changes no recipe and no bit."""

    type = "advanced"

    #: Id of the snapshot's recipe: the training up to this step.
    recipe_id: Digest
    #: Id that all snapshots of the training share.
    stem: Digest
    #: Steps that were done before the segment, and after it.
    begin: Count
    step: Count
    #: BLAKE3 of the weights, and of the optimiser's tensors.
    digest: Digest
    optimiser: Digest
    curve: tuple[Point, ...]
    tokens: Count
    seconds: float = Field(ge=0)


#: Events of this room, for a kind's registry.
EVENTS = (Made, Advanced, Trained)
#: Types that a kind leaves out of its lineage: where segments end is luck.
OUTSIDE = frozenset({Advanced.type})


@dataclass(frozen=True)
class MakeTask:
    """Task: make the weights of a recipe; of a training, those after the next segment."""

    recipe: Making
    #: Steps of the training that are done before the segment.
    done: int = 0

    @property
    def key(self) -> str:
        """`make/ID`, where ID is the recipe's; a segment's is that of the snapshot at its end."""
        return f"make/{self.recipe.id}"


@dataclass
class MakingState(State):
    """State of a run that makes models."""

    #: Recipe id → what was made.
    made: dict[str, Made | Trained] = field(default_factory=dict[str, Made | Trained])
    #: Stem of a training → step → the segment that ended there.
    advanced: dict[str, dict[int, Advanced]] = field(default_factory=dict[str, dict[int, Advanced]])

    def steps(self, recipe: Train) -> int:
        """Return the number of steps that a training has done; `recipe.first` before it has begun."""
        done = (step for step in self.advanced.get(recipe.stem, ()) if step <= recipe.upto)
        return max(done, default=recipe.first)

    @override
    def making_seconds(self, digest: str) -> float:
        for event in self.made.values():
            if event.digest != digest:
                continue
            if isinstance(event, Made):
                return event.seconds
            return sum(segment.seconds for segment in self.advanced.get(event.recipe.stem, {}).values())
        return 0.0


def _on_advanced(state: MakingState, event: Advanced) -> None:
    # A new dictionary: `evolve` copies a state's own dictionaries, and not those within.
    state.advanced[event.stem] = {**state.advanced.get(event.stem, {}), event.step: event}


#: Handlers of the room's events, for a kind's state.
HANDLERS: dict[type[Event], Handler] = {
    Made: put("made", "recipe_id"),
    Trained: put("made", "recipe_id"),
    Advanced: _on_advanced,
}


def next_of(state: MakingState, recipes: Sequence[Making], segment: int) -> NextWork:
    """Return a `NextWork` to make recipes side by side: facts, or else tasks; empty if all are made.

    A task carries a training on by `segment` steps. When its last segment has ended, `trained` is a
    fact.
    """
    facts: list[New] = []
    tasks: list[MakeTask] = []
    for recipe in recipes:
        if recipe.id in state.made:
            continue
        if not isinstance(recipe, Train):
            tasks.append(MakeTask(recipe))
        elif (done := state.steps(recipe)) < recipe.upto:
            tasks.append(MakeTask(recipe.to(min(done + segment, recipe.upto)), done))
        else:
            last = state.advanced[recipe.stem][recipe.upto]
            event = Trained(recipe_id=recipe.id, recipe=recipe, digest=last.digest)
            facts.append(New(event, f"{state.run}/trained/{recipe.id}"))
    return NextWork(facts=facts) if facts else NextWork(tasks=tasks)


def validate_answer(task: MakeTask, event: Made | Advanced) -> str | None:
    """Return why an event does not answer the task; None if it does. For the audit."""
    recipe = task.recipe
    if event.recipe_id != recipe.id:
        return "another recipe was made than the one that was asked for"
    if isinstance(event, Made):
        return None if event.recipe == recipe else "the recipe is not the one that was asked for"
    if not isinstance(recipe, Train):
        return "a segment was recorded, and no training was asked for"
    if (event.stem, event.begin, event.step) != (recipe.stem, task.done, recipe.upto):
        return "the segment is of other steps than the one that was asked for"
    if event.tokens % (event.step - event.begin):
        return "the segment's number of tokens is no multiple of its number of steps"
    steps = [point.step for point in event.curve]
    if steps != sorted(set(steps)) or (steps and not task.done < steps[0] <= steps[-1] <= event.step):
        return "the curve has points outside of the segment"
    return None


def needs(task: object) -> str | None:
    """Return the id of the snapshot or model that a task goes on from or reads; None without one.

    A segment goes on from a snapshot. A task that reads a model and makes none has its `recipe_id`.
    """
    if not isinstance(task, MakeTask):
        return getattr(task, "recipe_id", None)
    if isinstance(task.recipe, Train):
        begun = task.done > task.recipe.first
        return task.recipe.to(task.done).id if begun else task.recipe.start
    inputs = task.recipe.inputs
    return inputs.get("of") or inputs.get("svd") or inputs.get("end")


def settled(recorded: Event, event: Event) -> Event:
    """Return `event`; a second `started` gets the fields that the first one, `recorded`, has settled.

    They are the length of segments and, if memory differs, the parts in which a step is computed.
    """
    first: Any = recorded
    if not recorded.type == event.type == "started" or not hasattr(first, "segment"):
        return event
    update = {"segment": first.segment}
    if getattr(event, "accumulation", None) != getattr(first, "accumulation", None):
        names = ("accumulation", "canary", "warnings")
        update |= {name: getattr(first, name) for name in names}
    return event.model_copy(update=update)


RUNS = "runs.txt"


def note(folder: Path, run: str, seconds: float | None = None) -> None:
    """Write into a snapshot's folder that `run` uses it now, and the `seconds` that making it took."""
    with contextlib.suppress(OSError):
        os.utime(folder)
        (folder / ENDED).unlink(missing_ok=True)
        if seconds is not None:
            (folder / COST).write_text(f"{seconds}\n", "utf-8")
        names = runs(folder)
        if run not in names:
            (folder / RUNS).write_text("".join(f"{name}\n" for name in (*names, run)), "utf-8")


def runs(folder: Path) -> list[str]:
    """Return the names of the runs that made or used a snapshot; empty if there is no note."""
    try:
        return (folder / RUNS).read_text("utf-8").split()
    except OSError:
        return []


def kept(artifacts: Path) -> set[str]:
    """Return the set of the ids of the recipes that the cache folder `artifacts` has snapshots of."""
    return {folder.name for folder in artifacts.glob(f"{SNAPSHOTS}/*/*")}


def newest(snapshot_ids: Collection[str], state: MakingState, recipe: Train) -> int:
    """Return the latest recorded step of a training whose snapshot is among `snapshot_ids`; 0: none."""
    events = state.advanced.get(recipe.stem, {}).values()
    return max((event.step for event in events if event.recipe_id in snapshot_ids), default=0)


def noted(artifacts: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield (folder, names of its runs) of every snapshot of a cache that has a note of its runs."""
    for file in sorted(artifacts.glob(f"{SNAPSHOTS}/*/*/{RUNS}")):
        if names := runs(file.parent):
            yield file.parent, names
