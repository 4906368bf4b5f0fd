"""Reader of the headers of safetensors files; it does not map a foreign file into memory.

The format (github.com/huggingface/safetensors, "Format"): 8 bytes, little-endian: N, the size of the
header; N bytes of JSON, `{NAME: {"dtype": …, "shape": […], "data_offsets": [BEGIN, END]}, …}` with an
optional `__metadata__`; then the tensors' bytes, without gaps. The checks are those of the library.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_forge.runs.errors import SourceError
from agent_forge.runs.system import bounded_files, process_limits
from agent_forge.weights.tensors import Shape, elements

#: Bytes of the largest header that is read; the library's bound.
MOST_BYTES = 100_000_000
#: Axes of a tensor.
MOST_AXES = 64
#: Bits of an element, by the names that the format gives to dtypes.
BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "U16": 16,
    "I16": 16,
    "U32": 32,
    "I32": 32,
    "U64": 64,
    "I64": 64,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F8_E8M0": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F16": 16,
    "BF16": 16,
    "F32": 32,
    "F64": 64,
    "C64": 64,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
}


@dataclass(frozen=True)
class HeaderEntry:
    """One tensor of a file: dtype as the format names it, shape, first byte, and the byte after it."""

    dtype: str
    shape: Shape
    begin: int
    end: int


def read(file: Path) -> dict[str, HeaderEntry]:
    """Return tensor name → HeaderEntry: dtype, shape, and bytes counted from the file's first.

    Raises SourceError if the file is not a whole safetensors file, UnavailableError for the
    machine's faults (`process_limits.TRANSIENT`).
    """
    try:
        with process_limits.reading(file), file.open("rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            length = int.from_bytes(opened.read(8), "little")
            if size < 8 or length > min(MOST_BYTES, size - 8):
                raise ValueError(f"a header of {length} bytes in a file of {size}")
            text = opened.read(length)
        return _parsed(text, 8 + length, size)
    except OSError as error:
        raise SourceError(f"{file} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise SourceError(
            f"{file} is not a whole safetensors file ({error}). Download or copy it again."
        ) from error


def _parsed(text: bytes, start: int, size: int) -> dict[str, HeaderEntry]:
    header = bounded_files.parse_json(text)
    if not isinstance(header, dict):
        raise ValueError("its header is not an object")
    metadata = header.pop("__metadata__", None)
    if metadata is not None and not (
        isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values())
    ):
        raise ValueError("its metadata are not texts by name")
    entries = {name: _entry(name, fields, start) for name, fields in header.items()}
    end = start
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != end:
            raise ValueError(f"tensor {name[:80]!r} does not begin where the one before it ends")
        end = entry.end
    if end != size:
        raise ValueError(f"its tensors end at byte {end}, the file at {size}")
    return entries


def _entry(name: str, fields: Any, start: int) -> HeaderEntry:
    try:
        dtype, shape, (begin, end) = fields["dtype"], fields["shape"], fields["data_offsets"]
        counts = [*shape, begin, end]
        if not isinstance(dtype, str) or not isinstance(shape, list):
            raise TypeError("a dtype in text and a shape in numbers")
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"tensor {name[:80]!r} is described without {error}") from error
    if dtype not in BITS:  # further fields are ignored, as the library does
        raise ValueError(f"tensor {name[:80]!r} has the dtype {dtype[:20]!r}")
    if len(shape) > MOST_AXES or any(type(c) is not int or not 0 <= c < 1 << 63 for c in counts):
        raise ValueError(f"tensor {name[:80]!r} has a size or a place that is no whole number")
    if elements(tuple(shape)) * BITS[dtype] != (end - begin) * 8:
        raise ValueError(f"tensor {name[:80]!r} has other bytes than its shape needs")
    return HeaderEntry(dtype, tuple(shape), start + begin, start + end)
