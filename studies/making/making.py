"""Tasks that make recipes, and what is next until a recipe is made. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from events import Event, New
from runs.kinds.state import Handler, State, put
from runs.kinds.tasks import Decision
from studies.making.events import Advanced, Made, Making, Trained
from weights.recipes import Train


@dataclass(frozen=True)
class Make:
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
    made: dict[str, Made | Trained] = field(default_factory=dict)
    #: Stem of a training → step → the segment that ended there.
    advanced: dict[str, dict[int, Advanced]] = field(default_factory=dict)

    def steps(self, recipe: Train) -> int:
        """Return the number of the step that a training is at: `first` before any is done."""
        done = (step for step in self.advanced.get(recipe.stem, ()) if step <= recipe.upto)
        return max(done, default=recipe.first)

    def making_seconds(self, digest: str) -> float:
        """Return the recorded seconds that it took to make weights from their inputs; 0: not known."""
        for event in self.made.values():
            if event.digest != digest:
                continue
            if isinstance(event, Made):
                return event.seconds
            return sum(
                segment.seconds for segment in self.advanced.get(event.recipe.stem, {}).values()
            )
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


def next_of(state: MakingState, recipes: Sequence[Making], segment: int) -> Decision:
    """Return what to do next to make recipes, all at once; nothing if they are made.

    A training goes on by `segment` steps. What made it is recorded as a fact when its last segment has
    ended.
    """
    facts: list[New] = []
    tasks: list[Make] = []
    for recipe in recipes:
        if recipe.id in state.made:
            continue
        if not isinstance(recipe, Train):
            tasks.append(Make(recipe))
        elif (done := state.steps(recipe)) < recipe.upto:
            tasks.append(Make(recipe.to(min(done + segment, recipe.upto)), done))
        else:
            last = state.advanced[recipe.stem][recipe.upto]
            event = Trained(recipe_id=recipe.id, recipe=recipe, digest=last.digest)
            facts.append(New(event, f"{state.run}/trained/{recipe.id}"))
    return Decision(facts=facts) if facts else Decision(tasks=tasks)


def unasked(task: Make, event: Made | Advanced) -> str | None:
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
    if steps != sorted(set(steps)) or (
        steps and not task.done < steps[0] <= steps[-1] <= event.step
    ):
        return "the curve has points outside of the segment"
    return None
