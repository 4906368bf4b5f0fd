"""Layer fitness for frankenmerge: the measured swap.

Start from the result of the pipeline's first two stages. For every block and every input, put the
input's block in place of the result's own, and measure the loss on calibration text (the train
slice, never an item that decides). The gain is the loss before minus the loss after. At most a
third of the blocks are replaced: those with the largest gains above zero. Ties go to the earlier
block, then to the earlier input. See docs/decisions/0003-layer-fitness.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data.packing import ItemPack
from agent_forge.evaluation.measures.perplexity import calibration_loss
from agent_forge.weights import block_names

MEASURE = "measured-swap@1"


def swap_gains(
    model: ResidentModel,
    merged: Mapping[str, torch.Tensor],
    inputs: Sequence[Mapping[str, torch.Tensor]],
    data: Mapping[str, ItemPack],
) -> list[list[float]]:
    """Return gains[block][input]: the loss, in nats a token, that this swap of a block saves.

    If the loss of a swap is not finite, its gain is −10³⁰⁰ (JSON has no infinity).
    """
    before = calibration_loss(model, merged, data)
    gains = []
    for block in range(block_names.count(list(merged))):
        row = []
        for other in inputs:
            swapped = {
                n: other[n] if block_names.block_of(n) == block else t for n, t in merged.items()
            }
            gain = before - calibration_loss(model, swapped, data)
            row.append(gain if math.isfinite(gain) else -1e300)
        gains.append(row)
    return gains
