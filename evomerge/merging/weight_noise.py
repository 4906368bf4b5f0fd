"""Noise on weights: Gaussian values on a keyed share of a tensor's elements."""

from __future__ import annotations

import numpy as np
import torch

from evomerge.merging.kernels.chunks import Pool, Stretches, as_rows
from evomerge.recipes.recipe import Noise
from weights import randomness


def add_noise(noise: Noise, name: str, origin: torch.Tensor, tensor: torch.Tensor) -> None:
    """Add noise to a share of a tensor's elements, in place and in the tensor's dtype.

    An element is touched if its lane (a 16-bit random number) is below the rate. The k-th touched
    element gets the k-th Gaussian value of the tensor's own stream, so the values are not a
    function of a chunk. `origin` is the zero of the task vector that the noise is relative to.
    """
    work = Stretches(name, as_rows(origin), [as_rows(tensor)], Pool(1))
    places = torch.cat([_touched(noise, work, cut) for cut in work.cuts])
    if not len(places):
        return
    values = torch.from_numpy(randomness.gaussian(len(places), noise.seed, name, "noise"))
    if noise.relative_to == "absolute":
        values *= noise.sigma
    else:
        norm = float(work.gram()[0, 0]) ** 0.5
        values *= noise.sigma * norm / float(np.square(values.numpy()).sum()) ** 0.5
    flat = tensor.view(-1)
    flat[places] = (flat[places].to(torch.float32) + values.to(torch.float32)).to(tensor.dtype)


def _touched(noise: Noise, work: Stretches, cut: slice) -> torch.Tensor:
    """Return the elements of one stretch that get noise, as indices in the whole tensor."""
    start, count = cut.start * work.columns, (cut.stop - cut.start) * work.columns
    lanes = randomness.lanes(count, noise.seed, work.name, "mask", start=start)
    return torch.from_numpy((lanes < round(noise.rate * randomness.LANES)).nonzero()[0] + start)
