"""Headers, metadata and tensors of GGUF files, read in bounded memory, without trust in the file.

The format (github.com/ggml-org/ggml, docs/gguf.md), little-endian: `GGUF`, version, numbers of tensors
and of metadata entries; the entries; name, shape, type and offset of each tensor; the tensors' bytes,
aligned. Every count, length, shape and offset is compared with the file's size before memory is taken
for it. A model in parts (`NAME-00001-of-00003.gguf`) has its metadata in the first part.

`Metadata` has the entries of the file's architecture by their short names, with checked types. Tensors
are read as float32, in pieces that fit into memory.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFValueType as Value

from agent_forge.runs.errors import NotFiniteError, SourceError
from agent_forge.runs.system import process_limits
from agent_forge.weights.tensors import Shape, elements

MAGIC = b"GGUF"
#: Versions of the format that are read; 2 and 3 differ only in the order of bytes.
VERSIONS = (2, 3)
#: Limits of a file: metadata entries, tensors, parts; bytes of a key, of a tensor's name (ggml's limit)
#: and of a string; values of an array; axes of a tensor (ggml's limit); bytes of all metadata.
MOST_ENTRIES, MOST_TENSORS, MOST_PARTS = 10_000, 100_000, 1_000
MOST_KEY, MOST_NAME, MOST_STRING = 1_000, 63, 1 << 20
MOST_VALUES = 4_000_000
MOST_AXES = 4
MOST_BYTES = 256 << 20
#: Value types of one number → its struct format; BOOL is a byte.
SCALARS = {
    Value.UINT8: "B",
    Value.INT8: "b",
    Value.UINT16: "H",
    Value.INT16: "h",
    Value.UINT32: "I",
    Value.INT32: "i",
    Value.FLOAT32: "f",
    Value.BOOL: "?",
    Value.UINT64: "Q",
    Value.INT64: "q",
    Value.FLOAT64: "d",
}
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")


@dataclass(frozen=True)
class Tensor:
    """One tensor: its file, the first byte and the number of bytes."""

    file: Path
    #: As numpy and torch order axes: rows first.
    shape: Shape
    type: Type
    begin: int
    size: int


@dataclass(frozen=True)
class Header:
    """Metadata and tensors of a model's file or files."""

    #: All parts, the first one first.
    files: tuple[Path, ...]
    #: Key → number, text, list of texts or array of numbers.
    fields: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    @property
    def file(self) -> Path:
        """The path of the first part, which messages name."""
        return self.files[0]


def is_gguf(file: Path) -> bool:
    """Return True if a file exists and begins with GGUF's four bytes."""
    try:
        with file.open("rb") as opened:
            return opened.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def stem(file: Path) -> str:
    """Return a model's name by its file: the file's name without ending and number of the part."""
    part = _PART.fullmatch(file.name)
    return part[1] if part else file.name.removesuffix(".gguf")


def part_names(name: str) -> tuple[str, ...]:
    """Return a tuple of the file names of all parts of a model, as of `name`. Raises SourceError."""
    part = _PART.fullmatch(name)
    if part is None:
        return (name,)
    count = int(part[3])
    if not 1 <= int(part[2]) <= count <= MOST_PARTS:
        raise SourceError(f"{name} is named as part {part[2]} of {part[3]}: there is none such.")
    return tuple(f"{part[1]}-{n:05d}-of-{part[3]}.gguf" for n in range(1, count + 1))


def parts(file: Path) -> tuple[Path, ...]:
    """Return a tuple of the paths of all parts of a model, `file` among them. Raises SourceError."""
    files = tuple(file.with_name(name) for name in part_names(file.name))
    missing = [place.name for place in files if not place.is_file()]
    if missing:
        raise SourceError(f"model {file} is in {len(files)} parts; {missing[0]} is not beside it.")
    return files


