"""Model folders: safe reads, checks of the weights, sharded streaming writes, digests.

A checkpoint is a Hugging Face folder with `config.json` and safetensors weights. Tensors are
memory-mapped and read on use. Pickled weights are refused.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

import blake3
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from agent_forge.events import failpoints
from agent_forge.runs.errors import ForgeError, SourceError, UnavailableError
from agent_forge.runs.event_types import HalfPrecision
from agent_forge.runs.system import bounded_files, process_limits
from agent_forge.weights.folders import (
    adapter_folders,
    gguf_note,
    made_folders,
    model_config,
    safetensors_header,
)
from agent_forge.weights.folders.adapter import AdaptedTensors, Adapter
from agent_forge.weights.folders.confrontation import TORCH, confront
from agent_forge.weights.tensors import HEADS, Shape, Tensors, Weights, elements

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
#: Characters of the longest name of a tensor.
LONGEST_NAME = 500
#: Largest shard written, bytes.
SHARD_BYTES = 2_000_000_000


@dataclass(frozen=True)
class Checkpoint:
    """An opened model folder: its tensors and the files that hold them."""

    folder: Path
    #: The path that the user gave, for messages; `folder` may be a private copy of it, or made of it.
    given: Path
    #: Content of config.json; `tie_word_embeddings` agrees with the stored tensors.
    config: Mapping[str, Any]
    #: Tensor name → file.
    files: Mapping[str, Path]
    #: Tensor name → (dtype as safetensors names it, shape).
    shapes: Mapping[str, tuple[str, Shape]]
    #: Tensor name → its name in the file.
    stored: Mapping[str, str]
    #: True if transformers packs some of the tensors together when it loads them.
    packed: bool = False
    #: Warnings for the user about unusual content of the files.
    warnings: tuple[str, ...] = ()
    #: The adapter of BASE+ADAPTER, whose change `tensors` adds; `shapes` are as the base stores them.
    adapter: Adapter | None = None

    @property
    def tied(self) -> bool:
        """True if the head is the embedding: no separate head tensor is stored."""
        return not any(head in self.files for head in HEADS.values())

    def model(self) -> Tensors:
        """Return the model as `Tensors`: config, and memory-mapped tensors by name."""
        return Tensors(self.config, self.tensors())

    def check_plain(self, what: str) -> None:
        """Raise SourceError, "… cannot be `what`", if transformers packs tensors when it loads them."""
        if self.packed:
            raise SourceError(
                f"model {self.given} stores its experts one by one, and transformers packs them when "
                "it loads them: such a model can be merged, searched and measured, but not "
                f"{what} yet."
            )

    @property
    def parameters(self) -> int:
        """Number of elements of all stored tensors."""
        return sum(elements(shape) for _, shape in self.shapes.values())

    @property
    def bytes(self) -> int:
        """Bytes of all stored tensors."""
        return sum(TORCH[dtype].itemsize * elements(shape) for dtype, shape in self.shapes.values())

    @property
    def positions(self) -> int | None:
        """Tokens of the longest sequence that the architecture takes; None if its config has no key."""
        inner = self.config.get("text_config") or {}
        for settings in (inner, self.config):
            for key in ("max_position_embeddings", "n_positions"):
                if settings.get(key):
                    return int(settings[key])
        return None

    def tensors(self) -> Weights:
        """Return all tensors by name, in order of name; memory-mapped, not to be written to.

        Tensors that an adapter changes are computed when they are read.
        """
        stored = self._stored()
        if self.adapter is None:
            return stored
        return AdaptedTensors(stored, self.adapter, self.config.get("model_type"))

    def _stored(self) -> dict[str, torch.Tensor]:
        """Return name → stored tensor, in order of name, memory-mapped, without the adapter."""
        result: dict[str, torch.Tensor] = {}
        for file in sorted(set(self.files.values())):
            with (
                process_limits.reading(file),
                safe_open(file, framework="pt") as opened,  # pyright: ignore[reportCallIssue]
            ):
                for name, place in self.files.items():
                    if place == file:
                        result[name] = opened.get_tensor(self.stored[name])
        return {name: result[name] for name in sorted(result)}


def open_checkpoint(folder: Path, user_folder: Path | None = None) -> Checkpoint:
    """Return a model folder as a Checkpoint whose tensors fit the model that transformers builds.

    It reads headers only. The folder may be BASE+ADAPTER, or a copy of it. Messages name `user_folder`.
    Tensors have the names under which transformers saves them. Raises SourceError with the fault.
    """
    checkpoint = read_folder(adapter_folders.parts(folder)[0], user_folder)
    fit = confront(checkpoint.given, checkpoint.config, checkpoint.shapes, _Equal(checkpoint.files))
    opened = replaced(
        checkpoint,
        config=fit.config,
        files={name: checkpoint.files[place] for name, place in fit.stored.items()},
        shapes={name: checkpoint.shapes[place] for name, place in fit.stored.items()},
        stored=fit.stored,
        packed=fit.packed,
        warnings=(*checkpoint.warnings, *fit.warnings),
    )
    return _adapted(opened, folder)


def _adapted(opened: Checkpoint, folder: Path) -> Checkpoint:
    """Return the Checkpoint, with the adapter of `folder` if it has one. Raises SourceError."""
    files = adapter_folders.files(folder)
    if not files:
        return opened
    opened.check_plain("given with an adapter")
    if len(files) < 2:
        raise SourceError(f"model {folder} lacks a file of its adapter: it has {min(files)} only.")
    settings, weights = (files[name] for name in sorted(files))
    adapter = Adapter(adapter_folders.parts(folder)[1] or folder, (settings, weights))
    like = {
        name: torch.empty(shape, dtype=TORCH[dtype], device="meta")
        for name, (dtype, shape) in opened.shapes.items()
    }
    AdaptedTensors(like, adapter, opened.config.get("model_type"))  # raises what does not fit
    return replaced(opened, adapter=adapter)


def half_precision(checkpoint: Checkpoint) -> HalfPrecision | None:
    """Return "bfloat16" or "float16" if no other dtype holds more of a model's numbers; else None."""
    numbers = dict.fromkeys(TORCH, 0)
    for dtype, shape in checkpoint.shapes.values():
        numbers[dtype] += elements(shape)
    names: dict[str, HalfPrecision] = {"BF16": "bfloat16", "F16": "float16"}
    return names.get(max(numbers, key=lambda dtype: numbers[dtype]))


