"""Models as merges read them: rows of their tensors, as stored or with a change on the fly.

A model is a folder, perhaps with a LoRA adapter, whose change is added on the fly: nothing merged
is written anywhere. Tensors are memory-mapped, and read when a stretch of them is read.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from evomerge.mergekit.parser import Reference
from evomerge.merging.kernels.chunks import Rows, as_rows
from evomerge.merging.tensor_ops import Read
from runs.errors import SourceError
from runs.system import bounded_files, patterns
from weights.folders import safetensors_header
from weights.folders.checkpoint import TORCH, Checkpoint
from weights.tensors import HEADS, elements

CONFIG = "adapter_config.json"
#: Bytes of the largest adapter_config.json, patterns in it, and the largest alpha.
MOST_CONFIG, MOST_PATTERNS, MOST_ALPHA = 4 << 20, 10_000, 1e30
#: Steps that the patterns of an adapter may take to match all modules: some seconds.
MOST_STEPS = 20_000_000
#: Prefix that peft puts before a module's name.
_PREFIX = "base_model.model."


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
        for rows, own in self.others:
            has = (own[cut] >= 0).float().unsqueeze(1)
            total += _picked(rows, own[cut]) * has
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


class Adapter:
    """LoRA adapter of a folder.

    The adapter raises SourceError for what cannot be added to weights exactly.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self.config = bounded_files.read_object(folder / CONFIG, MOST_CONFIG)
        except SourceError as error:
            raise SourceError(f"{folder} is not a LoRA adapter: {error}") from error
        self._check_scales()
        #: Steps left for matching patterns with modules.
        self._steps = patterns.Steps(MOST_STEPS)
        self._matchers: dict[str, patterns.Matcher] = {}
        kind = str(self.config.get("peft_type", "LORA"))
        for key in ("use_dora", "fan_in_fan_out", "lora_bias"):
            if self.config.get(key):
                raise SourceError(f"adapter {folder}: {key} is not supported.")
        if kind != "LORA":
            raise SourceError(f"adapter {folder} is {kind}: only LoRA adapters can be merged.")
        self.tensors = self._read()
        self.used: set[str] = set()

    def _read(self) -> dict[str, torch.Tensor]:
        file = self.folder / "adapter_model.safetensors"
        try:
            with safe_open(file, framework="pt") as opened:  # pyright: ignore[reportCallIssue]
                return {n.removeprefix(_PREFIX): opened.get_tensor(n) for n in opened.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise SourceError(f"{file} cannot be read: {error}") from error

    def on(self, name: str, rows: Rows) -> Rows:
        """Return the rows of a tensor with the adapter's change, if the adapter has one.

        Raise SourceError if the shapes do not fit.
        """
        module = name.removesuffix(".weight")
        a = self._find(module, "lora_A") if name.endswith(".weight") else None
        b = self._find(module, "lora_B") if a is not None else None
        if a is None or b is None:
            saved = f"{module}.modules_to_save.weight"
            for key in (saved, f"{module}.weight"):
                if key in self.tensors:
                    self.used.add(key)
                    return as_rows(self.tensors[key])
            return rows
        if a.dim() != 2 or b.dim() != 2 or not 0 < len(a) == b.shape[1]:
            raise SourceError(
                f"adapter {self.folder}: its matrices for {name} are {list(a.shape)} and "
                f"{list(b.shape)}, not [rank, columns] and [rows, rank]."
            )
        if (b.shape[0], a.shape[1]) != tuple(rows.shape):
            raise SourceError(
                f"adapter {self.folder}: its change of {name} is {[b.shape[0], a.shape[1]]}, the "
                f"tensor is {list(rows.shape)}: it belongs to another model."
            )
        return LoraRows(rows, a, b, self._scale(module, a.shape[0]))

    def _find(self, module: str, which: str) -> torch.Tensor | None:
        for key in (f"{module}.{which}.weight", f"{module}.{which}.default.weight"):
            if key in self.tensors:
                self.used.add(key)
                return self.tensors[key]
        return None

    def _scale(self, module: str, rank: int) -> float:
        """Return α / r, or α / √r for rank-stabilised adapters.

        Source of the latter: Kalajdzievski 2023, arXiv 2312.03732.
        """
        alpha = self.config.get("lora_alpha", rank)
        for pattern, value in (self.config.get("alpha_pattern") or {}).items():
            if self._means(pattern, module):  # as peft does: the first that matches
                alpha = value
                break
        return alpha / (rank**0.5 if self.config.get("use_rslora") else rank)

    def _check_scales(self) -> None:
        """Raise SourceError naming the key if a scale is no finite number.

        Raise it, too, if alpha_pattern is no mapping or has too many patterns.
        """
        patterns = self.config.get("alpha_pattern") or {}
        if not isinstance(patterns, dict) or len(patterns) > MOST_PATTERNS:
            raise SourceError(
                f"{self.folder / CONFIG}: alpha_pattern is a mapping of at most {MOST_PATTERNS:,} "
                "patterns to numbers."
            )
        scales = {"lora_alpha": self.config.get("lora_alpha", 1)}
        scales |= {f"alpha_pattern {pattern[:60]!r}": value for pattern, value in patterns.items()}
        for name, value in scales.items():
            if type(value) not in (int, float) or not abs(value) < MOST_ALPHA:
                shown = repr(value)[:60]
                raise SourceError(
                    f"{self.folder / CONFIG}: {name} is {shown}, not a finite number."
                )

    def _means(self, pattern: str, module: str) -> bool:
        """Return True if a pattern means a module: literally, or as a regular expression.

        peft matches `(.*\\.)?(PATTERN)$`: the pattern begins the name, or follows one of its dots.
        Raise SourceError if the pattern is no regular expression, or if all matches together need
        more than MOST_STEPS steps.
        """
        if module == pattern or module.endswith(f".{pattern}"):
            return True
        starts = [0, *(place + 1 for place, letter in enumerate(module) if letter == ".")]
        try:
            if pattern not in self._matchers:
                self._matchers[pattern] = patterns.Matcher(pattern)
            matcher = self._matchers[pattern]
            return any(matcher.fullmatch(module, start, self._steps) for start in starts)
        except ValueError as error:
            what = f"is no regular expression that can be matched ({error})"
        except patterns.TooManyStepsError:
            what = f"needs more than {MOST_STEPS:,} steps to match: write the module's name instead"
        raise SourceError(f"{self.folder / CONFIG}: alpha_pattern {pattern[:60]!r} {what}.")

    def check_used(self) -> None:
        """Raise SourceError if a tensor of the adapter changed nothing."""
        left = sorted(set(self.tensors) - self.used)
        if left:
            raise SourceError(f"adapter {self.folder}: {left[0]} fits no tensor of the model.")


@dataclass(frozen=True)
class _Place:
    """Place of a tensor: descriptor, first byte, bytes."""

    file: int
    offset: int
    size: int


def _tensor(
    memory: mmap.mmap, dtype: torch.dtype, shape: tuple[int, ...], offset: int
) -> torch.Tensor:
    count = elements(shape)
    if not count:
        return torch.empty(shape, dtype=dtype)
    if offset % dtype.itemsize:  # a header of odd length: the format allows it
        raw = torch.frombuffer(
            memory, dtype=torch.uint8, count=count * dtype.itemsize, offset=offset
        )
        return raw.clone().view(dtype).view(shape)
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=offset).view(shape)