def read(file: Path) -> Header:
    """Return the Header of a GGUF file with the fields of its first part and the tensors of all.

    Raises SourceError for a violation of the format, UnavailableError for faults of the machine.
    """
    files = parts(file)
    fields: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    for number, part in enumerate(files):
        try:
            with process_limits.reading(part), part.open("rb") as opened:
                its_fields, its_tensors = _HeaderReader(part, opened).read()
        except OSError as error:
            raise SourceError(f"{part} cannot be read: {error.strerror}.") from error
        _check_part(part, its_fields, number, len(files))
        fields = fields or its_fields
        if twice := sorted(tensors.keys() & its_tensors.keys()):
            raise SourceError(f"{part}: tensor {twice[0]!r} is in an earlier part, too.")
        tensors |= its_tensors
    if not tensors:
        raise SourceError(f"{file} holds no tensors.")
    return Header(files, fields, tensors)


def _check_part(file: Path, fields: Mapping[str, object], number: int, count: int) -> None:
    """Raise SourceError unless the file's metadata name it part `number`, from 0, of `count`."""
    its = fields.get("split.no", 0), fields.get("split.count", 0) or 1
    if its != (number, count):
        raise SourceError(
            f"{file} says that it is part {its[0]} of {its[1]}, and its name says part {number} of "
            f"{count}, counted from 0. Give files the names that llama.cpp gave them."
        )


