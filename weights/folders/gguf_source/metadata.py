"""Metadata of a GGUF file by the names of its architecture: numbers with their types checked.

Values of tensors of GGUF files as float32, in pieces that fit into memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gguf
import numpy as np

from agent_forge.runs.errors import NotFiniteError, SourceError
from agent_forge.weights.folders.gguf_source.header import Header, Tensor, rows
from agent_forge.weights.tensors import elements


@dataclass(frozen=True)
class Metadata:
    """The metadata of one model."""

    header: Header
    #: The architecture's name in llama.cpp.
    architecture: str

    @classmethod
    def of(cls, header: Header) -> Metadata:
        """Return the metadata of a header. Raise SourceError if it names no architecture."""
        name = header.fields.get("general.architecture")
        if not isinstance(name, str):
            raise SourceError(f"{header.file} names no general.architecture: no model can be made.")
        return cls(header, name)

    @property
    def fields(self) -> Mapping[str, Any]:
        """All entries by key."""
        return self.header.fields

    def error(self, what: str) -> SourceError:
        """Return the error for something that the file says or lacks."""
        return SourceError(f"{self.header.file}: {what}")

    def value(self, key: str) -> Any:
        """Return an entry of the architecture; None if there is none."""
        return self.fields.get(f"{self.architecture}.{key}")

    def integer(self, key: str, usual: int | None = None) -> int:
        """Return a whole number of the architecture. Raise SourceError if it is missing or none."""
        value = self.value(key)
        value = usual if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 31:
            raise self._wrong(key, value)
        return value

    def number(self, key: str, usual: float | None = None) -> float:
        """Return a number of the architecture. Raise SourceError if it is missing or not finite."""
        value = self.value(key)
        value = usual if value is None else value
        if not isinstance(value, int | float) or isinstance(value, bool) or not np.isfinite(value):
            raise self._wrong(key, value)
        return shortest(value)

    def layers(self, key: str, count: int) -> list[int]:
        """Return a whole number for each of `count` layers, which the file has once or for each."""
        value = self.value(key)
        if not isinstance(value, np.ndarray):
            return [self.integer(key)] * count
        if len(value) != count or value.dtype.kind not in "iu" or (value < 0).any():
            raise self._wrong(key, value)
        return [int(number) for number in value]

    def text(self, key: str, usual: str = "") -> str:
        """Return a text of the architecture. Raise SourceError for another value."""
        value = self.value(key)
        value = usual if value is None else value
        if not isinstance(value, str):
            raise self._wrong(key, value)
        return value

    def id(self, name: str, count: int) -> int | None:
        """Return the id of a special token, below `count`; None if the file names none."""
        value = self.fields.get(f"tokenizer.ggml.{name}_token_id")
        if value is None or value == 0xFFFFFFFF:  # llama.cpp's number for "none"
            return None
        if not isinstance(value, int) or not 0 <= value < count:
            raise self.error(f"tokenizer.ggml.{name}_token_id is {str(value)[:30]}, not an id.")
        return value

    def flag(self, key: str, usual: bool) -> bool:
        """Return a flag of the tokenizer. Raise SourceError for another value."""
        value = self.fields.get(f"tokenizer.ggml.{key}", usual)
        if not isinstance(value, bool):
            raise self.error(f"tokenizer.ggml.{key} is {str(value)[:30]}, not true or false.")
        return value

    def _wrong(self, key: str, value: Any) -> SourceError:
        name = f"{self.architecture}.{key}"
        if value is None:
            return self.error(f"{name} is missing, and a model cannot be made without it.")
        return self.error(f"{name} is {str(value)[:40]!r}, which it cannot be.")


def shortest(value: float) -> float:
    """Return the number with the fewest digits that is the same in float32, as a config has it."""
    return float(str(np.float32(value)))


#: Numbers that are made at once, unless one row has more.
PIECE = 1 << 22


def read_vector(tensor: Tensor) -> np.ndarray:
    """Return all numbers of a small tensor, flat."""
    return np.concatenate([piece.ravel() for piece in pieces("", tensor)])


def pieces(name: str, tensor: Tensor, most: int = PIECE) -> Iterator[np.ndarray]:
    """Yield the rows of a tensor in order: float32 [rows, width].

    The file is read, not mapped: it may be cut short meanwhile. Raise SourceError for that,
    NotFiniteError for NaN or Inf in the tensor `name`.
    """
    width = tensor.shape[-1]
    block, size = gguf.GGML_QUANT_SIZES[tensor.type]
    row = width // block * size
    count = elements(tensor.shape) // width
    step = max(1, most // width)
    with tensor.file.open("rb") as opened:
        opened.seek(tensor.begin)
        for first in range(0, count, step):
            content = opened.read(min(step, count - first) * row)
            if len(content) != min(step, count - first) * row:
                raise SourceError(f"{tensor.file} became shorter while it was read. Try again.")
            values = rows(content, tensor.type, width)
            if not np.isfinite(values).all():
                raise NotFiniteError(
                    f"tensor {name} of {tensor.file} holds NaN or Inf: no model can be made of it."
                )
            yield values
