"""Sampling trajectories as a task of a run: what is asked, and what is recorded. No torch.

The trajectories are kept as tensors under their digest, like weights, and sampled again where the cache
lacks them.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from agent_forge.events import Event
from agent_forge.runs.event_types import Count, Digest, EventPart, Large


class Kept(EventPart):
    """A stream of trajectories (`weights/training/windows.py`)."""

    #: BLAKE3 of its token ids, as recipes name data.
    digest: Digest
    trajectories: Count
    #: Tokens of all replies.
    tokens: Large


@dataclass(frozen=True)
class SampleReplies:
    """Task: let a model write replies to contexts."""

    #: The model that writes.
    recipe_id: str
    #: Names of the streams that are wanted.
    streams: tuple[str, ...]

    @property
    def key(self) -> str:
        """`sample/ID`, where ID is that of the writer's recipe."""
        return f"sample/{self.recipe_id}"


class Sampled(Event):
    """A model wrote replies to contexts."""

    type = "sampled"

    recipe_id: Digest
    #: Name → stream.
    streams: dict[str, Kept]
    #: BLAKE3 over all streams as tensors: the name under which they are kept.
    digest: Digest
    seconds: float = Field(ge=0)


def validate_answer(task: SampleReplies, event: Sampled) -> str | None:
    """Return the reason why an event does not answer the task; None if it does. For the audit."""
    if event.recipe_id != task.recipe_id:
        return "another model wrote than the one that was asked"
    if tuple(sorted(event.streams)) != tuple(sorted(task.streams)):
        return "other streams were written than those that were asked for"
    if any(stream.tokens < stream.trajectories for stream in event.streams.values()):
        return "a reply has no token"
    return None
