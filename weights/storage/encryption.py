"""The format of the bytes that a vault stores: keys, encrypted files, manifests.

Encryption is AES-256-GCM in chunks, so that files of any size stream:

    sealed file  header, then each chunk of plain bytes as ciphertext and tag
    header       magic 8, version 1, key id 32 (ASCII, then zeros), salt 32, nonce prefix 4, check 8
    check        first bytes of SHA-256 over the fields before it: tells damage from an unknown key
    subkey       HKDF-SHA256(master key, salt, info "forge vault 1 file"), 32 bytes
    nonce        nonce prefix, chunk number from 0 as 8 bytes, big endian
    bound data   header, artifact, NUL, file, NUL, chunk number as 8 bytes, 1 for the last chunk or 0

Salt and prefix are random, so no nonce is used twice under a key. Every chunk but the last holds
`CHUNK` bytes; an empty file is one empty chunk. Each tag authenticates the bound data: chunks that
are truncated, reordered or taken from another file or artifact are detected.

The manifest is sealed as a file of its own and lists every file with size and hash. So an artifact
is authenticated as a whole, under its name. The format does not hide artifact names, file names,
sizes and the key's id. It does not detect that a complete older copy of an artifact was put back
under the same name.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import blake3
from pydantic import BaseModel, Field

from runs.errors import ConfigError, TamperedError

VARIABLE = "FORGE_ARTIFACT_KEY"
FILE_VARIABLE = "FORGE_ARTIFACT_KEY_FILE"

#: Plain bytes of a chunk.
CHUNK = 2**20
#: Bytes of a tag; encryption adds one to each chunk.
TAG = 16
MAGIC = b"\x89FORGE\r\n"
VERSION = 1
ID_BYTES, SALT_BYTES, PREFIX_BYTES, CHECK_BYTES = 32, 32, 4, 8
#: Bytes before the first chunk.
HEADER = len(MAGIC) + 1 + ID_BYTES + SALT_BYTES + PREFIX_BYTES + CHECK_BYTES
#: Number of chunks that are read at once.
READ_AHEAD = 4

#: The manifest's own name; no file can have it.
MANIFEST = "/manifest"

#: Patterns of the names of artifacts, files and attempts, and of a digest.
NAME = r"^(model-)?[0-9a-f]{64}$"
DIGEST = r"^[0-9a-f]{64}$"
FILE = r"^[A-Za-z0-9_][A-Za-z0-9._+-]{0,199}$"
ATTEMPT = r"^[0-9a-f]{1,16}-[0-9a-f]{16}$"

_INFO = b"forge vault 1 file"
_ID = re.compile(r"[A-Za-z0-9._-]{1,32}")
_ID_RULE = "1 to 32 letters, digits, dots, underscores or hyphens"
_MAKE_ONE = "Make a key with: openssl rand -base64 32"

#: Reads the stored bytes from one position up to another, which is excluded.
Read = Callable[[int, int], bytes]


@dataclass(frozen=True)
class Keys:
    """Master keys of 32 bytes by id. The first encrypts, all decrypt. Never printed."""

    by_id: Mapping[str, bytes] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.by_id:
            raise ConfigError(f"no key was given. {_MAKE_ONE}")
        for id_, key in self.by_id.items():
            if not _ID.fullmatch(id_):
                raise ConfigError(f"a key's id must be {_ID_RULE}.")
            if len(key) != 32:
                raise ConfigError(f"a key must have 32 bytes, not {len(key)}. {_MAKE_ONE}")

    @property
    def first(self) -> str:
        """The id of the key that encrypts."""
        return next(iter(self.by_id))

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Keys | None:
        """Return the keys of FORGE_ARTIFACT_KEY or FORGE_ARTIFACT_KEY_FILE; None if neither is set.

        The first variable holds one key as base64. The second names a file with a key per line,
        `id base64` or base64 alone; empty lines and lines that start with # are skipped. Raises
        ConfigError.
        """
        # An empty variable counts as not set: a compose file passes on a missing variable as "".
        value, file = environment.get(VARIABLE) or None, environment.get(FILE_VARIABLE) or None
        if value is not None and file is not None:
            raise ConfigError(f"{VARIABLE} and {FILE_VARIABLE} are both set. Unset one of them.")
        if value is not None:
            key = _key(value.strip(), VARIABLE)
            return cls({key_id(key): key})
        return cls(_parsed(_text(file))) if file is not None else None


def key_id(key: bytes) -> str:
    """Return the id of a key that was given none: 16 hex digits that do not reveal the key."""
    return hashlib.sha256(b"forge vault key id\0" + key).hexdigest()[:16]


def _key(text: str, where: str) -> bytes:
    """Return the key of 32 bytes that is in base64 text. Raises ConfigError.

    The error's message never holds the text, which may be a key with a typing error.
    """
    if not text:
        raise ConfigError(f"{where} is empty. Unset it to store unencrypted. {_MAKE_ONE}")
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:
        raise ConfigError(f"{where} is not base64. {_MAKE_ONE}") from None
    if len(key) != 32:
        raise ConfigError(f"{where} holds {len(key)} bytes instead of 32. {_MAKE_ONE}")
    return key


def _text(file: str) -> str:
    """Return the content of the key file. Raises ConfigError.

    The error's message does not name the file: its name may be a key by mistake.
    """
    try:
        with Path(file).open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise ConfigError(
                    f"the file that {FILE_VARIABLE} names has mode {stat.S_IMODE(mode):04o}: others "
                    "may use it. Make it yours alone: chmod 600, and change keys that were read."
                )
            return opened.read(2**20).decode("ascii")
    except UnicodeDecodeError:
        raise ConfigError(
            f"the file that {FILE_VARIABLE} names is not ASCII text. Give one `id base64` a line."
        ) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise ConfigError(
            f"the file that {FILE_VARIABLE} names cannot be read: {why}. "
            "Check its path and its owner."
        ) from None


def _parsed(text: str) -> dict[str, bytes]:
    """Return id → key, in the order of the lines. Raises ConfigError."""
    keys: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        where = f"line {number} of the file that {FILE_VARIABLE} names"
        if len(words) > 2:
            raise ConfigError(f"{where} has {len(words)} words. Write `id base64`, or base64.")
        key = _key(words[-1], where)
        id_ = words[0] if len(words) == 2 else key_id(key)
        if not _ID.fullmatch(id_):
            raise ConfigError(f"{where} has a key id that is not {_ID_RULE}. Give it another.")
        if id_ in keys:
            raise ConfigError(f"{where} has a key id that was there before. Give it another.")
        keys[id_] = key
    if not keys:
        raise ConfigError(f"the file that {FILE_VARIABLE} names holds no key. {_MAKE_ONE}")
    return keys


def check_installed() -> None:
    """Raise ConfigError if the package `cryptography` is missing."""
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "encrypted artifacts need a package that is not installed: pip install cryptography"
        ) from error


def damaged(name: str, file: str, why: str) -> TamperedError:
    """Return the error for a stored file whose bytes are not those that were put."""
    shown = "the manifest" if file == MANIFEST else file
    return TamperedError(
        f"{shown} of artifact {name} {why}. It was cut, changed or swapped where it is stored. "
        "Remove the artifact from the vault, so that it is put again, and find out who can write there."
    )


@dataclass(frozen=True)
class Header:
    """The unencrypted start of a sealed file."""

    key_id: str
    salt: bytes
    prefix: bytes

    @classmethod
    def new(cls, key_id: str) -> Header:
        """Return a header with a random salt and nonce prefix, so that it was never used before."""
        return cls(key_id, secrets.token_bytes(SALT_BYTES), secrets.token_bytes(PREFIX_BYTES))

    def encode(self) -> bytes:
        """Encode the header as `HEADER` bytes."""
        id_ = self.key_id.encode("ascii").ljust(ID_BYTES, b"\0")
        body = MAGIC + bytes([VERSION]) + id_ + self.salt + self.prefix
        return body + hashlib.sha256(body).digest()[:CHECK_BYTES]

    @classmethod
    def decode(cls, data: bytes, name: str, file: str) -> Header:
        """Read a header. Raises TamperedError, and ConfigError for another format version."""
        body, check = data[:-CHECK_BYTES], data[-CHECK_BYTES:]
        if len(data) != HEADER or hashlib.sha256(body).digest()[:CHECK_BYTES] != check:
            raise damaged(name, file, "has a damaged header")
        magic, version, rest = body[: len(MAGIC)], body[len(MAGIC)], body[len(MAGIC) + 1 :]
        id_ = rest[:ID_BYTES].rstrip(b"\0").decode("ascii", "replace")
        if magic != MAGIC or not _ID.fullmatch(id_):
            raise damaged(name, file, "has a damaged header")
        if version != VERSION:
            raise ConfigError(
                f"artifact {name} has format version {version}, and this program reads {VERSION}. "
                "Update the program."
            )
        return cls(id_, rest[ID_BYTES:-PREFIX_BYTES], rest[-PREFIX_BYTES:])


class _Cipher:
    """The cipher of one file: it encrypts and decrypts the file's chunks."""

    def __init__(self, keys: Keys, header: Header, name: str, file: str) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        derive = HKDF(algorithm=SHA256(), length=32, salt=header.salt, info=_INFO).derive
        self._aead = AESGCM(derive(keys.by_id[header.key_id]))
        self._prefix = header.prefix
        self._bound = header.encode() + f"{name}\0{file}\0".encode()

    def encrypt(self, chunk: bytes, number: int, last: bool) -> bytes:
        return self._aead.encrypt(self._nonce(number), chunk, self._place(number, last))

    def decrypt(self, chunk: bytes | memoryview, number: int, last: bool) -> bytes:
        return self._aead.decrypt(self._nonce(number), chunk, self._place(number, last))

    def _nonce(self, number: int) -> bytes:
        return self._prefix + number.to_bytes(8, "big")

    def _place(self, number: int, last: bool) -> bytes:
        return self._bound + number.to_bytes(8, "big") + bytes([last])


