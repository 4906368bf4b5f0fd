"""Files of coded weights: a whole model in one file, each tensor encoded by its own codec.

    8 bytes     MAGIC
    4 bytes     version, little-endian
    8 bytes     N, the bytes of the packed header
    32 bytes    BLAKE3 of the packed header
    N bytes     the header: canonical JSON, packed by zlib
    then        the parts of each tensor in the order of the header, then the companions, no gaps

The header has everything that decoding needs, and digests of each tensor's parts and of all decoded
weights. A foreign header is checked. Files are written and read tensor by tensor: memory holds the
header and one tensor, coded and decoded. The same tensors give the same bytes.
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import blake3
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent_forge.events import canonical_json, failpoints
from agent_forge.runs.errors import (
    ConfigError,
    NotFiniteError,
    SourceError,
    TamperedError,
    UnavailableError,
)
from agent_forge.runs.system import bounded_files
from agent_forge.weights import codecs
from agent_forge.weights.codecs import Coded
from agent_forge.weights.folders import companions, model_config
from agent_forge.weights.folders.checkpoint import LONGEST_NAME, TORCH, add_to_digest, sync
from agent_forge.weights.folders.companions import COMPANIONS
from agent_forge.weights.tensors import Shape

MAGIC, VERSION = b"\x89FORGEW\n", 1
#: Bytes before the packed header.
FIXED = len(MAGIC) + 4 + 8 + 32
#: Bytes of the longest header, packed and not. A tensor takes about 500.
MOST_PACKED, MOST_BYTES = 64 << 20, 64 << 20
#: Deepest nesting of lists and objects: a recipe may have many ancestors.
DEEPEST = 900
#: Elements of the largest tensor, and its axes.
MOST_ELEMENTS, MOST_AXES = 1 << 31, 8
#: Most elements for each byte of parts, and how many more a small tensor may have.
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
    header: dict[str, object]
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


class CodedHeader(_Said):
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
    """Return the BLAKE3 digest of a tensor's parts or of a companion, 32 hex digits."""
    return blake3.blake3(raw).hexdigest(length=DIGEST_BYTES)


def packed(header: CodedHeader) -> bytes:
    """Return a file's bytes before the first part. Raises SourceError for a header that is too long."""
    text = canonical_json(header.model_dump(mode="json")).encode()
    if len(text) > MOST_BYTES:
        raise SourceError(
            f"the model's names, config and recipe take {len(text):,} bytes, more than the "
            f"{MOST_BYTES:,} of a header: it cannot be written as a file of coded weights."
        )
    compressed_text = zlib.compress(text, 9)
    sizes = VERSION.to_bytes(4, "little") + len(compressed_text).to_bytes(8, "little")
    return MAGIC + sizes + blake3.blake3(compressed_text).digest() + compressed_text


