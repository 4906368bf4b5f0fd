"""Conversion of a GGUF file into a cached model folder: config, tokenizer, weights piece by piece.

A folder has one dtype. Quantised weights become float32: llama.cpp computes a block's scale times a
code plus its minimum, and 16 bits do not hold such a number. Weights that are stored as F16 or BF16
keep that type if all other tensors fit into it without loss.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type

from agent_forge.runs.errors import SourceError
from agent_forge.weights.folders import companions, made_folders, model_config, safetensors_places
from agent_forge.weights.folders.checkpoint import INDEX, SHARD_BYTES, publish
from agent_forge.weights.folders.gguf_note import NOTE
from agent_forge.weights.folders.gguf_source import families, tokens
from agent_forge.weights.folders.gguf_source import header as headers
from agent_forge.weights.folders.gguf_source.header import Header, Metadata, pieces, types
from agent_forge.weights.folders.made_folders import DISK_BYTES
from agent_forge.weights.folders.parameters import saved_name
from agent_forge.weights.tensors import Shape, elements

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Types that are no codes, and their dtypes.
PLAIN = {Type.F32: torch.float32, Type.F16: torch.float16, Type.BF16: torch.bfloat16}


@dataclass(frozen=True)
class Converted:
    """Plan of a conversion: the model folder that a GGUF file becomes."""

    header: Header
    family: families.GgufArchitecture
    config: Mapping[str, Any]
    tokens: tokens.TokenizerFiles
    #: Tensor name of transformers → its shape there, and the tensor of the file.
    tensors: Mapping[str, tuple[Shape, str]]


def prepared(header: Header) -> Converted:
    """Return the plan, Converted, of a file's conversion. Raises SourceError if it does not fit."""
    source = Metadata.of(header)
    family = families.of(source)
    config = families.config(source, family, tokens.count(source))
    tokenizer = tokens.of(source)
    config |= tokenizer.ids
    shapes = {name: tensor.shape for name, tensor in header.tensors.items()}
    model_config.check(header.file, config, shapes)
    module = model_config.module(header.file, config)
    return Converted(header, family, config, tokenizer, _placed(source, module))


def _placed(source: Metadata, module: PreTrainedModel) -> dict[str, tuple[Shape, str]]:
    """Return transformers' tensor name → (shape, name in the file). Raises SourceError."""
    architecture = next(
        key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == source.architecture
    )
    names = gguf.get_tensor_name_map(architecture, source.integer("block_count"))
    tied = set(module.get_expanded_tied_weights_keys(all_submodels=True))
    placed: dict[str, tuple[Shape, str]] = {}
    for slot, parameter in module.state_dict().items():
        if slot in tied:
            continue
        name, shape = saved_name(module, slot), tuple(parameter.shape)
        place = names.get_name(name, try_suffixes=(".weight", ".bias"))
        tensor = source.header.tensors.get(place or "")
        if place is None or tensor is None:
            raise source.error(f"it lacks the tensor {place or name}: it is no whole model.")
        if tensor.shape != tuple(side for side in shape if side != 1 or len(shape) < 3):
            raise source.error(
                f"tensor {place} is {list(tensor.shape)}, and {list(shape)} is expected."
            )
        placed[name] = (shape, place)
    used = {place for _, place in placed.values()} | set(families.TENSORS)
    if left := sorted(set(source.header.tensors) - used):
        raise source.error(
            f"tensor {left[0]} has no place in a {module.config.model_type} model of transformers."
        )
    return dict(sorted(placed.items()))


def rounded(header: Header) -> str | None:
    """Return the name of the type of most codes, as "Q4_1"; None if the file has no codes."""
    codes = [type_ for type_ in types(list(header.tensors.values())) if type_ not in PLAIN]
    return codes[0].name if codes else None


def bytes_of(model: Converted) -> int:
    """Return how many bytes the folder's weights will have."""
    return sum(elements(shape) for shape, _ in model.tensors.values()) * _dtype(model).itemsize


