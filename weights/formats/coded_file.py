"""Files of coded weights: a whole model in one file, each tensor by a codec of its own.

Written and read tensor by tensor: memory holds the header, and one tensor coded and decoded. The
header (`coded_header`) has everything that decoding needs, and digests: of each tensor's parts, and of
all decoded weights. The same tensors give the same bytes.
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import blake3
import torch

from events import failpoints
from runs.errors import (
    ConfigError,
    NotFiniteError,
    SourceError,
    TamperedError,
    UnavailableError,
)
from runs.system import bounded_files
from weights import codecs
from weights.codecs import Coded
from weights.folders import companions, model_config
from weights.folders.checkpoint import TORCH, add_to_digest, sync
from weights.formats import coded_header
from weights.formats.coded_header import (
    FIXED,
    FLOATS,
    MOST_PACKED,
    CompanionEntry,
    Header,
    PartEntry,
    TensorEntry,
)
from weights.tensors import Shape

_NAMES = {dtype: name for name, dtype in TORCH.items()}


@dataclass(frozen=True)
class CodedTensor:
    """A tensor of a model as a codec wrote it."""

    name: str
    #: dtype and shape of the decoded tensor; the dtype as safetensors names it.
    dtype: str
    shape: Shape
    #: Name and version.
    codec: str
    coded: Coded


@dataclass(frozen=True)
class Written:
    """A file that was written."""

    #: Bytes of the file; of them companions as packed.
    bytes: int
    companions: int
    #: `checkpoint.digest` of the decoded weights.
    digest: str


def code(
    name: str,
    tensor: torch.Tensor,
    codec: str,
    params: Mapping[str, Any],
    gram: torch.Tensor | None = None,
    seed: int = 0,
    rows: torch.Tensor | None = None,
) -> CodedTensor:
    """Return a model's tensor coded: as a matrix of its last axis by all others; see `codecs.encode`.

    Raises what the codec raises, with the tensor's name, and ConfigError for a tensor that is not of
    floats.
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
    """Return the decoded tensor, in its own dtype and shape. Raises SourceError."""
    matrix = codecs.decode(tensor.codec, tensor.coded)
    result = matrix.reshape(tensor.shape).to(TORCH[tensor.dtype])
    if not torch.isfinite(result).all():
        raise SourceError(f"decoded weights are NaN, or too large for {tensor.dtype}")
    return result


def write(
    file: Path,
    tensors: Iterable[CodedTensor],
    config: Mapping[str, Any],
    files: Mapping[str, bytes] | None = None,
    recipe: Mapping[str, Any] | None = None,
) -> Written:
    """Write a file of coded weights, whole or not at all; one that is there is replaced.

    `tensors` come in order of name and are written one after the other; each is decoded once, for
    the digest. `files`: companions by name (`companions.contents`). Raises ConfigError for tensors
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
        header = Header(
            config=dict(config),
            recipe=None if recipe is None else dict(recipe),
            digest=digest,
            tensors=entries,
            companions=companion_entries,
        )
        with whole.open("wb") as opened, parts.open("rb") as payload:
            opened.write(coded_header.packed(header))
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
    return Written(file.stat().st_size, sum(other.bytes for other in companion_entries), digest)


def entry(tensor: CodedTensor) -> TensorEntry:
    """Return what the header says of a tensor."""
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
        digest=hasher.hexdigest(length=coded_header.DIGEST_BYTES),
    )


def _write_tensors(
    opened: BinaryIO, tensors: Iterable[CodedTensor]
) -> tuple[list[TensorEntry], str]:
    """Write the parts of tensors; return their entries, and the digest of all decoded."""
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
    return CompanionEntry(name=name, bytes=len(held), digest=coded_header.digest(held))


def _raw(part: torch.Tensor) -> memoryview:
    """Return the bytes of a part."""
    whole = part.clone(memory_format=torch.contiguous_format)
    return whole.view(-1).view(torch.uint8).numpy().data


class CodedFile:
    """An opened file of coded weights: the header is checked, parts are read when asked for."""

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
        self.header, place = coded_header.read(file, raw, size)
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
        """Return the byte behind a piece. Raises TamperedError if the file ends before it."""
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
        """Return a tensor as it was coded. Raises TamperedError if its bytes were altered."""
        tensor_entry, place = self.places[name]
        raw = self._read(place, tensor_entry.bytes)
        if coded_header.digest(raw) != tensor_entry.digest:
            raise TamperedError(
                f"{self.file}: tensor {name!r}, bytes {place:,} to {place + tensor_entry.bytes:,}, was altered."
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
        """Return a decoded tensor. Raises SourceError, TamperedError with the place."""
        coded = self.coded(name)
        try:
            return decode(coded)
        except SourceError as error:
            tensor_entry, place = self.places[name]
            raise SourceError(
                f"{self.file}: tensor {name!r}, bytes {place:,} to {place + tensor_entry.bytes:,}, cannot be "
                f"decoded: {error}"
            ) from error

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield name and decoded tensor in order of name, one in memory at a time.

        Raises SourceError, TamperedError; the latter at the end if what was decoded is not what the
        writer decoded.
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
        """Return the model's other files by name. Raises SourceError, TamperedError."""
        files: dict[str, bytes] = {}
        for name, (companion_entry, place) in self._companions.items():
            raw = self._read(place, companion_entry.bytes)
            if coded_header.digest(raw) != companion_entry.digest:
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
        """Return config.json as results have it, without keys that name code."""
        return companions.as_text(companions.cleaned(self.header.config)).encode()