class Model:
    """An opened model: rows by tensor name."""

    def __init__(self, name: str, checkpoint: Checkpoint, adapter: Adapter | None = None) -> None:
        self.name, self.checkpoint, self.adapter = name, checkpoint, adapter
        self._places: dict[str, _Place] = {}
        self._tensors = self._mapped()
        self._head = next((HEADS[n] for n in HEADS if n in self._tensors), None)
        self._embedding = next((n for n in HEADS if n in self._tensors), None)
        if adapter is not None:
            for tensor in self._tensors:
                self.rows(tensor)
            adapter.check_used()

    @property
    def config(self) -> Mapping[str, Any]:
        """Content of the model's config.json."""
        return self.checkpoint.config

    @property
    def tied(self) -> bool:
        """True if the head is the embedding."""
        said = self.config.get("tie_word_embeddings")
        return self._head not in self._tensors or said is True

    def names(self, tied: bool) -> list[str]:
        """Return the names of the tensors; with the head unless all models' heads are tied."""
        names = set(self._tensors)
        if self._head is not None:
            names = names - {self._head} if tied else names | {self._head}
        return sorted(n for n in names if not n.endswith("rotary_emb.inv_freq"))

    def tensor(self, name: str) -> torch.Tensor:
        """Return a tensor as stored; the embedding in place of a head that is not stored."""
        if name not in self._tensors and name == self._head and self._embedding:
            name = self._embedding
        return self._tensors[name]

    def rows(self, name: str) -> Rows:
        """Return a tensor's rows, with the adapter's change."""
        rows = as_rows(self.tensor(name))
        if self.adapter is None:
            return rows
        if name not in self._tensors and self._embedding:
            name = self._embedding
        return self.adapter.on(name, rows)

    def read_ahead(self, names: Sequence[str]) -> None:
        """Tell the kernel that these tensors are needed soon."""
        for name in names:
            place = self._places.get(name)
            if place is not None:
                os.posix_fadvise(place.file, place.offset, place.size, os.POSIX_FADV_WILLNEED)

    def _mapped(self) -> dict[str, torch.Tensor]:
        """Return every tensor, memory-mapped: read when it is used, never written to."""
        found: dict[str, torch.Tensor] = {}
        for file in sorted(set(self.checkpoint.files.values())):
            descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
            entries = safetensors_header.read(file)
            flags = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0)
            memory = mmap.mmap(descriptor, 0, flags, mmap.PROT_READ | mmap.PROT_WRITE)
            for name, (dtype, shape) in self.checkpoint.shapes.items():
                if self.checkpoint.files[name] != file:
                    continue
                if dtype not in TORCH:
                    raise SourceError(f"tensor {name} of {self.name} is {dtype}: not readable.")
                entry = entries[name]
                self._places[name] = _Place(descriptor, entry.begin, entry.end - entry.begin)
                found[name] = _tensor(memory, TORCH[dtype], shape, entry.begin)
        return {name: found[name] for name in sorted(found)}

    def close(self) -> None:
        """Close the files' descriptors."""
        for descriptor in {place.file for place in self._places.values()}:
            os.close(descriptor)
        self._places = {}

    def stamp(self) -> list[list[Any]]:
        """Return sizes and times of the model's files, to notice when they are written to."""
        files = sorted(set(self.checkpoint.files.values()))
        if self.adapter is not None:
            names = ("adapter_model.safetensors", CONFIG)
            files += [self.adapter.folder / name for name in names]
        return [[str(f), f.stat().st_size, f.stat().st_mtime_ns] for f in files]


class Opened:
    """Sources of a merge: rows of the models' tensors, some of them changed on the fly."""

    def __init__(self, models: Mapping[Reference, Model]) -> None:
        self._models = {str(reference): model for reference, model in models.items()}
        self._rows: dict[Read, Rows] = {}

    def add(self, reference: Reference, name: str, rows: Rows) -> Read:
        """Add a tensor's rows; return the place that operations read them from."""
        read = Read(str(reference), name)
        self._rows[read] = rows
        return read

    def rows(self, read: Read) -> Rows:
        """Return a tensor's rows. Raise KeyError."""
        return self._rows[read]

    def read_ahead(self, reads: Iterable[Read]) -> None:
        """Tell the kernel that these tensors are needed soon."""
        for read in reads:
            self._models[read.model].read_ahead([read.tensor])
