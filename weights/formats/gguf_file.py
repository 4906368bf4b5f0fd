"""GGUF files, which llama.cpp and programs built on it read: metadata, tokenizer, tensors by type.

    MODEL FOLDER → FILE.gguf

Tensor names are those of the package `gguf`; `gguf_architectures.py` has the rest that an architecture
needs. Vectors are F32. A matrix whose rows a quantised type cannot cut into blocks is F16, and named in
the result.

TQ1_0 and TQ2_0 hold −d, 0 and d in each block of a row. They are for ternary models, and would destroy
any other matrix. Embedding and head are F16 in such files.

Tensors are read, encoded and written one after the other. Two files of one model have the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from gguf.quants import quantize

from agent_forge.runs.errors import ConfigError, NotFiniteError
from agent_forge.weights.folders.checkpoint import Checkpoint, sync
from agent_forge.weights.folders.vocabularies import Tokenizer
from agent_forge.weights.formats import byte_bpe, byte_fallback_bpe, gguf_rope
from agent_forge.weights.formats import gguf_architectures as architectures
from agent_forge.weights.formats.byte_bpe import Tokens
from agent_forge.weights.tensors import HEADS
from agent_forge.weights.ternary.quantiser import parts

#: Name of a type → the package's type of a file.
TYPES = {
    "F32": gguf.LlamaFileType.ALL_F32,
    "F16": gguf.LlamaFileType.MOSTLY_F16,
    "BF16": gguf.LlamaFileType.MOSTLY_BF16,
    "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
    "Q5_1": gguf.LlamaFileType.MOSTLY_Q5_1,
    "Q5_0": gguf.LlamaFileType.MOSTLY_Q5_0,
    "Q4_1": gguf.LlamaFileType.MOSTLY_Q4_1,
    "Q4_0": gguf.LlamaFileType.MOSTLY_Q4_0,
    "TQ1_0": gguf.LlamaFileType.MOSTLY_TQ1_0,
    "TQ2_0": gguf.LlamaFileType.MOSTLY_TQ2_0,
}
#: Types of ternary weights.
TERNARY = ("TQ1_0", "TQ2_0")


@dataclass(frozen=True)
class Written:
    """Result of `write`: size and types of the file."""

    bytes: int
    #: Name of a matrix → its type, if the requested type does not fit its rows.
    other: Mapping[str, str]


def check(checkpoint: Checkpoint, type_: str, fallback: bool = False) -> None:
    """Raise ConfigError or SourceError for a type or a model of which no file can be written.

    With `fallback`, matrices whose rows a ternary type cannot cut into blocks become F16.
    """
    if type_ not in TYPES:
        raise ConfigError(f"GGUF type {type_!r} is not known: use one of {', '.join(TYPES)}.")
    architectures.check(checkpoint.config, checkpoint.given)
    for name in checkpoint.shapes:
        architectures.tensor_name(checkpoint.config, name)
    if type_ in TERNARY and not fallback:
        _check_widths(checkpoint, type_)


def exact_type(checkpoint: Checkpoint) -> str:
    """Return "BF16", "F16" or "F32": the smallest type that holds every weight exactly."""
    dtypes = {dtype for dtype, _ in checkpoint.shapes.values()}
    return next((type_ for type_ in ("BF16", "F16") if dtypes == {type_}), "F32")


def _check_widths(checkpoint: Checkpoint, type_: str) -> None:
    """Raise ConfigError unless a ternary type's blocks divide the rows of every linear layer."""
    block = gguf.GGML_QUANT_SIZES[Type[type_]][0]
    widths = {
        shape[-1]: name
        for name, (_, shape) in checkpoint.shapes.items()
        if not architectures.is_exact(name, shape) and _linear(name)
    }
    wrong = {width: name for width, name in sorted(widths.items()) if width % block}
    if wrong:
        width_list = ", ".join(
            f"{w} ({n}; {-(-w // block) * block} would fit)" for w, n in wrong.items()
        )
        raise ConfigError(
            f"{type_} cuts the rows of a matrix into blocks of {block}, so their width must be a "
            f"multiple of {block}, and here it is {width_list}. Add --fallback F16 to write "
            "those matrices "
            "as F16, or train a model whose hidden and intermediate sizes are multiples of 256."
        )


def _linear(name: str) -> bool:
    """Return True if a matrix is a linear layer's, False for embedding and head."""
    return name not in HEADS and name not in HEADS.values()