def sealed_size(plain: int) -> int:
    """Return the stored bytes of a sealed file with `plain` plain bytes."""
    return HEADER + plain + TAG * max(1, -(-plain // CHUNK))


def is_sealed(data: bytes) -> bool:
    """Return True if stored bytes start as a sealed file does."""
    return data.startswith(MAGIC)


def seal(chunks: Iterable[bytes], keys: Keys | None, name: str, file: str) -> Iterator[bytes]:
    """Yield the bytes to store for a file's plain chunks, all of `CHUNK` bytes except the last.

    `name` is the file's artifact, `file` its name. The sealed bytes can be read as this file only.
    Without keys the chunks are stored as they are.
    """
    if keys is None:
        yield from chunks
        return
    header = Header.new(keys.first)
    cipher = _Cipher(keys, header, name, file)
    yield header.encode()
    number, held = 0, b""
    for chunk in chunks:
        if held:
            assert len(held) == CHUNK
            yield cipher.encrypt(held, number, last=False)
            number += 1
        held = chunk
    yield cipher.encrypt(held, number, last=True)


def unseal(read: Read, size: int, keys: Keys | None, name: str, file: str) -> Iterator[bytes]:
    """Yield the plain chunks of a sealed file of `size` stored bytes, each after its check.

    Raises TamperedError if the bytes are not those that were put under this name, and ConfigError
    if the file's key is not among `keys`.
    """
    header = Header.decode(read(0, HEADER), name, file)
    cipher = _Cipher(_with(keys, header.key_id, name), header, name, file)
    from cryptography.exceptions import InvalidTag

    step = CHUNK + TAG
    number = 0
    for start in range(HEADER, max(size, HEADER + 1), READ_AHEAD * step):
        end = min(start + READ_AHEAD * step, size)
        block = memoryview(read(start, end))
        if len(block) != max(end - start, 0):
            raise damaged(name, file, f"ends after {start + len(block)} of {size} bytes")
        for offset in range(0, max(len(block), 1), step):
            piece = block[offset : offset + step]
            try:
                yield cipher.decrypt(piece, number, start + offset + step >= size)
            except InvalidTag:
                why = f"fails its check in chunk {number}, or key {header.key_id} is another"
                raise damaged(name, file, why) from None
            number += 1


def _with(keys: Keys | None, id_: str, name: str) -> Keys:
    """Return the keys if the one of that id is among them. Raises ConfigError."""
    if keys is None:
        raise ConfigError(
            f"artifact {name} is encrypted under key {id_} and no key was given. "
            f"Set {VARIABLE} or {FILE_VARIABLE}."
        )
    if id_ not in keys.by_id:
        raise ConfigError(
            f"artifact {name} is encrypted under key {id_}, which is not among the keys. "
            f"Add its line to the file that {FILE_VARIABLE} names, below the first."
        )
    return keys


class Entry(BaseModel, frozen=True):
    """A file of an artifact: its plain bytes and their hash."""

    size: int = Field(ge=0)
    blake3: str = Field(pattern=DIGEST)


class Manifest(BaseModel, frozen=True):
    """The files of an artifact and their attempt. A stranger may have written the manifest."""

    name: str = Field(pattern=NAME)
    attempt: str = Field(pattern=ATTEMPT)
    #: Id of the key that the files are encrypted under; None if they are plain.
    key: str | None
    files: dict[Annotated[str, Field(pattern=FILE)], Entry] = Field(min_length=1)

    def encode(self) -> bytes:
        """Encode the manifest as JSON with a format version and a checksum, always the same bytes."""
        body = self.model_dump_json()
        check = blake3.blake3(body.encode()).hexdigest()
        return f'{{"format":1,"blake3":"{check}","manifest":{body}}}'.encode()

    @classmethod
    def decode(cls, data: bytes, name: str) -> Manifest:
        """Read a manifest. Raises TamperedError."""
        try:
            found = cls.model_validate_json(data.partition(b'"manifest":')[2][:-1])
        except ValueError:
            found = None
        if found is None or found.encode() != data or found.name != name:
            raise damaged(name, MANIFEST, "cannot be read in format 1, or is another's")
        return found

    def place(self, file: str) -> str:
        """Return the place of a file in the vault."""
        return f"data/{self.name}/{self.attempt}/{file}"

    def stored(self, file: str) -> int:
        """Return the number of bytes that a file has in the vault."""
        plain = self.files[file].size
        return plain if self.key is None else sealed_size(plain)


class Measured:
    """An iterable that passes chunks on, and counts and hashes their bytes."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self._size = 0
        self._hasher = blake3.blake3()

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self._size += len(chunk)
            self._hasher.update(chunk)
            yield chunk

    def entry(self) -> Entry:
        """Return the size and hash of the chunks that were passed on."""
        return Entry(size=self._size, blake3=self._hasher.hexdigest())


def split(data: bytes) -> Iterator[bytes]:
    """Return an iterator over the bytes in chunks of `CHUNK` bytes."""
    return (data[start : start + CHUNK] for start in range(0, len(data), CHUNK))


def plain_chunks(read: Read, size: int, *_: object) -> Iterator[bytes]:
    """Yield the chunks of a plain stored file, several per read; a replacement for `unseal`."""
    for start in range(0, size, READ_AHEAD * CHUNK):
        yield from split(read(start, min(start + READ_AHEAD * CHUNK, size)))
