"""Encryption of stored files: libsodium's secretstream, under keys that have ids.

    sealed file    header of 24 bytes, then each chunk as a message of its plain bytes and 17 more
    construction   crypto_secretstream_xchacha20poly1305 (libsodium manual, "Encrypted streams")
    bound data     artifact, NUL, file: authenticated with every message

Every message holds `CHUNK` plain bytes. The last message may hold fewer and has the library's tag
for the end of a stream; an empty file is one empty message. So files of any size stream, and chunks
that are truncated, reordered, repeated or taken from another file or artifact are detected. A sealed
file does not name its key: the manifest does (`weights/storage/artifact_store.py`). Keys come from a
variable or a file, are checked, and are never printed.

The format does not hide artifact names, file names, sizes and the key's id. It does not detect that
a complete older copy of an artifact was put back under the same name. Why this library and not
another: docs/decisions/0011-secretstream.md.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nacl.bindings import crypto_secretstream_xchacha20poly1305_ABYTES as TAG
from nacl.bindings import crypto_secretstream_xchacha20poly1305_HEADERBYTES as HEADER
from nacl.bindings import crypto_secretstream_xchacha20poly1305_init_pull as init_pull
from nacl.bindings import crypto_secretstream_xchacha20poly1305_init_push as init_push
from nacl.bindings import crypto_secretstream_xchacha20poly1305_pull as pull
from nacl.bindings import crypto_secretstream_xchacha20poly1305_push as push
from nacl.bindings import crypto_secretstream_xchacha20poly1305_state as State
from nacl.bindings import crypto_secretstream_xchacha20poly1305_TAG_FINAL as FINAL
from nacl.bindings import crypto_secretstream_xchacha20poly1305_TAG_MESSAGE as MESSAGE
from nacl.exceptions import CryptoError

from agent_forge.runs.errors import ConfigError, TamperedError

#: Plain bytes of a chunk.
CHUNK = 2**20
#: Number of chunks that are read at once.
READ_AHEAD = 4

#: File name under which an artifact's manifest is sealed; no file can have it.
MANIFEST = "/manifest"

#: Reads the stored bytes from one position up to another, which is excluded.
Read = Callable[[int, int], bytes]


def damaged(name: str, file: str, why: str) -> TamperedError:
    """Return a TamperedError for a stored file whose bytes are not those that were put."""
    shown = "the manifest" if file == MANIFEST else file
    return TamperedError(
        f"{shown} of artifact {name} {why}. It was cut, changed or swapped where it is stored. "
        "Remove the artifact from the store, so that it is put again, and find out who can write there."
    )


def stored_size(plain: int, key_id: str | None) -> int:
    """Return how many bytes a file of `plain` bytes has in the store; `key_id` None: unencrypted."""
    return plain if key_id is None else HEADER + plain + TAG * max(1, -(-plain // CHUNK))


def seal(chunks: Iterable[bytes], keys: Keys | None, name: str, file: str) -> Iterator[bytes]:
    """Yield the bytes to store for a file's plain chunks, all of `CHUNK` bytes except the last.

    `name` is the file's artifact, `file` its name; the sealed bytes can be read only under both. They
    are encrypted under the first key; without keys the chunks are stored as they are.
    """
    if keys is None:
        yield from chunks
        return
    state, bound = State(), _bound(name, file)
    yield init_push(state, keys.by_id[keys.first])
    held = b""
    for chunk in chunks:
        if held:
            assert len(held) == CHUNK
            yield push(state, held, bound, MESSAGE)
        held = chunk
    yield push(state, held, bound, FINAL)


def unseal(
    read: Read, size: int, keys: Keys | None, key_id: str | None, name: str, file: str
) -> Iterator[bytes]:
    """Yield the plain chunks of a stored file of `size` stored bytes.

    `key_id` is the id of the file's key; None: the file is not encrypted, and its chunks are not
    checked. A sealed chunk is checked before it is yielded, the end of the file after the last chunk.
    Raises TamperedError if the bytes are not those that were put under this name, and ConfigError
    if the file's key is not among `keys`.
    """
    if key_id is None:
        yield from _pieces(read, 0, size, CHUNK)
        return
    key, bound = Keys.find(keys, key_id, name), _bound(name, file)
    state, tag = State(), MESSAGE
    header = read(0, min(size, HEADER))
    if len(header) != HEADER:
        raise damaged(name, file, "ends within its header")
    init_pull(state, header, key)
    for number, piece in enumerate(_pieces(read, HEADER, size, CHUNK + TAG)):
        if tag == FINAL:
            raise damaged(name, file, f"goes on after its last chunk, {number - 1}")
        try:
            chunk, tag = pull(state, piece, bound)
        except CryptoError:
            why = f"fails its check in chunk {number}, or key {key_id} is another"
            raise damaged(name, file, why) from None
        yield chunk
    if tag != FINAL:
        raise damaged(name, file, "ends before its last chunk")


def _bound(name: str, file: str) -> bytes:
    return f"{name}\0{file}".encode()


def _pieces(read: Read, start: int, size: int, step: int) -> Iterator[bytes]:
    """Yield the stored bytes from `start` to `size` in pieces of `step` bytes, several per read."""
    for begin in range(start, size, READ_AHEAD * step):
        block = read(begin, min(begin + READ_AHEAD * step, size))
        yield from (block[offset : offset + step] for offset in range(0, len(block), step))


VARIABLE = "FORGE_ARTIFACT_KEY"
FILE_VARIABLE = "FORGE_ARTIFACT_KEY_FILE"

#: Pattern of the id of a key.
KEY_ID = r"[A-Za-z0-9._-]{1,32}"

_ID_RULE = "1 to 32 letters, digits, dots, underscores or hyphens"
_MAKE_ONE = "Make a key with: openssl rand -base64 32"


@dataclass(frozen=True)
class Keys:
    """Master keys of 32 bytes by id. The first encrypts, all decrypt. Never printed."""

    by_id: Mapping[str, bytes] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.by_id:
            raise ConfigError(f"no key was given. {_MAKE_ONE}")
        for id_, key in self.by_id.items():
            if not re.fullmatch(KEY_ID, id_):
                raise ConfigError(f"a key's id must be {_ID_RULE}.")
            if len(key) != 32:
                raise ConfigError(f"a key must have 32 bytes, not {len(key)}. {_MAKE_ONE}")

    @property
    def first(self) -> str:
        """The id of the key that encrypts."""
        return next(iter(self.by_id))

    @staticmethod
    def find(keys: Keys | None, id_: str, name: str) -> bytes:
        """Return the key, 32 bytes, with this id, which artifact `name` needs. Raises ConfigError."""
        lacking = f"artifact {name} is encrypted under key {id_}"
        if keys is None:
            raise ConfigError(f"{lacking} and no key was given. Set {VARIABLE} or {FILE_VARIABLE}.")
        if id_ not in keys.by_id:
            raise ConfigError(
                f"{lacking}, which is not among the keys. "
                f"Add its line to the file that {FILE_VARIABLE} names, below the first."
            )
        return keys.by_id[id_]

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Keys | None:
        """Return the Keys of FORGE_ARTIFACT_KEY or FORGE_ARTIFACT_KEY_FILE; None if neither is set.

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
    """Return the id of a key without a given id: 16 hex digits that do not reveal the key."""
    return hashlib.sha256(b"forge vault key id\0" + key).hexdigest()[:16]


def _key(text: str, where: str) -> bytes:
    """Return the 32 bytes of a key in base64. Raises ConfigError.

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
            f"the file that {FILE_VARIABLE} names cannot be read: {why}. Check its path and its owner."
        ) from None


def _parsed(text: str) -> dict[str, bytes]:
    """Return id → key, 32 bytes, in the order of the file's lines. Raises ConfigError."""
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
        if not re.fullmatch(KEY_ID, id_):
            raise ConfigError(f"{where} has a key id that is not {_ID_RULE}. Give it another.")
        if id_ in keys:
            raise ConfigError(f"{where} has a key id that was there before. Give it another.")
        keys[id_] = key
    if not keys:
        raise ConfigError(f"the file that {FILE_VARIABLE} names holds no key. {_MAKE_ONE}")
    return keys
