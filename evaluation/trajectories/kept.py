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
    tensors = cache.get(event.digest)
    if tensors is None:
        with pieces.undivided():
            written = write()
        tensors = {name: torch.from_numpy(pack(trajectories)) for name, trajectories in written.items()}
        if digest(tensors) != event.digest:
            raise SourceChangedError(
                f"trajectories sampled again have the digest {digest(tensors)[:12]}, the log says "
                f"{event.digest[:12]}."
            )
        cache.keep(event.digest, tensors, event.seconds)
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
