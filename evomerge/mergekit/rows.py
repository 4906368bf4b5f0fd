"""Rows of tensors moved to other tokens on the fly."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from evomerge.merging.kernels.chunks import Rows
from weights.folders.adapter_rows import LoraRows


@dataclass(frozen=True)
class TokenRows:
    """Rows moved to other tokens: row i is `index[i]` of the model's own.

    If the model lacks a token (−1), the row is the base's if the base has the token, else the mean
    of the rows of all `others` that have it. The row is zero if no model has it. float32.
    """

    rows: Rows
    index: torch.Tensor
    base: tuple[Rows, torch.Tensor] | None
    others: tuple[tuple[Rows, torch.Tensor], ...]

    @property
    def shape(self) -> torch.Size:  # noqa: D102
        return torch.Size((len(self.index), self.rows.shape[1]))

    def __getitem__(self, cut: slice, /) -> torch.Tensor:
        index = self.index[cut]
        out = _picked(self.rows, index)
        lacking = index < 0
        if not bool(lacking.any()):
            return out
        total = torch.zeros_like(out)
        count = torch.zeros(len(out), 1)
        for rows, other_index in self.others:
            has = (other_index[cut] >= 0).float().unsqueeze(1)
            total += _picked(rows, other_index[cut]) * has
            count += has
        filled = total / count.clamp(min=1.0)
        if self.base is not None:
            has = (self.base[1][cut] >= 0).unsqueeze(1)
            filled = torch.where(has, _picked(self.base[0], self.base[1][cut]), filled)
        return torch.where(lacking.unsqueeze(1), filled, out)


def _picked(rows: Rows, index: torch.Tensor) -> torch.Tensor:
    """Return float32 rows by index; any row if the index is −1."""
    if isinstance(rows, LoraRows):  # only the picked rows for each stretch
        at = index.clamp(min=0)
        return LoraRows(rows.rows[slice(0, rows.shape[0])][at], rows.a, rows.b[at], rows.scale)[:]
    whole = rows[slice(0, rows.shape[0])]
    return whole[index.clamp(min=0)].to(torch.float32)
