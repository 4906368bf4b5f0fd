"""Streams of trajectories on this machine: kept under their digest, or sampled again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from agent_forge.evaluation.trajectories.sampled import Kept, Sampled, SampleReplies
from agent_forge.runs.errors import SourceChangedError
from agent_forge.weights import pieces
from agent_forge.weights.folders.checkpoint import digest
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.training.windows import Ids, Trajectory, pack, stream_digest

#: Name of a stream → its trajectories.
Written = Mapping[str, Sequence[Trajectory]]


def answered(task: SampleReplies, cache: Artifacts, write: Callable[[], Written]) -> Sampled:
    """Return the event `Sampled` of the trajectories of `write`, after keeping them in the cache."""
    began = time.monotonic()
    with pieces.divided():
        written = write()
    streams = {name: pack(trajectories) for name, trajectories in written.items()}
    tensors = {name: torch.from_numpy(ids) for name, ids in streams.items()}
    seconds, content_digest = time.monotonic() - began, digest(tensors)
    cache.keep(content_digest, tensors, seconds)
    return Sampled(
        recipe_id=task.recipe_id,
        streams={
            name: Kept(
                digest=stream_digest(streams[name]),
                trajectories=len(trajectories),
                tokens=sum(len(trajectory.reply) for trajectory in trajectories),
            )
            for name, trajectories in written.items()
        },
        digest=content_digest,
        seconds=seconds,
    )


def streams(event: Sampled, cache: Artifacts, write: Callable[[], Written]) -> dict[str, Ids]:
    """Return {name: stream of token ids} of what was sampled, or sampled again if the cache lacks it.

    `write` samples again. Raises SourceChangedError if its trajectories are not those in the log.
    """

    def packed() -> dict[str, Ids]:
        return {name: pack(trajectories) for name, trajectories in write().items()}

    return same_streams(event.digest, event.seconds, cache, packed, "trajectories sampled")


def same_streams(
    recorded: str, seconds: float, cache: Artifacts, write: Callable[[], Mapping[str, Ids]], what: str
) -> dict[str, Ids]:
    """Return {name: token ids} whose digest is `recorded`, from the cache or as `write` repeats them.

    Raises SourceChangedError, which says `what` is done again, if their digest is another.
    """
    tensors = cache.get(recorded)
    if tensors is None:
        with pieces.undivided():
            tensors = {name: torch.from_numpy(ids) for name, ids in write().items()}
        if (repeated := digest(tensors)) != recorded:
            raise SourceChangedError(
                f"{what} again have the digest {repeated[:12]}, the log says {recorded[:12]}."
            )
        cache.keep(recorded, tensors, seconds)
    return {name: tensor.numpy() for name, tensor in tensors.items()}


class LazyStreams(Mapping[str, Ids]):
    """Streams by name, each read from its source when it is used."""

    def __init__(self, sources: Mapping[str, Callable[[], Mapping[str, Ids]]]) -> None:
        """Take {name: function that returns the stream, perhaps among others}."""
        self._sources = sources

    def __getitem__(self, name: str) -> Ids:
        """Return a stream's token ids. Raises KeyError for an unknown name, and its source's errors."""
        return self._sources[name]()[name]

    def __iter__(self) -> Iterator[str]:
        """Return an iterator over the names."""
        return iter(self._sources)

    def __len__(self) -> int:
        """Return the number of streams."""
        return len(self._sources)
