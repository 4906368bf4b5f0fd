"""Low-rank pairs of LoRA adapters: read from and written to peft's folders; truncated to a rank.

A module's change is s · B A, with A [rank, inputs] and B [outputs, rank]. The inputs of an embedding
are tokens. Changes of transposed layers (GPT-2's Conv1D) have the same orientation.

The nearest matrix of a rank has the largest singular values (Eckart and Young 1936). They come from the
smaller of D Dᵀ and Dᵀ D in float64, [side, side]. So a layer of 14,336 × 4,096 needs [4096, 4096], and
no whole decomposition. Singular values below about 1e-8 of the largest are noise.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from agent_forge.runs.errors import NotFiniteError, SourceError
from agent_forge.runs.system import bounded_files
from agent_forge.weights.folders import adapter_folders, companions
from agent_forge.weights.folders.adapter_folders import AdapterConfig

#: Prefix that peft puts before a module's name.
PREFIX = "base_model.model."
#: End of a tensor's name → (its matrix, True for an embedding); old files name the adapter, too.
_ENDS = {
    "lora_A.weight": ("A", False),
    "lora_B.weight": ("B", False),
    "lora_A.default.weight": ("A", False),
    "lora_B.default.weight": ("B", False),
    "lora_embedding_A": ("A", True),
    "lora_embedding_B": ("B", True),
    "lora_embedding_A.default": ("A", True),
    "lora_embedding_B.default": ("B", True),
}


@dataclass(frozen=True)
class AdapterPair:
    """The change of one module: scale · B A."""

    #: float32 [rank, inputs] and [outputs, rank].
    a: torch.Tensor
    b: torch.Tensor
    scale: float = 1.0
    #: True if the module is an embedding.
    embedding: bool = False

    @property
    def rank(self) -> int:
        """The number of rows of A."""
        return len(self.a)

    @property
    def sides(self) -> tuple[int, int]:
        """(outputs, inputs) of the module."""
        return self.b.shape[0], self.a.shape[1]

    def delta(self) -> torch.Tensor:
        """Return scale · B A, [outputs, inputs]."""
        return self.scale * (self.b @ self.a)


class PairFolder:
    """Adapter in a folder, as pairs by module; each pair is read when it is asked for."""

    def __init__(self, folder: Path) -> None:
        """Open an adapter. Raises SourceError for an adapter with other tensors than pairs."""
        self.folder = folder
        self._config = AdapterConfig(folder)
        self._file = adapter_folders.weights_file(folder)
        #: Content of adapter_config.json.
        self.settings: Mapping[str, Any] = bounded_files.read_object(
            folder / adapter_folders.CONFIG, adapter_folders.MOST_CONFIG
        )
        self._names: dict[str, dict[str, tuple[str, bool]]] = {}
        try:
            with safe_open(self._file, framework="pt") as opened:  # pyright: ignore[reportCallIssue]
                names = sorted(opened.keys())
                self.dtype: torch.dtype = opened.get_tensor(names[0]).dtype if names else torch.float32
        except (OSError, SafetensorError) as error:
            raise SourceError(f"{self._file} cannot be read: {error}") from error
        for name in names:
            self._place(name)
        for module, parts in self._names.items():
            if set(parts) != {"A", "B"}:
                raise SourceError(f"adapter {folder}: {module} has one matrix of two.")
        if not self._names:
            raise SourceError(f"adapter {folder} has no matrices.")

    def _place(self, name: str) -> None:
        """Record the module and matrix (A or B) of a tensor. Raises SourceError for other tensors."""
        for end, (part, embedding) in _ENDS.items():
            if name.startswith(PREFIX) and name.endswith(f".{end}"):
                module = name[len(PREFIX) : -len(end) - 1]
                self._names.setdefault(module, {})[part] = (name, embedding)
                return
        raise SourceError(
            f"adapter {self.folder} holds {name[:200]}, which is no low-rank matrix (modules_to_save, "
            "a bias or single tokens): such adapters cannot be merged with each other. Merge each into "
            "its base by a config of `forge merge`, and merge the models."
        )

    @property
    def modules(self) -> Collection[str]:
        """Names of the modules that are changed."""
        return self._names.keys()

    @property
    def digests(self) -> dict[str, str]:
        """File name → BLAKE3 of the adapter's config and weights."""
        files = (self.folder / adapter_folders.CONFIG, self._file)
        return {file.name: companions.digest(file.read_bytes()) for file in files}

    def pair(self, module: str) -> AdapterPair:
        """Return the AdapterPair of a module: its matrices A and B, float32, and their scale.

        Raises SourceError for shapes that do not fit, NotFiniteError.
        """
        names = self._names[module]
        with safe_open(self._file, framework="pt") as opened:  # pyright: ignore[reportCallIssue]
            a, b = (opened.get_tensor(names[part][0]).float() for part in "AB")
        if a.dim() != 2 or b.dim() != 2 or not 0 < len(a) == b.shape[1]:
            raise SourceError(
                f"adapter {self.folder}: its matrices for {module} are {list(a.shape)} and "
                f"{list(b.shape)}, not [rank, columns] and [rows, rank]."
            )
        if not (a.isfinite().all() and b.isfinite().all()):
            raise NotFiniteError(f"adapter {self.folder}: a matrix of {module} holds NaN or Inf.")
        return AdapterPair(a, b, self._config.scale(module, len(a)), names["A"][1])


