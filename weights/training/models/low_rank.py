"""Low-rank adapters (LoRA, Hu et al. 2021, arXiv 2106.09685, section 4.1) on a module's linear layers.

    y = W x + s B (A x),  s = alpha / rank          A [rank, in], B [out, rank]

W is frozen; A and B are trained. A begins uniform in ±1 / √in, drawn by key, and B at 0, so the first
forward pass is that of the given model. The merged matrix is W + s B A.

Names, first values, forward and merge are those of the package `peft`; a test compares them. The
package is not used itself: its version would be part of a training's bits, it renames parameters, and
it draws A from torch's global generator.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from itertools import combinations
from typing import Any

import torch
from torch.nn import functional as F

from agent_forge.runs.errors import ConfigError
from agent_forge.weights import block_names, randomness
from agent_forge.weights.folders.model_config import described

#: A linear layer's own forward pass; and a rule that adds an adapter's product to it.
_Product = Callable[[torch.Tensor], torch.Tensor]
_Add = Callable[[torch.Tensor, _Product, torch.Tensor, torch.Tensor, float], torch.Tensor]
#: Names of a layer's two matrices.
DOWN, UP = "lora_A", "lora_B"


def layers(module: torch.nn.Module) -> dict[str, Any]:
    """Return name → linear layer of a model's blocks, in the module's order."""
    return {
        name: layer
        for name, layer in module.named_modules()
        if (isinstance(layer, torch.nn.Linear) or _transposed(layer))
        and block_names.block_of(f"{name}.") is not None
    }


def chosen(module: torch.nn.Module, rank: int, names: Collection[str]) -> dict[str, Any]:
    """Return name → linear layer of the blocks whose name ends with one of `names`; all if it is empty.

    Raises ConfigError for a module without such layers, a name that no layer has, a rank above the
    smaller side of a layer, and layers that share a matrix.
    """
    every = layers(module)
    if not every:
        raise ConfigError("the model has no linear layers in blocks: there is nothing to adapt")
    for ending in names:
        if not any(_ends(name, ending) for name in every):
            leaf_names = ", ".join(sorted({name.rpartition(".")[2] for name in every}))
            raise ConfigError(
                f"no linear layer of the model's blocks has the name {ending!r}: they are {leaf_names}."
            )
    chosen_layers = {
        name: layer
        for name, layer in every.items()
        if not names or any(_ends(name, suffix) for suffix in names)
    }
    for name, layer in chosen_layers.items():
        out, columns = _sides(layer)
        if rank > min(out, columns):
            raise ConfigError(
                f"a rank of {rank} is more than the layer {name} has, which is {out} × {columns}: "
                "choose a smaller rank, or other modules."
            )
    if len({id(layer.weight) for layer in chosen_layers.values()}) < len(chosen_layers):
        raise ConfigError("some of the layers share a matrix: adapters would be merged into it once")
    return chosen_layers


def nearest(shapes: Mapping[str, tuple[int, int]], target: int) -> tuple[str, ...]:
    """Return a tuple of layer names, as "q_proj", whose rank-1 adapters' size is nearest to `target`.

    `shapes` are those of matrices by name; a layer's name is the last part before "weight", and all
    layers of a name are adapted. Of two choices that are equally near the first by name is taken.
    """
    sizes: dict[str, int] = {}
    for name, (rows, columns) in shapes.items():
        leaf = name.removesuffix(".weight").rpartition(".")[2]
        sizes[leaf] = sizes.get(leaf, 0) + rows + columns
    choices = [c for n in range(1, len(sizes) + 1) for c in combinations(sorted(sizes), n)]
    return min(choices, key=lambda c: (abs(sum(sizes[leaf] for leaf in c) - target), c))


def count(settings: Mapping[str, Any], rank: int, names: Collection[str]) -> int:
    """Return the number of parameters that adapters of a model, given by its config.json, have.

    Raises SourceError for a config that describes no model, and the errors of `chosen`.
    """
    from agent_forge.weights.architectures.auto import AutoModelForCausalLM
    from agent_forge.weights.architectures.auto_config import AutoConfig

    with described("the config describes no model that can be built"), torch.device("meta"):
        config = AutoConfig.for_model(**dict(settings))
        module = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    return sum(rank * sum(_sides(layer)) for layer in chosen(module, rank, names).values())


class LowRankAdapters:
    """The adapters of a module, the only trained parameters of it."""

    def __init__(
        self,
        module: torch.nn.Module,
        rank: int,
        alpha: float,
        names: Collection[str],
        key: tuple[str | int, ...],
        fused: bool = False,
    ) -> None:
        """Freeze a module and add adapters, with first values drawn by `key`. Raises ConfigError.

        If `fused`, products are scaled at the rank's width and added by one kernel: fewer passes over
        large tensors, and other last bits.
        """
        self._layers, scale = chosen(module, rank, names), alpha / rank
        module.requires_grad_(False)
        for name, layer in self._layers.items():
            out, columns = _sides(layer)
            drawn = randomness.uniform(rank * columns, "lora", *key, name).reshape(rank, columns)
            down = torch.from_numpy((2.0 * drawn - 1.0) / math.sqrt(columns)).float()
            device = layer.weight.device
            layer.register_parameter(DOWN, torch.nn.Parameter(down.to(device)))
            layer.register_parameter(UP, torch.nn.Parameter(torch.zeros(out, rank, device=device)))
            layer.lora_scale = scale
            layer.forward = _adapted(layer, _fused if fused else _added, scale)

    def state(self) -> dict[str, torch.Tensor]:
        """Return LAYER/PARAMETER → matrix of the adapted layers: W, and copies of A and B."""
        tensors = {}
        for name, layer in self._layers.items():
            tensors[f"{name}/weight"] = layer.weight.detach()  # nothing changes it in place
            for part in (DOWN, UP):
                tensors[f"{name}/{part}"] = getattr(layer, part).detach().clone()
        return tensors

    @torch.no_grad()
    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Restore the matrices from the result of `state`. Raises KeyError for other names."""
        names = {f"{name}/{part}" for name in self._layers for part in ("weight", DOWN, UP)}
        if names != set(tensors):
            raise KeyError(sorted(names ^ set(tensors))[0])
        for key, tensor in tensors.items():
            name, _, part = key.partition("/")
            layer = self._layers[name]
            if part == "weight":  # not copied into, as it may be the memory of another model
                placed = tensor.to(layer.weight.device, layer.weight.dtype)
                layer.weight = torch.nn.Parameter(placed, requires_grad=False)
            else:
                getattr(layer, part).copy_(tensor)


