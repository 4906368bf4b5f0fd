"""First-order estimate of the gain of a swap, against which the measured swap is compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch.nn import functional as F

from agent_forge.evaluation.backends.backend import batches
from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data.packing import ItemPack
from agent_forge.evaluation.measures.perplexity import WINDOWS
from agent_forge.weights import block_names


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
