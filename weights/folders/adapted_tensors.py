"""Tensors of a model with an adapter, whose change is added when a tensor is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from runs.errors import SourceError
from weights.folders.adapter import Adapter
from weights.folders.adapter_rows import RoundedRows
from weights.tensors import HEADS, Rows, as_rows


class AdaptedTensors(Mapping[str, torch.Tensor]):
    """Tensors of BASE+ADAPTER by name, in order of name: nothing merged is kept.

    A tensor that the adapter changes is W + scale · B A, summed in float32 and rounded to the dtype of
    W, as in the model that peft's `merge_and_unload` gives. It is made again at each reading; all
    others are those of the base. `rows` gives stretches of a tensor, for merges that read in chunks.
    """

    def __init__(
        self, base: Mapping[str, torch.Tensor], adapter: Adapter, architecture: str | None
    ) -> None:
        """Raise SourceError for an adapter that does not fit the tensors, or that unties a head."""
        self._base = base
        embedding = next((name for name in HEADS if name in base), None)
        head = HEADS[embedding] if embedding else ""
        if embedding and head not in base and adapter.unties(embedding, head):
            raise SourceError(
                f"adapter {adapter.folder}: it changes the embedding or the head of a model in which "
                "both are one tensor, so that its sum has another tensor than the base. Merge it "
                "first, by a config of `forge merge`, and give all models as folders."
            )
        self._rows: dict[str, Rows] = {}
        for name, tensor in base.items():
            rows = adapter.on(name, as_rows(tensor), architecture)
            stored = isinstance(rows, torch.Tensor) and rows.dtype == tensor.dtype
            self._rows[name] = rows if stored else RoundedRows(rows, tensor.dtype)
        adapter.check_used()

    def rows(self, name: str) -> Rows:
        """Return a tensor as [rows, columns], with the adapter's change. Raise KeyError."""
        return self._rows[name]

    def like(self) -> Mapping[str, torch.Tensor]:
        """Return tensors of the same names, dtypes and shapes: those of the base."""
        return self._base

    def __getitem__(self, name: str, /) -> torch.Tensor:
        rows = self._rows[name]
        return rows[slice(0, rows.shape[0])].reshape(self._base[name].shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._base)

    def __len__(self) -> int:
        return len(self._base)
