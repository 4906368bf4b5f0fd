"""Importance matrices in llama.cpp's file format, as its `llama-imatrix` writes them.

For each matrix of a block, by its name in the model's GGUF file: the sum of the squares of each input,
[columns] float32, and over how many tokens it was taken. A quantiser weighs the error of a column with
their quotient. It is the diagonal of the gram of the layer's inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np

from runs.errors import SourceError

#: Ends of the names of the two tensors of a matrix.
SQUARES, COUNTS = ".in_sum2", ".counts"
#: Name in the model's GGUF file → mean of the squares of each input, [columns] float32.
Means = Mapping[str, np.ndarray]


def write(file: Path, means: Means, tokens: int, window: int, source: str) -> None:
    """Write means over a number of tokens, read in windows; `source` names the text."""
    writer = gguf.GGUFWriter(file, "")
    try:
        writer.kv_data[0].pop("general.architecture", None)  # the file is no model
        writer.add_type("imatrix")
        writer.add_array("imatrix.datasets", [source])
        writer.add_uint32("imatrix.chunk_count", -(-tokens // window))
        writer.add_uint32("imatrix.chunk_size", window)
        for name, mean in sorted(means.items()):
            squares = (mean.astype(np.float64) * tokens).astype(np.float32)
            writer.add_tensor(name + SQUARES, squares.reshape(1, -1))
            writer.add_tensor(name + COUNTS, np.full((1, 1), tokens, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def read(file: Path) -> dict[str, np.ndarray]:
    """Return the means of a file. Raises SourceError for one that is no importance matrix."""
    try:
        tensors = {tensor.name: tensor.data for tensor in gguf.GGUFReader(file).tensors}
        names = [name.removesuffix(SQUARES) for name in tensors if name.endswith(SQUARES)]
        sums = {name: np.array(tensors[name + SQUARES], np.float64).ravel() for name in names}
        counts = {name: float(np.array(tensors[name + COUNTS]).item()) for name in names}
    except (ValueError, KeyError, IndexError, TypeError, OverflowError, OSError) as error:
        raise SourceError(
            f"{file} cannot be read as an importance matrix: it is damaged, or of another format."
        ) from error
    if not names:
        raise SourceError(f"{file} is no importance matrix: it has no tensor *{SQUARES}.")
    if wrong := [name for name in names if not _are_means(sums[name], counts[name])]:
        raise SourceError(f"{file}: the numbers of {wrong[0]} are no sums of squares.")
    return {name: (sums[name] / counts[name]).astype(np.float32) for name in names}


def _are_means(sums: np.ndarray, count: float) -> bool:
    """Return True for sums of squares over at least one token."""
    return count > 0 and bool((np.isfinite(sums) & (sums >= 0)).all())