def read(file: Path, raw: bytes, size: int) -> tuple[CodedHeader, int]:
    """Return (header, first byte of the parts) of a file that begins with `raw` and has `size` bytes.

    `raw` has at least the whole header. Raises SourceError for another format or version, or a header
    that no writer makes; TamperedError for a truncated or altered one.
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


def _parsed(file: Path, compressed_text: bytes) -> CodedHeader:
    try:
        inflater = zlib.decompressobj()
        text = inflater.decompress(compressed_text, MOST_BYTES)
        if inflater.unconsumed_tail or inflater.unused_data or not inflater.eof:
            raise ValueError(f"it has more than {MOST_BYTES:,} bytes, or ends elsewhere than it says")
        return CodedHeader.model_validate(bounded_files.parse_json(text, DEEPEST))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise SourceError(f"{file}: the header's {where}: {first['msg']}.") from error
    except (zlib.error, ValueError, RecursionError) as error:
        raise SourceError(f"{file}: the header cannot be read: {error}.") from error


def _check(file: Path, header: CodedHeader) -> None:
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


_NAMES = {dtype: name for name, dtype in TORCH.items()}


@dataclass(frozen=True)
class CodedTensor:
    """A tensor of a model in the coded form of a codec."""

    name: str
    #: dtype and shape of the decoded tensor; the dtype as safetensors names it.
    dtype: str
    shape: Shape
    #: Name and version.
    codec: str
    coded: Coded


@dataclass(frozen=True)
class WrittenCoded:
    """Result of `write`: sizes of the file, and the digest of its weights."""

    #: Bytes of the file, and of the packed companions in it.
    bytes: int
    companions: int
    #: `checkpoint.digest` of the decoded weights.
    digest: str


def code(
    name: str,
    tensor: torch.Tensor,
    codec: str,
    params: Mapping[str, object],
    gram: torch.Tensor | None = None,
    seed: int = 0,
    rows: torch.Tensor | None = None,
) -> CodedTensor:
    """Return a model's tensor as a CodedTensor, coded as a matrix with its last axis as columns.

    The other arguments are those of `codecs.encode`. Raises the codec's errors, with the tensor's name,
    and ConfigError for a tensor that is not of floats.
    """
    if (dtype := _NAMES.get(tensor.dtype, str(tensor.dtype))) not in FLOATS or not tensor.numel():
        raise ConfigError(f"tensor {name} is {dtype} {list(tensor.shape)}: floats can be coded.")
    shape = tuple(tensor.shape) or (1,)
    matrix = tensor.float().reshape(-1, shape[-1]).contiguous()
    try:
        coded = codecs.encode(codec, matrix, params, gram, seed, rows)
        return CodedTensor(name, dtype, shape, codec, coded)
    except (ConfigError, NotFiniteError) as error:
        raise type(error)(f"tensor {name}: {error}") from error


def decode(tensor: CodedTensor) -> torch.Tensor:
    """Return the decoded tensor, in its original dtype and shape. Raises SourceError."""
    matrix = codecs.decode(tensor.codec, tensor.coded)
    result = matrix.reshape(tensor.shape).to(TORCH[tensor.dtype])
    if not torch.isfinite(result).all():
        raise SourceError(f"decoded weights are NaN, or too large for {tensor.dtype}")
    return result


def write(
    file: Path,
    tensors: Iterable[CodedTensor],
    config: Mapping[str, object],
    files: Mapping[str, bytes] | None = None,
    recipe: Mapping[str, object] | None = None,
) -> WrittenCoded:
    """Write, or replace, a file of coded weights, whole or not at all; return its sizes and digest.

    `tensors` come in order of name and are written one after the other; each is decoded once, for
    the digest. `files` are companions by name (`companions.contents`). Raises ConfigError for tensors
    out of order, SourceError for one that cannot be decoded, UnavailableError if the disk is full.
    """
    parts = file.with_name(f".{file.name}.{os.getpid()}.parts")
    whole = file.with_name(f".{file.name}.{os.getpid()}.whole")
    try:
        with parts.open("wb") as opened:
            entries, digest = _write_tensors(opened, tensors)
            companion_entries = [
                _write_companion(opened, n, raw) for n, raw in sorted((files or {}).items())
            ]
        header = CodedHeader(
            config=dict(config),
            recipe=None if recipe is None else dict(recipe),
            digest=digest,
            tensors=entries,
            companions=companion_entries,
        )
        with whole.open("wb") as opened, parts.open("rb") as payload:
            opened.write(packed(header))
            shutil.copyfileobj(payload, opened, 1 << 20)
        sync(whole)
        failpoints.hit("coded-file-synced")
        os.replace(whole, file)
        sync(file.parent)
    except OSError as error:
        raise UnavailableError(
            f"{file} cannot be written: {error.strerror}. What was there stays."
        ) from error
    finally:
        parts.unlink(missing_ok=True)
        whole.unlink(missing_ok=True)
    return WrittenCoded(file.stat().st_size, sum(other.bytes for other in companion_entries), digest)


def entry(tensor: CodedTensor) -> TensorEntry:
    """Return a tensor's TensorEntry for the header, with the digest of its parts."""
    coded = tensor.coded
    parts = [
        PartEntry(name=name, dtype=_NAMES[part.dtype], shape=list(part.shape))
        for name, part in sorted(coded.parts.items())
    ]
    hasher = blake3.blake3()
    for part in parts:
        hasher.update(_raw(coded.parts[part.name]))
    return TensorEntry(
        name=tensor.name,
        dtype=tensor.dtype,
        shape=list(tensor.shape),
        codec=tensor.codec,
        header=coded.header,
        parts=parts,
        digest=hasher.hexdigest(length=DIGEST_BYTES),
    )


def _write_tensors(opened: BinaryIO, tensors: Iterable[CodedTensor]) -> tuple[list[TensorEntry], str]:
    """Write the parts of tensors; return (their entries, digest of all decoded tensors)."""
    entries: list[TensorEntry] = []
    hasher = blake3.blake3()
    for tensor in tensors:
        if entries and tensor.name <= entries[-1].name:
            raise ConfigError(f"tensor {tensor.name} comes behind {entries[-1].name}")
        try:
            add_to_digest(hasher, tensor.name, decode(tensor))
        except SourceError as error:
            raise SourceError(f"tensor {tensor.name} cannot be decoded: {error}") from error
        entries.append(entry(tensor))
        for part in entries[-1].parts:
            opened.write(_raw(tensor.coded.parts[part.name]))
        failpoints.hit("coded-tensor-written")
    if not entries:
        raise ConfigError("a model without tensors is not written")
    return entries, hasher.hexdigest()


def _write_companion(opened: BinaryIO, name: str, raw: bytes) -> CompanionEntry:
    held = zlib.compress(raw, 9)
    opened.write(held)
    return CompanionEntry(name=name, bytes=len(held), digest=digest(held))


def _raw(part: torch.Tensor) -> memoryview:
    """Return the bytes of a contiguous copy of a part."""
    whole = part.clone(memory_format=torch.contiguous_format)
    return whole.view(-1).view(torch.uint8).numpy().data


