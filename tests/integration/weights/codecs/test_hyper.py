"""Hyper-compression: the line, the classes, the nearest place."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights import codecs, randomness
from agent_forge.weights.codecs import Coded, hyper
from agent_forge.weights.codecs.packing import bits


def gaussian(rows: int, columns: int) -> torch.Tensor:
    values = randomness.gaussian(rows * columns, "hyper").reshape(rows, columns)
    return torch.from_numpy(values).float()


def test_the_irrational_line_winds_around_the_square() -> None:
    """θ = 5: 5 / (π + 1) = 1.2073 and 5 / (π + 2) = 0.9725, less their whole parts."""
    line = hyper._line(6, "irrational")
    assert line[5] == pytest.approx([5 / (math.pi + 1) - 1, 5 / (math.pi + 2)])
    assert line.min() >= 0.0
    assert line.max() < 1.0


def test_the_grid_line_is_the_reference_s() -> None:
    """9 places, slope 3: every third step returns to the bottom, a ninth to the right each."""
    line = hyper._line(9, "grid")
    assert line[:, 0] * 9 == pytest.approx(range(9))
    assert line[:, 1] * 3 == pytest.approx([0, 1, 2] * 3)
    uneven = hyper._line(7, "grid")
    assert np.array_equal(uneven, line[:7])


def test_classes_reach_from_the_square_to_the_farthest_pair() -> None:
    """Side 2, farthest 4, three classes: half sides 1, 2.5 and 4 around the mean."""
    frame = np.array([10.0, 20.0, 2.0, 4.0], np.float32)
    places = hyper._places(frame, 4, 3, "grid").reshape(3, 4, 2)
    corner = places[:, 0]  # θ = 0 is the square's lower left corner
    assert corner.tolist() == [[9.0, 19.0], [7.5, 17.5], [6.0, 16.0]]


@pytest.mark.parametrize("direction", ["grid", "irrational"])
def test_every_pair_has_its_nearest_place(direction: str) -> None:
    """By brute force over all classes; decoding is the formula of the places."""
    matrix = gaussian(7, 9)
    params = {"points": 40, "classes": 3, "direction": direction}
    coded = codecs.encode("hyper@1", matrix, params)
    places = hyper._places(coded.parts["frame"].numpy(), 40, 3, direction)
    scale = 2.0 ** coded.header["exponent"]
    pairs = np.append(matrix.double().numpy().reshape(-1), matrix[-1, -1].item()).reshape(-1, 2)
    apart = ((pairs[:, None] / scale - places[None]) ** 2).sum(2)
    indices = bits.unpack(coded.parts["indices"], 7, 32).numpy()
    assert np.array_equal(indices, apart.argmin(1))
    expected = (places[indices] * scale).reshape(-1)[:63].reshape(7, 9).astype(np.float32)
    assert np.array_equal(codecs.decode("hyper@1", coded).numpy(), expected)


@pytest.mark.parametrize(
    ("points", "classes", "rate", "most"),
    [(16, 1, 2.0, 0.38), (128, 2, 4.0, 0.12), (512, 2, 5.0, 0.062), (2048, 2, 6.0, 0.031)],
)
def test_the_error_of_gaussian_weights(points: int, classes: int, rate: float, most: float) -> None:
    """Not above the pilot's 0.381 at 2 bits and 0.122 at 4, and half a bit by half the error."""
    matrix = gaussian(128, 256) * 0.02
    coded = codecs.encode("hyper@1", matrix, {"points": points, "classes": classes})
    assert coded.parts["indices"].numel() * 8 / matrix.numel() == rate
    error = (codecs.decode("hyper@1", coded) - matrix).norm() / matrix.norm()
    assert error < most


def test_more_places_than_an_index_has_are_refused() -> None:
    with pytest.raises(ConfigError, match="at most 65536"):
        codecs.encode("hyper@1", gaussian(2, 2), {"points": 2048, "classes": 64})


def test_forged_headers_and_frames_are_refused() -> None:
    coded = codecs.encode("hyper@1", gaussian(6, 6), {"points": 100, "classes": 1})
    for entry in ({"direction": "up"}, {"points": 1}, {"points": 65536, "classes": 2}):
        with pytest.raises(SourceError):
            codecs.decode("hyper@1", Coded(coded.shape, coded.header | entry, coded.parts))
    for place, number in ((2, -1.0), (0, math.nan)):
        frame = coded.parts["frame"].clone()
        frame[place] = number
        with pytest.raises(SourceError, match="frame"):
            codecs.decode("hyper@1", Coded(coded.shape, coded.header, {**coded.parts, "frame": frame}))
    with pytest.raises(SourceError, match="beyond the 70 places"):
        codecs.decode("hyper@1", Coded(coded.shape, coded.header | {"points": 70}, coded.parts))
