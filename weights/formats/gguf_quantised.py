"""GGUF files quantised by llama.cpp's library: K-quants, IQ types, types with an importance matrix.

A type names a mixture: llama.cpp gives some matrices more bits. If a type's blocks of 256 do not divide
a matrix's rows, llama.cpp chooses a type with blocks of 32; the result names such matrices.
"""

from __future__ import annotations

from pathlib import Path

import gguf

from agent_forge.runs.errors import ConfigError
from agent_forge.weights.folders.checkpoint import Checkpoint, sync
from agent_forge.weights.formats import gguf_architectures as architectures
from agent_forge.weights.formats.gguf_file import TERNARY, TYPES, Written
from agent_forge.weights.formats.libllama import Library

#: Types that only llama.cpp's library writes.
QUANTISED = (
    *("Q6_K", "Q5_K_M", "Q5_K_S", "Q4_K_M", "Q4_K_S", "Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K", "Q2_K_S"),
    *("IQ4_NL", "IQ4_XS", "IQ3_M", "IQ3_S", "IQ3_XS", "IQ3_XXS"),
    *("IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S"),
)
#: Types that are useless without an importance matrix; llama.cpp refuses them without one.
NEEDY = (*("Q2_K_S", "IQ3_XS", "IQ3_XXS", "IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S"),)
#: Types with blocks of 32 that use a matrix if there is one.
WEIGHED = ("Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0")
#: Weights in a block of most types of this module; the others have blocks of 32.
BLOCK = 256


def check(type_: str, weighed: bool) -> None:
    """Raise ConfigError for an unknown type, or one that needs a matrix if not `weighed`."""
    if type_ not in TYPES and type_ not in QUANTISED:
        raise ConfigError(
            f"GGUF type {type_!r} is not known: use one of {', '.join((*TYPES, *QUANTISED))}."
        )
    if type_ in NEEDY and not weighed:
        raise ConfigError(
            f"GGUF type {type_} needs an importance matrix: add --imatrix DATA, text like that which "
            "the model is used on."
        )


def by_library(type_: str, weighed: bool) -> bool:
    """Return True if llama.cpp's library must quantise this type; `weighed`: there is a matrix."""
    return type_ in QUANTISED or (weighed and type_ in WEIGHED and type_ not in TERNARY)


def write(
    library: Library, checkpoint: Checkpoint, source: Path, type_: str, matrix: Path | None, file: Path
) -> Written:
    """Quantise `source`, a checkpoint's exact GGUF file, to `file`; return Written: size, other types.

    The new file is synced. Raises UnavailableError if the library fails.
    """
    library.quantise(source, file, type_, matrix)
    sync(file)
    names = {architectures.tensor_name(checkpoint.config, n): n for n in checkpoint.shapes}
    other = {
        names[tensor.name]: tensor.tensor_type.name
        for tensor in gguf.GGUFReader(file).tensors
        if tensor.name in names and _falls_back(tensor, type_)
    }
    return Written(file.stat().st_size, other)


def _falls_back(tensor: gguf.ReaderTensor, type_: str) -> bool:
    plain = tensor.tensor_type.name == "F32"  # norms, kernels
    whole = BLOCK if type_ in QUANTISED and type_ != "IQ4_NL" else 32
    return len(tensor.shape) > 1 and not plain and bool(tensor.shape[0] % whole)