@torch.no_grad()
def merged(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield (name, parameter), tied ones once, with adapters added to their matrices."""
    for name, parameter in module.named_parameters():
        place, _, part = name.rpartition(".")
        if part in (DOWN, UP):
            continue
        layer = module.get_submodule(place)
        adapted = part == "weight" and hasattr(layer, "lora_scale")
        yield name, parameter + _delta(layer) if adapted else parameter.detach()


def _delta(layer: Any) -> torch.Tensor:
    """Return the adapter's product s B A, in the shape of the layer's matrix."""
    product = layer.lora_B @ layer.lora_A
    return (product.T if _transposed(layer) else product) * layer.lora_scale


def _adapted(layer: Any, add: _Add, scale: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a `forward` for a layer that adds its adapter; it holds only a weak reference."""
    plain, place = layer.__dict__.get("forward"), weakref.ref(layer)

    def forward(x: torch.Tensor) -> torch.Tensor:
        module: Any = place()
        product = partial(type(module).forward, module) if plain is None else plain
        return add(x, product, module.lora_A, module.lora_B, scale)

    return forward


def _added(
    x: torch.Tensor, product: _Product, down: torch.Tensor, up: torch.Tensor, scale: float
) -> torch.Tensor:
    """Return W x + (B (A x)) s, as peft computes it."""
    return product(x) + F.linear(F.linear(x, down), up) * scale


def _fused(
    x: torch.Tensor, product: _Product, down: torch.Tensor, up: torch.Tensor, scale: float
) -> torch.Tensor:
    """Return W x + B (s A x), cast once for both, the sum within the second product."""
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))
    plain, narrow = product(x), F.linear(x, down) * scale
    return torch.addmm(plain.flatten(0, -2), narrow.flatten(0, -2), up.T).view_as(plain)


def _ends(name: str, ending: str) -> bool:
    """Return True if a layer's name is `ending` or ends with it, part by part."""
    return name == ending or name.endswith(f".{ending}")


def _transposed(layer: object) -> bool:
    """Return True if a linear layer's matrix is [in, out], as GPT-2 has it (Conv1D)."""
    from transformers.pytorch_utils import Conv1D

    return isinstance(layer, Conv1D)


def _sides(layer: Any) -> tuple[int, int]:
    """Return (outputs, inputs) of a linear layer."""
    rows, columns = layer.weight.shape
    return (columns, rows) if _transposed(layer) else (rows, columns)
