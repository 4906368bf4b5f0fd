"""Layer fitness for frankenmerge: the measured swap, and its first-order estimate.

Start from the result of the pipeline's first two stages. For every block and every input, put the
input's block in place of the result's own, and measure the loss on calibration text (the train
slice, never an item that decides). The gain is the loss before minus the loss after. At most a
third of the blocks are replaced: those with the largest gains above zero. Ties go to the earlier
block, then to the earlier input. See docs/decisions/0003-layer-fitness.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch.nn import functional as F

from agent_forge.evaluation.backends.backend import batches
from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data.packing import ItemPack
from agent_forge.evaluation.measures.perplexity import WINDOWS, calibration_loss
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


def taylor_gains(
    model: ResidentModel,
    merged: Mapping[str, torch.Tensor],
    inputs: Sequence[Mapping[str, torch.Tensor]],
    data: Mapping[str, ItemPack],
) -> list[list[float]]:
    """Return gains[block][input] to first order: −⟨∇loss, other − own⟩ over a block's tensors.

    One backward pass is enough (Molchanov et al. 2019, arXiv 1906.10771, the Taylor criterion).
    """
    gradients = _gradients(model, merged, data)
    gains = [[0.0] * len(inputs) for _ in range(block_names.count(list(merged)))]
    for name, gradient in gradients.items():
        block = block_names.block_of(name)
        if block is None:
            continue
        tensor = merged[name].to(torch.float64)
        for i, other in enumerate(inputs):
            move = other[name].to(torch.float64) - tensor
            gains[block][i] -= float((gradient.cpu().to(torch.float64) * move).sum())
    return [[g if math.isfinite(g) else -1e300 for g in row] for row in gains]


def _gradients(
    model: ResidentModel, merged: Mapping[str, torch.Tensor], data: Mapping[str, ItemPack]
) -> dict[str, torch.Tensor]:
    """Return {parameter: gradient of the calibration loss}."""
    model.load({name: tensor.clone() for name, tensor in merged.items()})
    parameters = dict(model.module.named_parameters())
    for parameter in parameters.values():
        parameter.requires_grad_(True)
    domains = [d for d in sorted(data) if data[d].windows]
    for domain in domains:
        windows = data[domain].windows[:WINDOWS]
        tokens = sum(len(w) - 1 for w in windows)
        for _, chosen in batches(windows, model.rows):
            ids = torch.from_numpy(np.stack([windows[i] for i in chosen])).to(model.device)
            logits = model.module(input_ids=ids, use_cache=False).logits[:, :-1].float()
            loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="sum")
            (loss / (tokens * len(domains))).backward()
    gradients = {n: p.grad.detach() for n, p in parameters.items() if p.grad is not None}
    for parameter in parameters.values():
        parameter.requires_grad_(False)
        parameter.grad = None
    return gradients
