"""Packing of ternary matrices in two bits a weight, and of models in a container of such matrices.

    neighbours   our container: bits 0-1, 2-3, 4-5, 6-7 of a byte are four columns in a row
    strided      transformers' BitLinear: byte row r has the rows r, r + R, r + 2R, r + 3R, R = rows / 4

Both store t + 1, which is 0, 1 or 2. The container is tensors by name: `NAME.trits` and `NAME.scale`
for a ternary matrix, other tensors as they are. So `unpack(pack(weights))` has the same bits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch

from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights.ternary import quantiser

TRITS, SCALE = ".trits", ".scale"
#: Weights of a byte.
PER_BYTE = 4


def neighbours(trits: torch.Tensor) -> torch.Tensor:
    """Return int8 trits [rows, columns] packed as uint8 [rows, ⌈columns / 4⌉]; zeros fill the rows."""
    rows, columns = trits.shape
    filled = torch.zeros(rows, -(-columns // PER_BYTE) * PER_BYTE, dtype=torch.uint8)
    filled[:, :columns] = (trits + 1).to(torch.uint8)
    return _combined(filled.unflatten(1, (-1, PER_BYTE)).unbind(2))


def from_neighbours(packed: torch.Tensor, columns: int) -> torch.Tensor:
    """Return the int8 trits [rows, columns] that `neighbours` packed. Raises SourceError."""
    if packed.dtype != torch.uint8 or packed.dim() != 2 or packed.shape[1] != -(-columns // PER_BYTE):
        raise SourceError(f"packed trits of {columns} columns have another shape or dtype")
    trits = torch.stack([(packed >> 2 * place) & 3 for place in range(PER_BYTE)], 2).flatten(1)
    return _checked(trits)[:, :columns].contiguous()


def strided(trits: torch.Tensor) -> torch.Tensor:
    """Return int8 trits [rows, columns] packed as uint8 [rows / 4, columns]. Raises ConfigError."""
    if trits.shape[0] % PER_BYTE:
        raise ConfigError(f"{trits.shape[0]} rows are no multiple of {PER_BYTE}")
    return _combined((trits + 1).to(torch.uint8).unflatten(0, (PER_BYTE, -1)).unbind(0))


def _combined(quarters: Collection[torch.Tensor]) -> torch.Tensor:
    """Return four uint8 tensors of 0, 1 and 2 packed in one of their shape, the first lowest."""
    packed = torch.zeros_like(next(iter(quarters)))
    for place, quarter in enumerate(quarters):
        packed |= quarter << 2 * place
    return packed


def _checked(values: torch.Tensor) -> torch.Tensor:
    """Return values 0, 1 and 2 as trits −1, 0 and 1, int8. Raises SourceError for a value 3."""
    if values.numel() and int(values.max()) > 2:
        raise SourceError("packed trits hold the value 3: the bytes are damaged")
    return values.to(torch.int8) - 1


def pack(
    weights: Mapping[str, torch.Tensor], matrices: Collection[str], group: int = 0
) -> dict[str, torch.Tensor]:
    """Return the container (name → tensor) of a model whose `matrices` are ternary.

    A negative zero becomes 0. Raises SourceError for a matrix that is not ternary.
    """
    packed: dict[str, torch.Tensor] = {}
    for name, tensor in weights.items():
        if name not in matrices:
            packed[name] = tensor
            continue
        trits, scale = quantiser.parts(name, tensor, group)
        packed[name + TRITS], packed[name + SCALE] = neighbours(trits), scale
    return packed


def unpack(packed: Mapping[str, torch.Tensor], columns: Mapping[str, int]) -> dict[str, torch.Tensor]:
    """Return name → tensor of a container; ternary matrices are float32, of the widths `columns`.

    Raises SourceError for a container that lacks a part, or damaged bytes.
    """
    weights: dict[str, torch.Tensor] = {}
    for name, tensor in packed.items():
        stem = name.removesuffix(TRITS)
        if stem != name:
            if stem not in columns or stem + SCALE not in packed:
                raise SourceError(f"the container has trits of {stem}, and no scale or width of it")
            trits = from_neighbours(tensor, columns[stem])
            weights[stem] = trits * quantiser.spread(packed[stem + SCALE], columns[stem])
        elif name.removesuffix(SCALE) + TRITS not in packed:
            weights[name] = tensor
    return weights


def bytes_of(packed: Mapping[str, torch.Tensor]) -> int:
    """Return the total bytes of a container's tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in packed.values())


def packed_bytes(weights: Mapping[str, torch.Tensor], matrices: Collection[str], group: int = 0) -> int:
    """Return the bytes of the container that a model with these shapes has once it is ternary."""
    total = bytes_of({name: t for name, t in weights.items() if name not in matrices})
    for name in matrices:
        rows, columns = weights[name].shape
        quantiser.check_group(name, columns, group)
        total += rows * -(-columns // PER_BYTE) + 4 * (rows * columns // group if group else 1)
    return total
