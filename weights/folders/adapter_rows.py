"""Rows of tensors with an adapter's change on the fly: low-rank, or replaced."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from weights.tensors import Rows


@dataclass(frozen=True)
class LoraRows:
    """W + scale · B A (Hu et al. 2021, arXiv 2106.09685), a stretch at a time; float32."""

    rows: Rows
    a: torch.Tensor
    b: torch.Tensor
    scale: float

    @property
    def shape(self) -> torch.Size:  # noqa: D102
        return self.rows.shape

    def __getitem__(self, cut: slice, /) -> torch.Tensor:
        change = self.b[cut].to(torch.float32) @ self.a.to(torch.float32)
        return self.rows[cut].to(torch.float32).add(change, alpha=self.scale)


@dataclass(frozen=True)
class ReplacedRows:
    """Rows of which those at `index` are replaced by `values` [len(index), columns]; float32."""

    rows: Rows
    index: torch.Tensor
    values: torch.Tensor

    @property
    def shape(self) -> torch.Size:  # noqa: D102
        return self.rows.shape

    def __getitem__(self, cut: slice, /) -> torch.Tensor:
        first, end, _ = cut.indices(self.rows.shape[0])
        out = self.rows[cut].to(torch.float32, copy=True)
        inside = (self.index >= first) & (self.index < end)
        out[self.index[inside] - first] = self.values[inside].to(torch.float32)
        return out


@dataclass(frozen=True)
class RoundedRows:
    """Rows rounded to a dtype."""

    rows: Rows
    dtype: torch.dtype

    @property
    def shape(self) -> torch.Size:  # noqa: D102
        return self.rows.shape

    def __getitem__(self, cut: slice, /) -> torch.Tensor:
        return self.rows[cut].to(self.dtype)