def write(model: Converted, folder: Path) -> None:
    """Write the model into a folder. Raises SourceError, NotFiniteError, OSError for a full disk."""
    dtype = _dtype(model)
    config = {**model.config, "dtype": str(dtype).removeprefix("torch.")}
    generation = {**model.tokens.ids, "eos_token_id": list(model.tokens.ends) or None}
    files = {
        companions.CONFIG: config,
        "tokenizer.json": model.tokens.tokenizer,
        "tokenizer_config.json": model.tokens.config,
        "generation_config.json": generation,
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
    if model.tokens.template is not None:
        (folder / "chat_template.jinja").write_text(model.tokens.template, "utf-8")
    _write_weights(model, folder, dtype)


def _write_weights(model: Converted, folder: Path, dtype: torch.dtype) -> None:
    entries = [(name, dtype, shape) for name, (shape, _) in model.tensors.items()]
    places, headers = safetensors_places.places(entries, SHARD_BYTES)
    for file, header in headers.items():
        with (folder / file).open("xb") as out:
            out.write(header)
            for place in places:
                if place.file == file:
                    for values in _values(model, place.name):
                        rows = _tensor(values).to(dtype)
                        out.write(rows.view(torch.uint8).numpy().data)
    if len(headers) > 1:
        (folder / INDEX).write_text(safetensors_places.index_of(places), "utf-8")


def _values(model: Converted, name: str) -> Iterator[np.ndarray]:
    """Yield a tensor's numbers as transformers has them, piece by piece in order, float32."""
    stored = model.tensors[name][1]
    tensor, config = model.header.tensors[stored], model.config
    read = partial(pieces, stored, tensor)
    heads = {"self_attn.q_proj": "num_attention_heads", "self_attn.k_proj": "num_key_value_heads"}
    paired = next((config[key] for part, key in heads.items() if part in name), None)
    if model.family.paired and paired is not None:
        yield _halved(np.concatenate(list(read())).reshape(tensor.shape), paired)
        return
    centred = model.family.centred and name.endswith("norm.weight")
    for values in read():
        yield values - np.float32(1) if centred else values


def _halved(rows: np.ndarray, heads: int) -> np.ndarray:
    """Return a query or key projection with each head's rows in the order of transformers.

    transformers rotates row i of a head with row i + width/2, llama.cpp row 2i with row 2i + 1.
    """
    if rows.shape[0] % (2 * heads):
        raise SourceError(f"a projection of {rows.shape[0]} rows has not {heads} heads of pairs.")
    pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def _dtype(model: Converted) -> torch.dtype:
    """Return the folder's dtype: the matrices' 16-bit dtype if all numbers fit it; else float32."""
    tensors = {
        name: model.header.tensors[stored_name] for name, (_, stored_name) in model.tensors.items()
    }
    stored = {tensor.type for tensor in tensors.values() if len(tensor.shape) > 1}
    if len(stored) != 1 or (dtype := PLAIN.get(stored.pop())) in (None, torch.float32):
        return torch.float32
    other_names = [name for name, tensor in tensors.items() if PLAIN.get(tensor.type) != dtype]
    small = all(elements(tensors[name].shape) < 1 << 24 for name in other_names)
    exact = small and all(_fits(model, name, dtype) for name in other_names)
    return dtype if exact else torch.float32


def _fits(model: Converted, name: str, dtype: torch.dtype) -> bool:
    """Return True if a tensor's numbers do not change in this dtype of 16 bits."""
    pieces = map(_tensor, _values(model, name))
    return all(torch.equal(values, values.to(dtype).to(torch.float32)) for values in pieces)


def _tensor(values: np.ndarray) -> torch.Tensor:
    """Return the numbers as a writable tensor; numpy's array may be a view of read-only bytes."""
    return torch.from_numpy(np.require(values, requirements=("C", "W")))


#: Increased if the same file gives another folder.
VERSION = 1


def folder(file: Path, cache: Path, origin: str, disk_bytes: int = DISK_BYTES) -> Path:
    """Return the path of a GGUF file's model folder in `cache`; make it if it is missing or damaged.

    `origin` is the user's name for the file. Raises SourceError for a file that is no known model,
    NotFiniteError for NaN or Inf in the file, UnavailableError if the disk lacks space.
    """
    header = headers.read(file)
    place = made_folders.place(cache, headers.stem(file), header.files, VERSION)

    def make(hidden: Path) -> Mapping[str, object]:
        # imports torch and transformers

        model = prepared(header)
        made_folders.check_space(str(header.file), cache, bytes_of(model))
        write(model, hidden)
        return {"name": header.file.name, "rounded": rounded(header)}

    return made_folders.settled(place, NOTE, origin, make, publish, disk_bytes)