def read_folder(folder: Path, user_folder: Path | None = None) -> Checkpoint:
    """Return a folder's Checkpoint by its headers, not compared with the model of its config.json.

    Raises SourceError with the fault of the files.
    """
    if not folder.exists():
        raise SourceError(f"model {folder} does not exist. Check the path, or give a Hub id.")
    adapter_folders.check_no_adapter(folder)
    config_file = folder / "config.json"
    if not config_file.is_file():
        raise SourceError(f"model {folder} has no config.json: it is not a Hugging Face folder.")
    config = model_config.read(folder)
    files: dict[str, Path] = {}
    shapes: dict[str, tuple[str, Shape]] = {}
    for file in weight_files(folder):
        for name, shape in _header(file).items():
            if name in files:
                raise SourceError(
                    f"model {folder}: tensor {name} is in {files[name].name} and in {file.name}. "
                    "Remove the file that is not meant."
                )
            files[name], shapes[name] = file, shape
    if not files:
        raise SourceError(f"model {folder} holds no tensors.")
    lacking = sorted(set(_indexed(folder)) - set(files))
    if lacking:
        raise SourceError(f"{folder / INDEX} names tensor {lacking[0]}, which no shard holds.")
    model_config.check(config_file, config, {name: shape for name, (_, shape) in shapes.items()})
    stored = {name: name for name in files}
    notes = gguf_note.warnings(user_folder or folder)
    named = made_folders.named(user_folder or folder)
    return Checkpoint(folder, named, config, files, shapes, stored, warnings=notes)


