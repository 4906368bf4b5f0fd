"""Header of a file of coded weights: what it says, its bytes, and the checks of a foreign one.

8 bytes     MAGIC
4 bytes     version, little-endian
8 bytes     N, the bytes of the packed header
32 bytes    BLAKE3 of the packed header
N bytes     the header: canonical JSON, packed by zlib
then        the parts of each tensor in the order of the header, then the companions, no gaps
"""

from __future__ import annotations

import zlib
from math import prod
from pathlib import Path
from typing import Any

import blake3
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from events import canonical_json
from runs.errors import SourceError, TamperedError
from runs.system import bounded_files
from weights.folders.checkpoint import LONGEST_NAME, TORCH
from weights.folders.companions import COMPANIONS

MAGIC, VERSION = b"\x89FORGEW\n", 1
#: Bytes before the packed header.
FIXED = len(MAGIC) + 4 + 8 + 32
#: Bytes of the longest header, packed and not. A tensor takes about 500.
MOST_PACKED, MOST_BYTES = 64 << 20, 64 << 20
#: Levels of lists and objects in one another: a recipe may have many ancestors.
DEEPEST = 900
#: Elements of the largest tensor, and its axes.
MOST_ELEMENTS, MOST_AXES = 1 << 31, 8
#: Elements that a byte of parts stands for at most, and how many more a small tensor may have.
MOST_A_BYTE, SPARE = 8192, 1 << 16
#: dtypes that decoded tensors may have, as safetensors names them.
FLOATS = ("F32", "F16", "BF16")
#: Bytes of the digest of a tensor's parts, and of a companion.
DIGEST_BYTES = 16


