"""Models as merges read them: rows of their tensors, as stored or with a change on the fly.

A model is a folder, perhaps with a LoRA adapter, whose change is added on the fly: nothing merged
is written anywhere. Tensors are memory-mapped, and read when a stretch of them is read.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from agent_forge.evomerge.mergekit.parser import ModelPath
from agent_forge.evomerge.merging.kernels.chunks import TensorRows, as_rows
from agent_forge.evomerge.merging.tensor_ops import Read
from agent_forge.runs.errors import SourceError
from agent_forge.runs.system import process_limits
from agent_forge.weights.folders import safetensors_header
from agent_forge.weights.folders.adapter import Adapter
from agent_forge.weights.folders.checkpoint import TORCH, Checkpoint
from agent_forge.weights.tensors import HEADS, elements


@dataclass(frozen=True)
class _Place:
    """Place of a tensor: the mapped file, first byte, bytes."""

    file: mmap.mmap
    offset: int
    size: int


def _mapped(file: Path) -> mmap.mmap:
    """Return a file as memory (`mmap`), never written to. Raise UnavailableError, SourceError."""
    flags = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0)
    try:
        with process_limits.reading(file), file.open("rb") as opened:
            return mmap.mmap(opened.fileno(), 0, flags, mmap.PROT_READ | mmap.PROT_WRITE)
    except OSError as error:
        raise SourceError(f"{file} cannot be read: {error.strerror}.") from error


def _tensor(memory: mmap.mmap, dtype: torch.dtype, shape: tuple[int, ...], offset: int) -> torch.Tensor:
    count = elements(shape)
    if not count:
        return torch.empty(shape, dtype=dtype)
    if offset % dtype.itemsize:  # a header of odd length: the format allows it
        raw = torch.frombuffer(memory, dtype=torch.uint8, count=count * dtype.itemsize, offset=offset)
        return raw.clone().view(dtype).view(shape)
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=offset).view(shape)


class ModelRows:
    """An opened model, whose tensors are read row by row, by name."""

    def __init__(self, name: str, checkpoint: Checkpoint, adapter: Adapter | None = None) -> None:
        self.name, self.checkpoint, self.adapter = name, checkpoint, adapter
        self._places: dict[str, _Place] = {}
        self._tensors = self._mapped()
        self._head = next((HEADS[n] for n in HEADS if n in self._tensors), None)
        self._embedding = next((n for n in HEADS if n in self._tensors), None)
        self._untied = False
        if adapter is not None:
            if self._embedding and self._head and self.tied:
                self._untied = adapter.unties(self._embedding, self._head)
            for tensor in self.names(self.tied):
                self.rows(tensor)
            adapter.check_used()

    @property
    def config(self) -> Mapping[str, Any]:
        """Content of the model's config.json."""
        return self.checkpoint.config

    @property
    def tied(self) -> bool:
        """True if the head is the embedding, also with the adapter's change."""
        return self.checkpoint.tied and not self._untied

    def names(self, tied: bool) -> list[str]:
        """Return the model's tensor names; without its head if all models' heads are `tied`."""
        names = set(self._tensors)
        if self._head is not None:
            names = names - {self._head} if tied else names | {self._head}
        return sorted(names)

    def tensor(self, name: str) -> torch.Tensor:
        """Return a tensor as stored; the embedding in place of a head that is not stored."""
        if name not in self._tensors and name == self._head and self._embedding:
            name = self._embedding
        return self._tensors[name]

    def rows(self, name: str) -> TensorRows:
        """Return a tensor as rows, with the adapter's change added to what is read."""
        rows = as_rows(self.tensor(name))
        if self.adapter is None:
            return rows
        if name not in self._tensors and self._embedding and not self._untied:
            name = self._embedding
        return self.adapter.on(name, rows, self.config.get("model_type"))

    def read_ahead(self, names: Sequence[str]) -> None:
        """Tell the kernel that these tensors are needed soon."""
        for name in names:
            place = self._places.get(name)
            if place is not None:
                begin = place.offset // mmap.PAGESIZE * mmap.PAGESIZE
                size = place.offset + place.size - begin
                place.file.madvise(mmap.MADV_WILLNEED, begin, size)

    def _mapped(self) -> dict[str, torch.Tensor]:
        """Return {name: tensor}, memory-mapped: read when it is used, never written to."""
        tensors: dict[str, torch.Tensor] = {}
        process_limits.allow_many()
        for file in sorted(set(self.checkpoint.files.values())):
            entries, memory = safetensors_header.read(file), _mapped(file)
            for name, (dtype, shape) in self.checkpoint.shapes.items():
                if self.checkpoint.files[name] != file:
                    continue
                if dtype not in TORCH:
                    raise SourceError(f"tensor {name} of {self.name} is {dtype}: not readable.")
                entry = entries[self.checkpoint.stored[name]]
                self._places[name] = _Place(memory, entry.begin, entry.end - entry.begin)
                tensors[name] = _tensor(memory, TORCH[dtype], shape, entry.begin)
        return {name: tensors[name] for name in sorted(tensors)}

    def stamp(self) -> list[list[object]]:
        """Return [path, size, time] of each file, by which a later write to it is noticed."""
        files = sorted(set(self.checkpoint.files.values()))
        if self.adapter is not None:
            files += self.adapter.files
        return [[str(f), f.stat().st_size, f.stat().st_mtime_ns] for f in files]


class OpenedSources:
    """Sources of a merge: rows of the models' tensors, some of them changed on the fly."""

    def __init__(self, models: Mapping[ModelPath, ModelRows]) -> None:
        self._models = {str(reference): model for reference, model in models.items()}
        self._rows: dict[Read, TensorRows] = {}

    def merged_before(self, tensors: Mapping[str, torch.Tensor]) -> Iterator[Read]:
        """Add tensors of the result that are made already; yield the place (`Read`) of each."""
        for name, tensor in tensors.items():
            read = Read("", name)
            self._rows[read] = as_rows(tensor)
            yield read

    def add(self, reference: ModelPath, name: str, rows: TensorRows) -> Read:
        """Add a tensor's rows; return the place (`Read`) that operations read them from."""
        read = Read(str(reference), name)
        self._rows[read] = rows
        return read

    def rows(self, read: Read) -> TensorRows:
        """Return a tensor's rows. Raise KeyError."""
        return self._rows[read]

    def read_ahead(self, reads: Iterable[Read]) -> None:
        """Tell the kernel that these tensors are needed soon."""
        for read in reads:
            if read.model in self._models:
                self._models[read.model].read_ahead([read.tensor])
