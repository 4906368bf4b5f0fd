"""Encryption of stored files: libsodium's secretstream, under keys that have ids.

    sealed file    header of 24 bytes, then each chunk as a message of its plain bytes and 17 more
    construction   crypto_secretstream_xchacha20poly1305 (libsodium manual, "Encrypted streams")
    bound data     artifact, NUL, file: given to the library with every message

Every message holds `CHUNK` plain bytes. The last message may hold fewer and has the library's tag
for the end of a stream; an empty file is one empty message. So files of any size stream, and chunks
that are truncated, reordered, repeated or taken from another file or artifact are detected. A sealed
file does not name its key: the manifest does (`weights/storage/manifest.py`).

The format does not hide artifact names, file names, sizes and the key's id. It does not detect that
a complete older copy of an artifact was put back under the same name. Why this library and not
another: docs/decisions/0011-secretstream.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

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

from runs.errors import TamperedError
from weights.storage.encryption_keys import Keys

#: Plain bytes of a chunk.
CHUNK = 2**20
#: Number of chunks that are read at once.
READ_AHEAD = 4

#: Name that an artifact's manifest is sealed as; no file can have it.
MANIFEST = "/manifest"

#: Reads the stored bytes from one position up to another, which is excluded.
Read = Callable[[int, int], bytes]


def damaged(name: str, file: str, why: str) -> TamperedError:
    """Return the error for a stored file whose bytes are not those that were put."""
    shown = "the manifest" if file == MANIFEST else file
    return TamperedError(
        f"{shown} of artifact {name} {why}. It was cut, changed or swapped where it is stored. "
        "Remove the artifact from the store, so that it is put again, and find out who can write there."
    )


def stored_size(plain: int, key_id: str | None) -> int:
    """Return the stored bytes of a file with `plain` plain bytes."""
    return plain if key_id is None else HEADER + plain + TAG * max(1, -(-plain // CHUNK))


def seal(chunks: Iterable[bytes], keys: Keys | None, name: str, file: str) -> Iterator[bytes]:
    """Yield the bytes to store for a file's plain chunks, all of `CHUNK` bytes except the last.

    `name` is the file's artifact, `file` its name. The sealed bytes can be read as this file only.
    They are encrypted under the first key; without keys the chunks are stored as they are.
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

    `key_id` is the id of the file's key, None for a file that is not encrypted: its chunks are not
    checked. A sealed chunk is checked before it is yielded, the end of the file after the last.
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