class _HeaderReader:
    """Reader of one file's header; it reads at most the file's size and MOST_BYTES."""

    def __init__(self, file: Path, opened: IO[bytes]) -> None:
        self._file, self._opened = file, opened
        self._size = opened.seek(0, 2)
        opened.seek(0)
        self._at = 0

    def read(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return (key → metadata, name → tensor). Raises SourceError."""
        if self._size < 24 or self._take(4) != MAGIC:
            raise self._error("it is no GGUF file")
        version = self._number("I")
        if version not in VERSIONS:
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
            what = "its bytes are in big-endian order" if swapped else f"its version is {version}"
            raise self._error(f"{what}, and version 2 or 3 in little-endian order is read")
        tensors, entries = self._number("Q"), self._number("Q")
        if tensors > MOST_TENSORS or entries > MOST_ENTRIES:
            raise self._error(f"it announces {tensors:,} tensors and {entries:,} metadata entries")
        fields: dict[str, Any] = {}
        for _ in range(entries):
            key = self._text(MOST_KEY, "a key")
            if key in fields or not key.isprintable():
                raise self._error(f"the key {key[:60]!r} is there twice, or is not printable")
            fields[key] = self._value(key)
        return fields, self._tensors(tensors, fields)

    def _error(self, what: str) -> SourceError:
        return SourceError(
            f"{self._file} cannot be read: {what}. Fetch or write the file again if it should be whole."
        )

    def _take(self, count: int) -> bytes:
        """Return the next `count` bytes. Raises SourceError if the file or the limit ends before."""
        self._at += count
        if self._at > min(self._size, MOST_BYTES):
            at = "the file ends" if self._at > self._size else f"{MOST_BYTES >> 20} MiB are over"
            raise self._error(f"{at} before its header does")
        return self._opened.read(count)

    def _number(self, format_: str) -> int:
        return struct.unpack(f"<{format_}", self._take(struct.calcsize(format_)))[0]

    def _text(self, most: int, what: str) -> str:
        length = self._number("Q")
        if length > most:
            raise self._error(f"{what} has {length:,} bytes, and at most {most:,} are read")
        try:
            return self._take(length).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._error(f"{what} is no UTF-8 text") from error

    def _type(self) -> Value:
        number = self._number("I")
        try:
            return Value(number)
        except ValueError as error:
            raise self._error(f"{number} is no type of a value") from error

    def _value(self, key: str) -> object:
        """Return the metadata's next value: a number, text, array of numbers or list of texts."""
        type_ = self._type()
        if type_ is Value.STRING:
            return self._text(MOST_STRING, f"the value of {key}")
        if type_ is not Value.ARRAY:
            return self._number(SCALARS[type_])
        inner, count = self._type(), self._number("Q")
        if inner is Value.ARRAY or count > MOST_VALUES:
            raise self._error(f"{key} is an array of arrays, or has {count:,} values")
        if inner is Value.STRING:
            if count * 8 > self._size - self._at:
                raise self._error(f"{key} has {count:,} texts, more than the file has room for")
            return [self._text(MOST_STRING, f"a text of {key}") for _ in range(count)]
        width = struct.calcsize(SCALARS[inner])
        return np.frombuffer(self._take(count * width), np.dtype(f"<{SCALARS[inner]}"))

    def _tensors(self, count: int, fields: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return name → tensor of the next `count` entries. Raises SourceError for a wrong place."""
        entries = [self._entry() for _ in range(count)]
        alignment = fields.get("general.alignment", gguf.GGUF_DEFAULT_ALIGNMENT)
        usual = isinstance(alignment, int) and 0 < alignment <= 1 << 20
        if not usual or alignment & (alignment - 1):
            raise self._error(f"its alignment is {str(alignment)[:30]}")
        data = -(-self._at // alignment) * alignment
        tensors: dict[str, Tensor] = {}
        for name, shape, type_, offset in entries:
            block, width = gguf.GGML_QUANT_SIZES[type_]
            size = elements(shape) // block * width
            begin = data + offset
            if begin + size > self._size:
                raise self._error(
                    f"tensor {name} would end at byte {begin + size:,}, and the file has {self._size:,}"
                )
            if name in tensors or offset % alignment:
                raise self._error(f"tensor {name} is there twice, or is not aligned")
            tensors[name] = Tensor(self._file, shape, type_, begin, size)
        self._check_apart(tensors)
        return tensors

    def _check_apart(self, tensors: Mapping[str, Tensor]) -> None:
        """Raise SourceError for tensors that share bytes: a small file could then hold any number."""
        end = 0
        for name, tensor in sorted(tensors.items(), key=lambda pair: pair[1].begin):
            if tensor.begin < end:
                raise self._error(f"tensor {name} begins within another one")
            end = tensor.begin + tensor.size

    def _entry(self) -> tuple[str, Shape, Type, int]:
        """Return (name, shape, type, offset in bytes) of the next tensor. Raises SourceError."""
        name = self._text(MOST_NAME, "a tensor's name")
        if not re.fullmatch(r"[\w.-]+", name, re.ASCII):
            raise self._error(f"a tensor is named {name!r}")
        axes = self._number("I")
        if not 1 <= axes <= MOST_AXES:
            raise self._error(f"tensor {name} has {axes:,} axes")
        shape = tuple(self._number("Q") for _ in range(axes))[::-1]
        number = self._number("I")
        try:
            type_ = Type(number)
        except ValueError as error:
            raise self._error(f"tensor {name} has the unknown type {number}") from error
        if not all(0 < side < 1 << 48 for side in shape) or elements(shape) >= 1 << 62:
            raise self._error(f"tensor {name} has the shape {list(shape)}")
        if shape[-1] % gguf.GGML_QUANT_SIZES[type_][0]:
            raise self._error(f"tensor {name} has rows that {type_.name} cannot cut into blocks")
        if not _readable(type_):
            raise SourceError(f"{self._file}: values of type {type_.name} ({name}) cannot be read.")
        return name, shape, type_, self._number("Q")


@lru_cache(maxsize=64)
def _readable(type_: Type) -> bool:
    """Return True if the package gguf can dequantise a tensor type."""
    if type_ in (Type.F32, Type.F16):
        return True
    try:
        rows(bytes(gguf.GGML_QUANT_SIZES[type_][1]), type_, gguf.GGML_QUANT_SIZES[type_][0])
    except (NotImplementedError, KeyError):
        return False
    return True


def rows(content: bytes, type_: Type, width: int) -> np.ndarray:
    """Return the numbers dequantised from the bytes of whole rows, [rows, width] float32."""
    block, size = gguf.GGML_QUANT_SIZES[type_]
    blocks = np.frombuffer(content, np.uint8).reshape(-1, width // block * size)
    with np.errstate(all="ignore"):  # what is not finite is found in the result
        return gguf.dequantize(blocks, type_)


def types(tensors: Sequence[Tensor]) -> dict[Type, int]:
    """Return type → total bytes of the tensors of that type, the most first."""
    sizes: dict[Type, int] = {}
    for tensor in tensors:
        sizes[tensor.type] = sizes.get(tensor.type, 0) + tensor.size
    return dict(sorted(sizes.items(), key=lambda pair: -pair[1]))


@dataclass(frozen=True)
class Metadata:
    """The metadata of one model."""

    header: Header
    #: The architecture's name in llama.cpp.
    architecture: str

    @classmethod
    def of(cls, header: Header) -> Metadata:
        """Return a header's metadata. Raises SourceError if they name no architecture."""
        name = header.fields.get("general.architecture")
        if not isinstance(name, str):
            raise SourceError(f"{header.file} names no general.architecture: no model can be made.")
        return cls(header, name)

    @property
    def fields(self) -> Mapping[str, Any]:
        """All entries by key."""
        return self.header.fields

    def error(self, what: str) -> SourceError:
        """Return a SourceError whose text is the file's path and `what`."""
        return SourceError(f"{self.header.file}: {what}")

    def value(self, key: str) -> object:
        """Return the entry ARCHITECTURE.KEY; None if there is none."""
        return self.fields.get(f"{self.architecture}.{key}")

    def integer(self, key: str, usual: int | None = None) -> int:
        """Return ARCHITECTURE.KEY, 0 to 2³¹ − 1, or `usual` if missing. Raises SourceError."""
        value = self.value(key)
        value = usual if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 31:
            raise self._wrong(key, value)
        return value

    def number(self, key: str, usual: float | None = None) -> float:
        """Return ARCHITECTURE.KEY, a finite number, or `usual` if missing. Raises SourceError."""
        value = self.value(key)
        value = usual if value is None else value
        if not isinstance(value, int | float) or isinstance(value, bool) or not np.isfinite(value):
            raise self._wrong(key, value)
        return shortest(value)

    def layers(self, key: str, count: int) -> list[int]:
        """Return a list of `count` whole numbers, one a layer; the file has one for all or each."""
        value = self.value(key)
        if not isinstance(value, np.ndarray):
            return [self.integer(key)] * count
        if len(value) != count or value.dtype.kind not in "iu" or (value < 0).any():
            raise self._wrong(key, value)
        return [int(number) for number in value]

    def text(self, key: str, usual: str = "") -> str:
        """Return ARCHITECTURE.KEY, a text, or `usual` if missing. Raises SourceError."""
        value = self.value(key)
        value = usual if value is None else value
        if not isinstance(value, str):
            raise self._wrong(key, value)
        return value

    def id(self, name: str, count: int) -> int | None:
        """Return the id, below `count`, of the special token "bos", "eos", …; None if missing."""
        value = self.fields.get(f"tokenizer.ggml.{name}_token_id")
        if value is None or value == 0xFFFFFFFF:  # llama.cpp's number for "none"
            return None
        if not isinstance(value, int) or not 0 <= value < count:
            raise self.error(f"tokenizer.ggml.{name}_token_id is {str(value)[:30]}, not an id.")
        return value

    def flag(self, key: str, usual: bool) -> bool:
        """Return tokenizer.ggml.KEY, true or false, or `usual` if missing. Raises SourceError."""
        value = self.fields.get(f"tokenizer.ggml.{key}", usual)
        if not isinstance(value, bool):
            raise self.error(f"tokenizer.ggml.{key} is {str(value)[:30]}, not true or false.")
        return value

    def _wrong(self, key: str, value: object) -> SourceError:
        name = f"{self.architecture}.{key}"
        if value is None:
            return self.error(f"{name} is missing, and a model cannot be made without it.")
        return self.error(f"{name} is {str(value)[:40]!r}, which it cannot be.")


def shortest(value: float) -> float:
    """Return the number with the fewest decimals that equals `value` in float32, for a config."""
    return float(str(np.float32(value)))


#: How many numbers are dequantised at once, unless one row has more.
PIECE = 1 << 22


def read_vector(tensor: Tensor) -> np.ndarray:
    """Return all numbers of a small tensor as a float32 vector."""
    return np.concatenate([piece.ravel() for piece in pieces("", tensor)])


def pieces(name: str, tensor: Tensor, most: int = PIECE) -> Iterator[np.ndarray]:
    """Yield the rows of a tensor in order, in pieces [rows, width] float32 of about `most` numbers.

    The file is read, not mapped, because it may become shorter meanwhile. Raises SourceError for that,
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
