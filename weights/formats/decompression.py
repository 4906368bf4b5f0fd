"""Decoding of a file of coded weights into a Hugging Face folder, or a module of transformers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from agent_forge.events.envelope import Plain
from agent_forge.runs.errors import SourceError
from agent_forge.weights import architectures
from agent_forge.weights.folders import companions, model_config
from agent_forge.weights.folders.checkpoint import INDEX, SHARD_BYTES, TORCH, publish
from agent_forge.weights.folders.safetensors_places import index_of, places
from agent_forge.weights.formats.coded_file import CodedFile

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def decompress(file: Path, folder: Path, shard_bytes: int = SHARD_BYTES) -> CodedFile:
    """Write the model of a coded file as a folder, whole or not at all; return the CodedFile.

    Weights are decoded and written tensor by tensor. Raises SourceError, TamperedError with the place,
    UnavailableError if the disk is full.
    """
    opened = CodedFile(file)
    companion_files = opened.companions()

    def fill(hidden: Path) -> None:
        _write_weights(opened, hidden, shard_bytes)
        (hidden / companions.CONFIG).write_bytes(opened.config_text())
        for name, content in {**companion_files, **architectures.code(opened.header.config)}.items():
            (hidden / name).write_bytes(content)

    publish(folder, fill)
    return opened


def _write_weights(opened: CodedFile, folder: Path, shard_bytes: int) -> None:
    """Write the decoded weights into `folder` as shards, with an index if there are several."""
    shapes = [(name, TORCH[dtype], shape) for name, (dtype, shape) in opened.shapes.items()]
    tensor_places, headers = places(shapes, shard_bytes)
    for name, header in headers.items():
        (folder / name).write_bytes(header)
    for place, (_, tensor) in zip(tensor_places, opened.tensors(), strict=True):
        with (folder / place.file).open("ab") as shard:
            shard.write(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
    if len(headers) > 1:
        (folder / INDEX).write_text(index_of(tensor_places), "utf-8")


@contextmanager
def _folder_of_companions(opened: CodedFile) -> Iterator[Path]:
    """Yield a temporary folder with config.json and companions, for transformers to read."""
    with tempfile.TemporaryDirectory(prefix="forge-") as folder_name:
        folder = Path(folder_name)
        (folder / companions.CONFIG).write_bytes(opened.config_text())
        for name, content in opened.companions().items():
            (folder / name).write_bytes(content)
        yield folder


def load_model(file: Path, dtype: torch.dtype | None = None) -> PreTrainedModel:
    """Return the causal language model of transformers in a coded file, in evaluation mode.

    `dtype` is that of all weights, by default that of the first tensor. No code of the file is run.
    Raises SourceError for an architecture that transformers does not have, TamperedError.
    """
    from transformers import GenerationConfig

    from agent_forge.weights.architectures.auto import AutoModelForCausalLM

    opened = CodedFile(file)
    dtype = dtype or TORCH[opened.header.tensors[0].dtype]
    with _folder_of_companions(opened) as folder:
        config = model_config.load(folder)
        generation = (folder / "generation_config.json").is_file()
        with model_config.described(f"{file} describes no model that can be built"):
            chosen = GenerationConfig.from_pretrained(folder) if generation else None
            model: PreTrainedModel = AutoModelForCausalLM.from_config(
                config, trust_remote_code=False, dtype=dtype
            )
    tensors = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers())
    missing_names = {name for name, _ in model.named_parameters()}
    for name, tensor in opened.tensors():
        if name not in tensors or tensors[name].shape != tensor.shape:
            raise SourceError(f"{file}: tensor {name!r} has no place in the model of its config.")
        with torch.no_grad():
            tensors[name].copy_(tensor)
        missing_names.discard(name)
    if missing_names:
        raise SourceError(f"{file} lacks the tensor {min(missing_names)!r} of its model.")
    if chosen is not None:
        model.generation_config = chosen
    return model.eval()


def load_tokenizer(file: Path) -> PreTrainedTokenizerBase:
    """Return the tokenizer of transformers in a coded file. Raises SourceError if it holds none."""
    from agent_forge.weights.architectures.auto_config import AutoTokenizer

    with _folder_of_companions(CodedFile(file)) as folder:
        model_config.check_tokenizer(folder)
        with model_config.described(f"{file} holds no usable tokenizer"):
            return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


def described(opened: CodedFile) -> Plain:
    """Return a dict of JSON values about a coded file: bytes, codecs, weights, digest, recipe, …."""
    used: dict[str, dict[str, int]] = {}
    for entry in opened.header.tensors:
        sums = used.setdefault(entry.codec, {"tensors": 0, "weights": 0, "bytes": 0})
        sums["tensors"] += 1
        sums["weights"] += entry.matrix[0] * entry.matrix[1]
        sums["bytes"] += entry.bytes
    return {
        "file": str(opened.file),
        "bytes": opened.file.stat().st_size,
        "weights": sum(sums["weights"] for sums in used.values()),
        "codecs": dict(sorted(used.items())),
        "digest": opened.header.digest,
        "recipe": opened.header.recipe,
        "companions": [companion_entry.name for companion_entry in opened.header.companions],
    }
