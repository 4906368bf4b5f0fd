"""Sharding: each process of a group holds a part of the weights, gradients and optimiser's tensors.

FSDP (Zhao et al. 2023, arXiv 2304.11277) by torch's `fully_shard`: every parameter is split by rows. A
block's weights are gathered before its passes and freed after them. Each process gets the gradients of
its rows, averaged over the processes. Snapshots hold whole tensors, so a training can go on with other
processes, or unsharded: the bits differ, and the model is the same except for rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, distribute_tensor

from agent_forge.runs.errors import ConfigError
from agent_forge.weights.recipes import Train


def check(recipe: Train) -> None:
    """Raise ConfigError if a training needs whole weights, or would keep copies of them."""
    if recipe.optimiser.params.get("tau") is not None:
        raise ConfigError("QK-Clip scales whole weights: a sharded training needs tau None")
    if recipe.objective.startswith("lora@"):
        raise ConfigError("adapters are merged into whole weights: a sharded training has none")
    if recipe.precision != "float32":
        raise ConfigError(
            f"a sharded training computes in float32, not {recipe.precision}: casts would keep a copy "
            "of all weights in every process"
        )


def shard(module: torch.nn.Module, group: ProcessGroup, device: torch.device) -> None:
    """Split a module's parameters over the group, block by block, and move the parts to `device`."""
    from torch.distributed.fsdp import fully_shard  # half a second that most trainings do not need

    mesh = DeviceMesh.from_group(group, device.type)
    for block in _blocks(module):
        fully_shard(block, mesh=mesh)
    fully_shard(module, mesh=mesh)


def _blocks(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Yield the modules that transformers never splits over devices: a decoder's blocks."""
    names = set(getattr(module, "_no_split_modules", None) or ())
    yield from (part for part in module.modules() if type(part).__name__ in names)


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return a sharded tensor gathered from all processes; another tensor unchanged.

    All processes must call this function for the same tensors in the same order.
    """
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def split(
    tensors: Mapping[str, torch.Tensor], parameters: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return PARAMETER/SLOT → tensor of an optimiser, sharded as its parameter is.

    Tensors of another shape than their parameter, such as counts of steps, stay whole.
    """
    return {name: _like(t, parameters.get(name.rpartition("/")[0])) for name, t in tensors.items()}


def _like(tensor: torch.Tensor, parameter: torch.Tensor | None) -> torch.Tensor:
    if not isinstance(parameter, DTensor) or tensor.shape != parameter.shape:
        return tensor
    mesh = parameter.device_mesh
    there = tensor.to(mesh.device_type)
    # Every process has the whole tensor: each takes its rows of it, and none is sent.
    return distribute_tensor(there, mesh, parameter.placements, src_data_rank=None)
