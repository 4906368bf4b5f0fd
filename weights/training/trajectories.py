"""Trajectories: texts that a model wrote after two forms of a beginning, as one stream of token ids.

A training reads streams of token ids that its recipe names by digest, so a set of trajectories is one:

    number of the prompt, tokens of the prompted beginning, of the plain one, of the reply,
    then the ids of all three; and so on for every trajectory

The prompted beginning is what the writer read; the plain one is what the trained model reads instead.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from runs.errors import DataError
from weights.training.windows import Ids

#: Streams of a bake's data that hold trajectories: after the prompt, and after other prompts. All
#: other streams are ordinary text.
BAKED, OTHERS = "bake/trajectories", "bake/others"
#: Numbers before the ids of a trajectory.
HEADER = 4


@dataclass(frozen=True)
class Trajectory:
    """A reply, and the two beginnings that it is read after: ids [tokens] int32 each."""

    #: Number of the prompt, from 0.
    prompt: int
    prompted: Ids
    plain: Ids
    reply: Ids

    @property
    def length(self) -> int:
        """Tokens of the longer of the two sequences."""
        return max(len(self.prompted), len(self.plain)) + len(self.reply)


def pack(trajectories: Iterable[Trajectory]) -> Ids:
    """Return trajectories as one stream of int32."""
    parts: list[Ids] = [np.zeros(0, np.int32)]
    for trajectory in trajectories:
        sizes = (
            trajectory.prompt,
            len(trajectory.prompted),
            len(trajectory.plain),
            len(trajectory.reply),
        )
        parts += [
            np.asarray(sizes, np.int32),
            trajectory.prompted,
            trajectory.plain,
            trajectory.reply,
        ]
    return np.concatenate(parts).astype(np.int32)


def unpack(stream: Ids) -> list[Trajectory]:
    """Return the trajectories of a stream.

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