def write(
    folder: Path,
    pairs: Mapping[str, AdapterPair],
    settings: Mapping[str, object],
    dtype: torch.dtype = torch.float32,
    whole: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Write an adapter of pairs, and of `whole` tensors by name, into an existing folder.

    Zeros fill all pairs to the largest rank; α is the rank, so that peft's scale is 1. `settings` are
    further keys of adapter_config.json.
    """
    rank, tensors = max(pair.rank for pair in pairs.values()), {}
    for module, pair in sorted(pairs.items()):
        a, b = torch.zeros(rank, pair.sides[1]), torch.zeros(pair.sides[0], rank)
        a[: pair.rank], b[:, : pair.rank] = pair.a * pair.scale, pair.b
        middle, end = ("lora_embedding_", "") if pair.embedding else ("lora_", ".weight")
        for part, tensor in (("A", a), ("B", b)):
            tensors[f"{PREFIX}{module}.{middle}{part}{end}"] = tensor.to(dtype)
    tensors |= {f"{PREFIX}{name}": t.contiguous() for name, t in (whole or {}).items()}
    save_file(tensors, folder / adapter_folders.WEIGHTS, metadata={"format": "pt"})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "inference_mode": True,
        "r": rank,
        "lora_alpha": rank,
        "lora_dropout": 0.0,
        "bias": "none",
        **settings,
    }
    (folder / adapter_folders.CONFIG).write_text(json.dumps(config, indent=2) + "\n", "utf-8")


def truncated(matrix: torch.Tensor, rank: int) -> tuple[AdapterPair, float, float]:
    """Return (pair of `rank` nearest to a float64 matrix, Σ of its squared singular values, Σ of all).

    The norms of A's rows and of B's columns are the roots of the singular values.
    """
    wide = matrix.shape[0] <= matrix.shape[1]
    values, vectors = torch.linalg.eigh(matrix @ matrix.T if wide else matrix.T @ matrix)
    values, vectors = values.flip(0)[:rank].clamp(min=0), vectors.flip(1)[:, :rank]
    roots = values.sqrt().sqrt()  # of the singular values
    inverse = torch.where(roots > 0, 1 / roots, 0)
    if wide:
        b, a = vectors * roots, (vectors.T @ matrix) * inverse[:, None]
    else:
        b, a = (matrix @ vectors) * inverse, (vectors * roots).T
    total = float(matrix.square().sum())
    return AdapterPair(a.float(), b.float()), min(float(values.sum()), total), total
