"""Windows of token streams, drawn for each step by key; and trajectories as token streams.

One numpy generator with the training's key serves a training from its first step on. A reader that
begins at step n draws the rows of the steps before and drops them (measured: 0.02 ms a step of 16
rows). So the rows of step n depend on key and n only.

A trajectory is a model's reply with two forms of its beginning. A recipe names streams by digest, so a
set of trajectories is one stream:

    the prompt's number, the lengths of prompted beginning, plain beginning and reply, in tokens,
    then the ids of all three; and so on for every trajectory

The writer read the prompted beginning; the trained model reads the plain one instead.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import blake3
import numpy as np
from numpy.typing import NDArray

from agent_forge.runs.errors import DataError
from agent_forge.weights.recipes import Train

T = TypeVar("T")
Ids = NDArray[np.int32]


def stream_digest(ids: Ids) -> str:
    """Return BLAKE3 over a stream of token ids as little-endian int32, 64 hexadecimal digits."""
    return blake3.blake3(np.ascontiguousarray(ids, "<i4").tobytes()).hexdigest()


def seeded(seed: int, purpose: str) -> np.random.Generator:
    """Return a generator keyed by seed and purpose; draws for other purposes do not change it."""
    key = int.from_bytes(hashlib.sha256(f"cognate/{seed}/{purpose}".encode()).digest()[:16], "big")
    return np.random.Generator(np.random.Philox(key=key))


def drawn(
    recipe: Train, step: int, edges: NDArray[np.float64], items: Sequence[Sequence[T]]
) -> Iterator[T]:
    """Yield random items without end, keyed by the step; `edges`: cumulative shares of the streams."""
    draws = seeded(recipe.seed, f"{recipe.purpose}/{step}")
    while True:
        for of, which in draws.random((recipe.batch, 2)):
            stream = items[min(int(np.searchsorted(edges, of, "right")), len(items) - 1)]
            yield stream[int(which * len(stream))]


class Batches:
    """Source of rows of `context` + 1 token ids; each is at a random place of a stream, by share."""

    def __init__(
        self,
        streams: Mapping[str, Ids],
        shares: Mapping[str, float],
        batch: int,
        context: int,
        key: tuple[int, str],
    ) -> None:
        """Store the streams. `key` is (seed, purpose). Raises DataError if a stream is too short."""
        self._names = sorted(shares)
        total = sum(shares.values())
        self._shares = [shares[name] / total for name in self._names]
        self._streams = [streams[name] for name in self._names]
        self._batch, self._context, self._key = batch, context, key
        for name, stream in zip(self._names, self._streams, strict=True):
            if len(stream) < context + 2:
                raise DataError(
                    f"data {name!r} has {len(stream)} tokens: a window of {context} needs at least "
                    f"{context + 2}."
                )
        self._restart()

    def _restart(self) -> None:
        self._rng = seeded(*self._key)
        self._next = 0

    def _draw(self) -> list[tuple[int, int]]:
        """Return the next step's rows as (stream's number, place of the first token); advance."""
        self._next += 1
        return [
            (int(i), int(self._rng.integers(0, len(self._streams[int(i)]) - self._context - 1)))
            for i in self._rng.choice(len(self._names), self._batch, p=self._shares)
        ]

    def rows(self, step: int) -> NDArray[np.int64]:
        """Return the token ids of a step's rows, [batch, context + 1] int64."""
        if step < self._next:
            self._restart()
        while self._next < step:
            self._draw()
        width = self._context + 1
        rows = [self._streams[i][at : at + width] for i, at in self._draw()]
        return np.stack(rows).astype(np.int64)


#: Streams of a bake's data that hold trajectories, after the prompt and after other prompts. All other
#: streams are ordinary text.
BAKED, OTHERS = "bake/trajectories", "bake/others"
#: Numbers before the ids of a trajectory.
HEADER = 4


@dataclass(frozen=True)
class Trajectory:
    """A reply, and the two beginnings before it: ids, [tokens] int32 each."""

    #: Number of the prompt, from 0.
    prompt: int
    prompted: Ids
    plain: Ids
    reply: Ids

    @property
    def length(self) -> int:
        """Tokens of the reply and the longer beginning."""
        return max(len(self.prompted), len(self.plain)) + len(self.reply)


def pack(trajectories: Iterable[Trajectory]) -> Ids:
    """Return the trajectories as one int32 stream, which `unpack` reads."""
    parts: list[Ids] = [np.zeros(0, np.int32)]
    for trajectory in trajectories:
        sizes = (
            trajectory.prompt,
            len(trajectory.prompted),
            len(trajectory.plain),
            len(trajectory.reply),
        )
        parts += [np.asarray(sizes, np.int32), trajectory.prompted, trajectory.plain, trajectory.reply]
    return np.concatenate(parts).astype(np.int32)


def unpack(stream: Ids) -> list[Trajectory]:
    """Return the list of the trajectories in a stream.

    Raises DataError for a stream of another form, and for an empty beginning or reply.
    """
    trajectories, at = [], 0
    while at < len(stream):
        prompt, *sizes = map(int, stream[at : at + HEADER])
        ends = np.cumsum([at + HEADER, *sizes])
        if len(sizes) != HEADER - 1 or prompt < 0 or min(sizes) < 1 or ends[-1] > len(stream):
            raise DataError(f"the stream holds no trajectories: number {at} begins none")
        parts = [stream[a:b] for a, b in itertools.pairwise(ends)]
        trajectories.append(Trajectory(prompt, *parts))
        at = int(ends[-1])
    return trajectories


def advantages(rewards: Sequence[float], samples: int) -> list[float]:
    """Return each reward minus the mean of the others of its request: 0 where all are equal.

    `samples` replies in a row, 2 or more, answer one request (RLOO, arXiv 2402.14740, section 3.2).
    """
    values = np.asarray(rewards, np.float64).reshape(-1, samples)
    gains = (values * samples - values.sum(1, keepdims=True)) / (samples - 1)
    gains[(values == values[:, :1]).all(1)] = 0.0
    return gains.flatten().tolist()


def pairs(rewards: Sequence[float], samples: int) -> list[tuple[int, int]]:
    """Return the places of pairs of replies to a request: one with a higher reward, one with a lower.

    `samples` replies in a row answer one request. The highest is paired with the lowest, the second
    highest with the second lowest, and so on while they differ; of equal ones, the first is higher.
    """
    couples = list[tuple[int, int]]()
    for first in range(0, len(rewards), samples):
        order = sorted(range(first, first + samples), key=lambda place: -rewards[place])
        both = zip(order[: samples // 2], reversed(order), strict=False)
        couples += [(a, b) for a, b in both if rewards[a] > rewards[b]]
    return couples


def pack_items(items: Iterable[Ids]) -> Ids:
    """Return items, ids [tokens] each, as one int32 stream: the length of each, then its ids."""
    parts = [part for item in items for part in (np.asarray([len(item)], np.int32), item)]
    return np.concatenate([np.zeros(0, np.int32), *parts]).astype(np.int32)


def unpack_items(stream: Ids) -> list[Ids]:
    """Return the list of the items in a stream of `pack_items`. Raises DataError for another stream."""
    items, at = [], 0
    while at < len(stream):
        end = at + 1 + int(stream[at])
        if end <= at + 1 or end > len(stream):
            raise DataError(f"the stream holds no items: number {at} begins none")
        items.append(stream[at + 1 : end])
        at = end
    return items