class CodedFile:
    """An opened file of coded weights: its header is checked; parts are read on use."""

    def __init__(self, file: Path) -> None:
        """Read the header. Raises SourceError, TamperedError, UnavailableError."""
        self.file = file
        try:
            size = file.stat().st_size
            with file.open("rb") as opened:
                raw = opened.read(FIXED)
                length = int.from_bytes(raw[12:20], "little") if len(raw) == FIXED else 0
                raw += opened.read(min(length, MOST_PACKED))
        except OSError as error:
            raise SourceError(f"{file} cannot be read: {error.strerror}.") from error
        self.header, place = read(file, raw, size)
        #: Tensor → its entry and the place of its first byte.
        self.places: dict[str, tuple[TensorEntry, int]] = {}
        for tensor_entry in self.header.tensors:
            self.places[tensor_entry.name] = (tensor_entry, place)
            place = self._behind(f"tensor {tensor_entry.name!r}", place, tensor_entry.bytes, size)
        self._companions: dict[str, tuple[CompanionEntry, int]] = {}
        for other in self.header.companions:
            self._companions[other.name] = (other, place)
            place = self._behind(f"companion {other.name}", place, other.bytes, size)
        if place != size:
            raise TamperedError(f"{file}: {size - place:,} bytes behind its end, byte {place:,}.")
        model_config.check(file, self.header.config, {n: s for n, (_, s) in self.shapes.items()})

    def _behind(self, what: str, place: int, bytes_: int, size: int) -> int:
        """Return the offset after a piece of `bytes_` bytes. Raises TamperedError if it is cut."""
        if place + bytes_ > size:
            raise TamperedError(
                f"{self.file} is cut at byte {size:,}, within {what}: bytes {place:,} to "
                f"{place + bytes_:,}."
            )
        return place + bytes_

    @property
    def shapes(self) -> dict[str, tuple[str, Shape]]:
        """Tensor name → (dtype as safetensors names it, shape), as `Checkpoint.shapes`."""
        return {t.name: (t.dtype, tuple(t.shape)) for t in self.header.tensors}

    def _read(self, place: int, bytes_: int) -> bytearray:
        raw = bytearray(bytes_)
        with self.file.open("rb") as opened:
            opened.seek(place)
            if opened.readinto(raw) != bytes_:
                raise TamperedError(f"{self.file} was cut while it was read, at byte {place:,}.")
        return raw

    def coded(self, name: str) -> CodedTensor:
        """Return the CodedTensor `name`. Raises TamperedError if its bytes were altered."""
        tensor_entry, place = self.places[name]
        raw = self._read(place, tensor_entry.bytes)
        if digest(raw) != tensor_entry.digest:
            raise TamperedError(
                f"{self.file}: tensor {name!r}, bytes {place:,} to "
                f"{place + tensor_entry.bytes:,}, was altered."
            )
        parts, at = {}, 0
        for part in tensor_entry.parts:
            dtype = TORCH[part.dtype]
            held = torch.frombuffer(raw[at : at + part.bytes] or bytearray(8), dtype=dtype)
            parts[part.name] = held[: part.bytes // dtype.itemsize].reshape(part.shape)
            at += part.bytes
        coded = Coded(tensor_entry.matrix, tensor_entry.header, parts)
        return CodedTensor(
            name, tensor_entry.dtype, tuple(tensor_entry.shape), tensor_entry.codec, coded
        )

    def tensor(self, name: str) -> torch.Tensor:
        """Return a decoded tensor, in its dtype and shape. Raises SourceError, TamperedError."""
        coded = self.coded(name)
        try:
            return decode(coded)
        except SourceError as error:
            tensor_entry, place = self.places[name]
            raise SourceError(
                f"{self.file}: tensor {name!r}, bytes {place:,} to "
                f"{place + tensor_entry.bytes:,}, cannot be "
                f"decoded: {error}"
            ) from error

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield (name, decoded tensor) in order of name, one in memory at a time.

        Raises SourceError, TamperedError; at the end, TamperedError if the decoded tensors do not have
        the writer's digest.
        """
        hasher = blake3.blake3()
        for name in self.places:
            tensor = self.tensor(name)
            add_to_digest(hasher, name, tensor)
            yield name, tensor
        if hasher.hexdigest() != self.header.digest:
            raise TamperedError(
                f"{self.file}: the decoded weights have the digest {hasher.hexdigest()[:16]}…, not "
                f"{self.header.digest[:16]}… as the header says: the header was forged."
            )

    def companions(self) -> dict[str, bytes]:
        """Return name → content of the model's other files. Raises SourceError, TamperedError."""
        files: dict[str, bytes] = {}
        for name, (companion_entry, place) in self._companions.items():
            raw = self._read(place, companion_entry.bytes)
            if digest(raw) != companion_entry.digest:
                raise TamperedError(f"{self.file}: {name}, from byte {place:,} on, was altered.")
            inflater = zlib.decompressobj()
            try:
                files[name] = inflater.decompress(raw, bounded_files.MOST_BYTES)
            except zlib.error as error:
                raise SourceError(f"{self.file}: {name} cannot be unpacked: {error}.") from error
            if inflater.unconsumed_tail or not inflater.eof:
                raise SourceError(f"{self.file}: {name} is cut, or too large.")
        return files

    def config_text(self) -> bytes:
        """Return the bytes of config.json for results, without keys that name foreign code."""
        return companions.as_text(companions.cleaned(self.header.config)).encode()
