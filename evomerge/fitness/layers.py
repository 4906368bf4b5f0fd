"""Layer fitness for frankenmerge: the measured swap.

Start from what the pipeline's first two stages made. For every block and every input, put that
input's block in the place of its own and measure the loss on calibration text (the train slice,
never an item that decides). The gain is the loss before minus the loss after. At most a third of the
blocks are replaced, those with the largest gains above zero; ties go to the earlier block, then to
the earlier input. See docs/decisions/0003-layer-fitness.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from evomerge.fitness.packing import Packed
from evomerge.fitness.perplexity import score_windows
from evomerge.fitness.resident import ResidentModel
from evomerge.methods import frankenmerge

MEASURE = "measured-swap@1"

#: Windows of calibration text per domain.
WINDOWS = 8


def calibration_loss(
    model: ResidentModel, weights: Mapping[str, torch.Tensor], data: Mapping[str, Packed]
) -> float:
    """Mean over domains of −log p a token on the first `WINDOWS` windows of each."""
    model.load(weights)
    rates = []
    for domain in sorted(data):
        windows = data[domain].windows[:WINDOWS]
        if windows:
            nll, tokens, _ = score_windows(model, windows)
            rates.append(math.fsum(nll) / sum(tokens))
    return math.fsum(rates) / len(rates)


def swap_gains(
    model: ResidentModel,
    merged: Mapping[str, torch.Tensor],
    inputs: Sequence[Mapping[str, torch.Tensor]],
    data: Mapping[str, Packed],
) -> list[list[float]]:
    """gains[block][input]: the loss that swapping in this input's block saves, nats a token.

    A swap whose loss is not finite gains −10³⁰⁰ (JSON has no infinity).
    """
    before = calibration_loss(model, merged, data)
    gains = []
    for block in range(frankenmerge.blocks(list(merged))):
        row = []
        for other in inputs:
            swapped = {
                n: other[n] if frankenmerge.block(n) == block else t for n, t in merged.items()
            }
            gain = before - calibration_loss(model, swapped, data)
            row.append(gain if math.isfinite(gain) else -1e300)
        gains.append(row)
    return gains