@dataclass(frozen=True)
class _Equal:
    """Comparison of two stored tensors by their values."""

    files: Mapping[str, Path]

    def __call__(self, left_name: str, other: str) -> bool:
        """Return True if both have the same dtype and values."""
        first, second = (self._read(name) for name in (left_name, other))
        return first.dtype == second.dtype and torch.equal(first, second)

    def _read(self, name: str) -> torch.Tensor:
        with safe_open(self.files[name], framework="pt") as opened:  # pyright: ignore[reportCallIssue]
            return opened.get_tensor(name)


def weight_files(folder: Path) -> list[Path]:
    """Return a list of the paths of a model's safetensors files. Raises SourceError without one."""
    index = folder / INDEX
    if index.is_file() and (folder / SINGLE).is_file() and SINGLE not in _indexed(folder).values():
        raise SourceError(
            f"model {folder} has both {SINGLE} and {INDEX}, which names other files: programs differ "
            "in which they read. Remove the one that is not meant."
        )
    if index.is_file():
        files = [folder / name for name in sorted(set(_indexed(folder).values()))]
        missing = [file.name for file in files if not file.is_file()]
        if missing:
            raise SourceError(f"model {folder} lacks the shards {', '.join(missing)}.")
        return files
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    pickled = sorted(p.name for suffix in ("*.bin", "*.pt", "*.pth") for p in folder.glob(suffix))
    if pickled:
        raise SourceError(
            f"model {folder} has only pickled weights ({', '.join(pickled)}), which can run code "
            "when loaded. Convert them on a machine where you trust them:\n"
            f'  python -c "from transformers import AutoModelForCausalLM as M; '
            f'M.from_pretrained({str(folder)!r}).save_pretrained({str(folder) + "-safe"!r})"'
        )
    raise SourceError(f"model {folder} has no {SINGLE} and no {INDEX}.")


def _indexed(folder: Path) -> dict[str, str]:
    """Return tensor name → file name of the folder's index; {} without an index. Raises SourceError."""
    index = folder / INDEX
    if not index.is_file():
        return {}
    try:
        where = bounded_files.read_object(index)["weight_map"]
        return {str(tensor): Path(file).name for tensor, file in where.items()}
    except (SourceError, KeyError, AttributeError, TypeError) as error:
        raise SourceError(f"{index} is not a safetensors index: {error}") from error


def _header(file: Path) -> dict[str, tuple[str, Shape]]:
    """Return tensor name → (dtype as safetensors names it, shape) of a file. Raises SourceError."""
    entries = safetensors_header.read(file)
    _check_names(file, list(entries))
    return {name: (entry.dtype, entry.shape) for name, entry in entries.items()}


def _check_names(file: Path, names: list[str]) -> None:
    """Raise SourceError for a tensor name too long or not printable: others search and print names."""
    for name in names:
        if len(name) > LONGEST_NAME or not name.isprintable():
            raise SourceError(
                f"{file} names a tensor {name[:60]!r}, with {len(name):,} characters: a name has at "
                f"most {LONGEST_NAME}, all of them printable."
            )


def untied(weights: Weights) -> Weights:
    """Return the weights by name with a separate head; if there is no head, a copy of the embedding.

    Raises SourceError if there is no known embedding.
    """
    embedding = next((name for name in HEADS if name in weights), None)
    if embedding is None:
        raise SourceError("a model without a known embedding cannot be untied")
    if HEADS[embedding] in weights:
        return weights
    result = {**weights, HEADS[embedding]: weights[embedding].clone()}
    return {name: result[name] for name in sorted(result)}


def digest(weights: Mapping[str, torch.Tensor]) -> str:
    """Return BLAKE3 over name, dtype, shape and bytes of all tensors by name, 64 hex digits."""
    hasher = blake3.blake3()
    for name in sorted(weights):
        add_to_digest(hasher, name, weights[name])
    return hasher.hexdigest()


