"""Hyper-compression: pairs of weights as places of a winding line (arXiv 2409.00592 v4).

The line τ(θ a) = θ a mod 1 fills the unit square. So for a pair of weights there is a whole number θ
whose place is near to the pair, and the codec stores θ. The square has side l, around the pairs' mean.
Pairs outside of it belong to scale classes, which enlarge the square: class m of 0 … `classes` − 1 by
r_m. The distances l r_m / 2 grow evenly from l / 2 to the distance of the farthest pair (the paper's
scaling factors). A pair is

    mean + l r_m (τ(θ a) − ½),  θ in 0 … `points` − 1,

and takes log2(points · classes) bits, rounded up: half of that a weight. `direction` "irrational" has
a = (1 / (π + 1), 1 / (π + 2)), components independent over the rationals as the paper's theorem asks;
"grid" has the choice of the paper's code, a line of slope N = ⌈√points⌉, a = (1 / N², 1 / N), whose
places form a slightly sheared grid. The grid was better in our measurements and is the default.

What differs from the paper and its code (github.com/Juntongkuki/Hyper-Compression): the encoder takes
the nearest of all places of all classes, which is never worse than choosing the class by the distance
first; it chooses l of each matrix among multiples of the spread, while the paper has one length for the
whole model; there is no extra place at the mean. An odd weight at the end is paired with itself. The
codec uses neither `gram` nor `seed`.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from agent_forge.runs.errors import SourceError
from agent_forge.weights.codecs import Coded, matrices
from agent_forge.weights.codecs.packing import bits
from agent_forge.weights.codecs.search import planar

#: Sides of the square that are tried, in standard deviations of the weights.
SIDES = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0)
#: Pairs that choose the side.
SAMPLE = 1 << 15
#: The most places of all classes together.
MOST = 1 << 16


class Params(BaseModel):
    """Settings of Hyper-compression."""

    model_config = ConfigDict(extra="forbid")

    #: Values of θ, scale classes, and how the line runs.
    points: int = Field(128, ge=2, le=MOST)
    classes: int = Field(2, ge=1, le=64)
    direction: Literal["irrational", "grid"] = "grid"

    @model_validator(mode="after")
    def _fits(self) -> Params:
        """Return the settings. Raises ValueError for more places than an index of 16 bits has."""
        if self.points * self.classes > MOST:
            raise ValueError(f"points times classes must be at most {MOST}")
        return self


class Hyper:
    """The codec `hyper@1`."""

    Params = Params

    def encode(
        self, matrix: torch.Tensor, gram: torch.Tensor | None, params: Params, seed: int
    ) -> Coded:
        """Return the coded matrix. Raises ConfigError or NotFiniteError by `matrices.check`."""
        matrices.check(matrix)
        values, exponent = matrices.scaled(matrix)
        pairs = np.pad(values.reshape(-1), (0, values.size % 2), mode="edge").reshape(-1, 2)
        frame = _frame(pairs, params)
        places = _places(frame, params.points, params.classes, params.direction)
        indices, _ = planar.nearest(places, pairs)
        header: dict[str, Any] = params.model_dump(mode="json") | {"exponent": exponent}
        width = _index_bits(params.points * params.classes)
        return Coded(
            (matrix.shape[0], matrix.shape[1]),
            header,
            {"frame": torch.from_numpy(frame), "indices": bits.pack(torch.from_numpy(indices), width)},
        )

    def decode(self, coded: Coded) -> torch.Tensor:
        """Return the decoded matrix, [rows, columns] float32. Raises SourceError for other bytes."""
        exponent = matrices.whole(coded, "exponent", -200, 200)
        points = matrices.whole(coded, "points", 2, MOST)
        classes = matrices.whole(coded, "classes", 1, 64)
        direction = coded.header.get("direction")
        if points * classes > MOST or direction not in ("irrational", "grid"):
            raise SourceError(f"the header describes no winding: {coded.header}.")
        frame = matrices.part(coded, "frame", torch.float32, (4,))
        if not torch.isfinite(frame).all() or frame[2] < 0:
            raise SourceError(f"the frame must be finite, with a side: {frame.tolist()}.")
        count = math.prod(coded.shape)
        pairs, width = -(-count // 2), _index_bits(points * classes)
        shape = (bits.packed_bytes(pairs, width),)
        stored = matrices.part(coded, "indices", torch.uint8, shape)
        indices = bits.unpack(stored, width, pairs).numpy()
        if indices.max() >= points * classes:
            raise SourceError(f"indices point beyond the {points * classes} places of the line.")
        places = _places(frame.numpy(), points, classes, direction)
        return matrices.unscaled(places[indices].reshape(-1)[:count].reshape(coded.shape), exponent)


def _index_bits(places: int) -> int:
    return (places - 1).bit_length()


def _line(points: int, direction: str) -> NDArray[np.float64]:
    """Return τ(θ a) of θ = 0 … points − 1, in the unit square, [points, 2] float64."""
    theta = np.arange(points, dtype=np.float64)[:, None]
    if direction == "irrational":
        steps = theta * np.array([1.0 / (math.pi + 1.0), 1.0 / (math.pi + 2.0)])
        return steps - np.floor(steps)
    side = math.isqrt(points - 1) + 1
    return np.hstack([theta / side**2, theta % side / side])


def _places(frame: NDArray[np.float32], points: int, classes: int, direction: str) -> NDArray:
    """Return the pairs that can be stored, class by class, [classes · points, 2] float64.

    `frame` has the mean's two coordinates, the side and the distance of the farthest pair.
    """
    mean, side, far = frame[:2].astype(np.float64), float(frame[2]), float(frame[3])
    half = side / 2.0
    reach = half + np.arange(classes) / max(classes - 1, 1) * max(far - half, 0.0)
    square = 2.0 * _line(points, direction) - 1.0
    return (mean + reach[:, None, None] * square).reshape(-1, 2)


def _frame(pairs: NDArray[np.float64], params: Params) -> NDArray[np.float32]:
    """Return the frame (mean, side, farthest), [4] float32, nearest to a sample of the pairs."""
    mean = pairs.mean(0)
    apart = pairs - mean
    spread = float(np.sqrt((apart**2).mean()))
    far = float(np.sqrt((apart**2).sum(1).max()))
    sample = pairs[:: -(-len(pairs) // SAMPLE)]
    best, lowest = np.array([*mean, 0.0, 0.0], np.float32), np.inf
    for side in SIDES if spread > 0.0 else ():
        frame = np.array([*mean, side * spread, far], np.float32)
        places = _places(frame, params.points, params.classes, params.direction)
        error = float(planar.nearest(places, sample)[1].sum())
        if error < lowest:
            best, lowest = frame, error
    return best