def write(
    checkpoint: Checkpoint, tokens: Tokens, file: Path, type_: str, name: str, fallback: bool = False
) -> Written:
    """Write a model to a new file, synced; return a Written: its size, and matrices of other types.

    `name` is the model's name in the file. Raises the errors of `check`, NotFiniteError for NaN or Inf,
    and SourceError for a matrix that a ternary type cannot hold.
    """
    check(checkpoint, type_, fallback)
    config = checkpoint.config
    placed = sorted((architectures.tensor_name(config, n), n) for n in checkpoint.shapes)
    types = {n: _type(n, checkpoint.shapes[n][1], type_) for _, n in placed}
    factors = gguf_rope.tensors(config)
    with closing(gguf.GGUFWriter(file, gguf.MODEL_ARCH_NAMES[architectures.of(config).gguf])) as writer:
        architectures.describe(writer, config, name)
        writer.add_file_type(TYPES[type_])
        _add_tokens(writer, tokens)
        for gguf_name, values in factors.items():
            _add_tensor(writer, gguf_name, values.shape, Type.F32)
        for gguf_name, source_name in placed:
            shape = architectures.shape(source_name, checkpoint.shapes[source_name][1])
            _add_tensor(writer, gguf_name, shape, types[source_name])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for values in factors.values():
            writer.write_tensor_data(values)
        tensors = checkpoint.tensors()
        for _, source_name in placed:
            if types[source_name].name in TERNARY:
                parts(source_name, tensors[source_name], gguf.GGML_QUANT_SIZES[types[source_name]][0])
            values = _values(config, source_name, tensors[source_name])
            writer.write_tensor_data(quantize(values, types[source_name]))
    sync(file)
    file_type = Type[type_]
    matrices = [n for _, n in placed if not architectures.is_exact(n, checkpoint.shapes[n][1])]
    if type_ in TERNARY:
        matrices = [n for n in matrices if _linear(n)]
    other = {name: types[name].name for name in matrices if types[name] != file_type}
    return Written(file.stat().st_size, other)


def _add_tensor(writer: gguf.GGUFWriter, name: str, shape: tuple[int, ...], type_: Type) -> None:
    block, size = gguf.GGML_QUANT_SIZES[type_]
    count = int(np.prod(shape)) // block * size
    writer.add_tensor_info(name, shape, np.dtype(np.float32), count, type_)


def tokens_of(tokenizer: Tokenizer, size: int) -> Tokens:
    """Return a tokenizer as GGUF's Tokens, for a model whose embedding has `size` rows.

    It is byte-level BPE, or BPE with bytes as fallback. Raises SourceError for a tokenizer that
    llama.cpp does not have.
    """
    model = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
    kind = byte_fallback_bpe if getattr(model, "byte_fallback", False) else byte_bpe
    return kind.of(tokenizer, size)


def _add_tokens(writer: gguf.GGUFWriter, tokens: Tokens) -> None:
    writer.add_tokenizer_model(tokens.model)
    writer.add_tokenizer_pre(tokens.split)
    writer.add_token_list(tokens.tokens)
    writer.add_token_types(tokens.kinds)
    if tokens.scores:
        writer.add_token_scores(tokens.scores)
    else:
        writer.add_token_merges(tokens.merges)
    if tokens.space_prefix is not None:
        writer.add_add_space_prefix(tokens.space_prefix)
        writer.add_add_eos_token(tokens.ends)
    for name, id_ in tokens.special.items():
        getattr(writer, f"add_{name}_token_id")(id_)
    writer.add_add_bos_token(tokens.begins)
    if tokens.template:
        writer.add_chat_template(tokens.template)


def _type(name: str, shape: tuple[int, ...], type_: str) -> Type:
    """Return `type_` as a Type; F32 for vectors, F16 if rows do not fit, or for a ternary embedding."""
    if architectures.is_exact(name, shape):
        return Type.F32
    if type_ in TERNARY and not _linear(name):
        return Type.F16
    file_type = Type[type_]
    return file_type if shape[-1] % gguf.GGML_QUANT_SIZES[file_type][0] == 0 else Type.F16


def _values(config: Mapping[str, object], name: str, tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor's values for llama.cpp, float32. Raises NotFiniteError for NaN or Inf."""
    values = tensor.float().contiguous().numpy()
    if not np.isfinite(values).all():
        raise NotFiniteError(f"tensor {name} holds NaN or Inf: no file is written.")
    return architectures.values(config, name, values)