def add_to_digest(hasher: blake3.blake3, name: str, tensor: torch.Tensor) -> None:
    """Add a tensor to the hasher of a `digest`; call it for all tensors in order of name."""
    tensor = tensor.contiguous()
    hasher.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
    if tensor.numel():
        hasher.update(tensor.view(-1).view(torch.uint8).numpy().data)


def _shards(weights: Mapping[str, torch.Tensor], limit: int) -> Iterator[list[str]]:
    """Yield the sorted tensor names of each shard, a list; one over `limit` bytes has one tensor."""
    shard: list[str] = []
    size = 0
    for name in sorted(weights):
        bytes_ = weights[name].numel() * weights[name].element_size()
        if shard and size + bytes_ > limit:
            yield shard
            shard, size = [], 0
        shard.append(name)
        size += bytes_
    yield shard


def write_weights(folder: Path, weights: Mapping[str, torch.Tensor], shard_bytes: int) -> None:
    """Write the weights into an existing folder: one file, or shards and an index; not synced."""
    shards = list(_shards(weights, shard_bytes))
    names = [f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors" for i in range(len(shards))]
    if len(shards) == 1:
        names = [SINGLE]
    where: dict[str, str] = {}
    for shard, name in zip(shards, names, strict=True):
        tensors = {n: weights[n].contiguous() for n in shard}
        save_file(tensors, folder / name, metadata={"format": "pt"})
        where.update(dict.fromkeys(shard, name))
    if len(shards) > 1:
        total = sum(t.numel() * t.element_size() for t in weights.values())
        index = {"metadata": {"total_size": total}, "weight_map": where}
        (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", "utf-8")


def publish(folder: Path, fill: Callable[[Path], None]) -> None:
    """Make a folder appear whole or not at all: `fill` a hidden folder beside it, sync, rename.

    It replaces an existing folder of that name. File modes follow the umask. Raises UnavailableError
    if the disk is full or the place cannot be written.
    """
    hidden = folder.parent / f".{folder.name}.{os.getpid()}.part"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(hidden, ignore_errors=True)
        hidden.mkdir()
        failpoints.hit("publish-begun")
        fill(hidden)
        failpoints.hit("publish-filled")
        settle(hidden)
        failpoints.hit("publish-synced")
        replace(hidden, folder)
        failpoints.hit("publish-renamed")
        sync(folder.parent)
    except (OSError, SafetensorError) as error:
        raise UnavailableError(
            f"{folder} cannot be written: {error}. Free space or choose another folder; "
            "the run is intact and can be resumed."
        ) from error
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def replace(hidden: Path, folder: Path) -> None:
    """Rename `hidden` to `folder` in place of an existing one, in 10 tries if others write there."""
    for _ in range(10):
        shutil.rmtree(folder, ignore_errors=True)
        try:
            hidden.rename(folder)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
    raise FileExistsError(errno.EEXIST, "others keep writing there", str(folder))


def exchange(hidden: Path, folder: Path) -> None:
    """Rename `hidden` to `folder`; an existing folder is moved away first, and removed last."""
    old = folder.parent / f".{folder.name}.old"
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    hidden.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def settle(folder: Path) -> None:
    """Set file modes by the umask (safetensors writes 0600), and sync everything to disk."""
    umask = os.umask(0)
    os.umask(umask)
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(0o666 & ~umask)
        sync(path)
    sync(folder)


def sync(path: Path) -> None:
    """Sync a file, or a folder's entries, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def holds(folder: Path, expected: str) -> bool:
    """Return True if the folder is a model whose weights have this digest, as stored or untied."""
    try:
        opened = open_checkpoint(folder)
        tensors = opened.tensors()
        if digest(tensors) == expected:
            return True
        return opened.tied and digest(untied(tensors)) == expected
    except (ForgeError, OSError):
        return False