class _Said(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class PartEntry(_Said):
    """A part of a coded tensor: a contiguous array."""

    name: str = Field(max_length=100)
    #: As safetensors names it.
    dtype: str
    shape: list[int] = Field(max_length=MOST_AXES)

    @property
    def bytes(self) -> int:
        """Bytes of the part."""
        return prod(self.shape) * TORCH[self.dtype].itemsize


class TensorEntry(_Said):
    """A tensor: what it is once decoded, and how it was coded."""

    name: str = Field(min_length=1, max_length=LONGEST_NAME)
    dtype: str
    shape: list[int] = Field(min_length=1, max_length=MOST_AXES)
    #: Name and version.
    codec: str = Field(max_length=100)
    header: dict[str, Any]
    parts: list[PartEntry] = Field(max_length=100)
    #: BLAKE3 of the parts' bytes, DIGEST_BYTES in hex.
    digest: str = Field(pattern=r"^[0-9a-f]{32}$")

    @property
    def bytes(self) -> int:
        """Bytes of all parts."""
        return sum(part.bytes for part in self.parts)

    @property
    def matrix(self) -> tuple[int, int]:
        """Rows and columns that the codec sees: all axes but the last, and the last."""
        return prod(self.shape[:-1]), self.shape[-1]


class CompanionEntry(_Said):
    """A file that belongs to the model, packed by zlib."""

    name: str
    #: As packed.
    bytes: int = Field(ge=0)
    digest: str = Field(pattern=r"^[0-9a-f]{32}$")


class Header(_Said):
    """All that a file says of itself."""

    #: The content of config.json.
    config: dict[str, Any]
    #: How the model was made; null if that is not known.
    recipe: dict[str, Any] | None
    #: `checkpoint.digest` of the decoded tensors.
    digest: str = Field(pattern=r"^[0-9a-f]{64}$")
    #: In order of name.
    tensors: list[TensorEntry] = Field(min_length=1)
    companions: list[CompanionEntry]


def digest(raw: bytes | bytearray | memoryview) -> str:
    """Return the digest of a tensor's parts or of a companion, in hex."""
    return blake3.blake3(raw).hexdigest(length=DIGEST_BYTES)


def packed(header: Header) -> bytes:
    """Return everything before the first part. Raise SourceError for a header that is too long."""
    text = canonical_json(header.model_dump(mode="json")).encode()
    if len(text) > MOST_BYTES:
        raise SourceError(
            f"the model's names, config and recipe take {len(text):,} bytes, more than the "
            f"{MOST_BYTES:,} of a header: it cannot be written as a file of coded weights."
        )
    compressed_text = zlib.compress(text, 9)
    sizes = VERSION.to_bytes(4, "little") + len(compressed_text).to_bytes(8, "little")
    return MAGIC + sizes + blake3.blake3(compressed_text).digest() + compressed_text


def read(file: Path, raw: bytes, size: int) -> tuple[Header, int]:
    """Return the header of a file that begins with `raw` and has `size` bytes; and where parts begin.

    `raw` is at least the first FIXED + MOST_PACKED bytes, or all. Raises SourceError for another
    format, version, or a header that no writer makes; TamperedError for a cut or altered one.
    """
    if not raw.startswith(MAGIC):
        if raw and MAGIC.startswith(raw):
            raise TamperedError(f"{file} is cut within its first {FIXED} bytes: it has {size}.")
        raise SourceError(f"{file} is no file of coded weights: its first bytes are others.")
    version = int.from_bytes(raw[8:12], "little")
    if len(raw) >= 12 and version != VERSION:
        raise SourceError(
            f"{file} has version {version} of the format; this program reads version {VERSION}."
        )
    if len(raw) < FIXED:
        raise TamperedError(f"{file} is cut within its first {FIXED} bytes: it has {size}.")
    length = int.from_bytes(raw[12:20], "little")
    if length > MOST_PACKED:
        raise SourceError(f"{file}: a header of {length:,} bytes, more than {MOST_PACKED:,}.")
    compressed_text = raw[FIXED : FIXED + length]
    if len(compressed_text) < length:
        raise TamperedError(
            f"{file} is cut within its header: bytes {FIXED} to {FIXED + length}, and it has {size}."
        )
    if blake3.blake3(compressed_text).digest() != raw[20:FIXED]:
        raise TamperedError(f"{file}: the header, bytes 20 to {FIXED + length}, was altered.")
    header = _parsed(file, compressed_text)
    _check(file, header)
    return header, FIXED + length


def _parsed(file: Path, compressed_text: bytes) -> Header:
    try:
        inflater = zlib.decompressobj()
        text = inflater.decompress(compressed_text, MOST_BYTES)
        if inflater.unconsumed_tail or inflater.unused_data or not inflater.eof:
            raise ValueError(
                f"it has more than {MOST_BYTES:,} bytes, or ends elsewhere than it says"
            )
        return Header.model_validate(bounded_files.parse_json(text, DEEPEST))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise SourceError(f"{file}: the header's {where}: {first['msg']}.") from error
    except (zlib.error, ValueError, RecursionError) as error:
        raise SourceError(f"{file}: the header cannot be read: {error}.") from error


def _check(file: Path, header: Header) -> None:
    """Raise SourceError for tensors and companions that no writer makes."""
    names = [entry.name for entry in header.tensors]
    if names != sorted(set(names)):
        raise SourceError(f"{file}: the tensors are not in the order of their names, each once.")
    for entry in header.tensors:
        place = f"{file}: tensor {entry.name[:80]!r}"
        if not entry.name.isprintable() or entry.dtype not in FLOATS:
            raise SourceError(f"{place} has the dtype {entry.dtype[:20]!r}, or no such name.")
        if any(n < 1 for n in entry.shape) or prod(entry.shape) > MOST_ELEMENTS:
            raise SourceError(f"{place} has the shape {entry.shape}, which is not read.")
        for part in entry.parts:
            if part.dtype not in TORCH or any(n < 0 for n in part.shape):
                raise SourceError(f"{place}: part {part.name!r} has no such dtype or shape.")
        if prod(entry.shape) > MOST_A_BYTE * entry.bytes + SPARE:
            raise SourceError(f"{place} has the shape {entry.shape}, and only {entry.bytes} bytes.")
        if len({part.name for part in entry.parts}) != len(entry.parts):
            raise SourceError(f"{place} has a part twice.")
    files = [entry.name for entry in header.companions]
    if files != sorted(set(files)) or not set(files) <= set(COMPANIONS):
        raise SourceError(f"{file}: the companions are {str(files)[:200]}, not files of a model.")
