"""Manifest of an artifact: its files with sizes and hashes; one stored file, sealed if keys are set.

    first line    BLAKE3 of all bytes after this line, in hex: tells accidental damage from the rest
    second line   "forge manifest", the format's number, and "plain" or "key" and the key's id
    the rest      the manifest as JSON, sealed as the artifact's file "/manifest" if there is a key

A manifest that opens under its key vouches for the artifact's name and for the plain bytes of every
file, so an artifact is authenticated as a whole. The second line is read before the key is known;
an attacker who changes it only leads the reader to a key that does not open the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated

import blake3
from pydantic import BaseModel, Field

from runs.errors import ConfigError
from weights.storage.encryption import CHUNK, MANIFEST, damaged, seal, stored_size, unseal
from weights.storage.encryption_keys import KEY_ID, Keys

FORMAT = 2

#: Patterns of the names of artifacts, files and attempts, and of a digest.
NAME = r"^((model|snapshot)-)?[0-9a-f]{64}$"
DIGEST = r"^[0-9a-f]{64}$"
FILE = r"^[A-Za-z0-9_][A-Za-z0-9._+-]{0,199}$"
ATTEMPT = r"^[0-9a-f]{1,16}-[0-9a-f]{16}$"

_SECOND_LINE = re.compile(rf"forge manifest ([1-9][0-9]{{0,8}}) (?:plain|key ({KEY_ID}))")
#: First bytes of manifests of format 1, encrypted and plain, which no release has written.
_FORMAT_1 = (b"\x89FORGE\r\n", b'{"format":1,')


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

    def encode(self, keys: Keys | None) -> bytes:
        """Encode the manifest as stored bytes, sealed under the first key if there is one."""
        body = b"".join(seal(split(self.model_dump_json().encode()), keys, self.name, MANIFEST))
        key = "plain" if self.key is None else f"key {self.key}"
        rest = f"forge manifest {FORMAT} {key}\n".encode() + body
        return blake3.blake3(rest).hexdigest().encode() + b"\n" + rest

    @classmethod
    def decode(cls, data: bytes, keys: Keys | None, name: str) -> Manifest:
        """Read the stored bytes of the manifest of artifact `name`.

        Raises TamperedError if they are not those that were put, and ConfigError if the key is not
        among `keys` or another version of the program wrote them.
        """
        if data.startswith(_FORMAT_1):
            raise ConfigError(
                f"artifact {name} was stored in format 1, by a development version before 0.2, and "
                f"this program reads format {FORMAT}. Remove it with `forge artifacts remove`, or "
                "use an empty store: workers put again what they have."
            )
        check, _, rest = data.partition(b"\n")
        line, _, body = rest.partition(b"\n")
        match = _SECOND_LINE.fullmatch(line.decode("ascii", "replace"))
        if blake3.blake3(rest).hexdigest().encode() != check or match is None:
            raise damaged(name, MANIFEST, "has other bytes than were put")
        if int(match[1]) != FORMAT:
            raise ConfigError(
                f"artifact {name} is stored in format {match[1]}, and this program reads {FORMAT}. "
                "Update the program."
            )
        plain = unseal(lambda a, b: body[a:b], len(body), keys, match[2], name, MANIFEST)
        try:
            manifest = cls.model_validate_json(b"".join(plain))
        except ValueError:
            raise damaged(name, MANIFEST, "cannot be read") from None
        if (manifest.name, manifest.key) != (name, match[2]):
            raise damaged(name, MANIFEST, "is another artifact's, or another key's")
        return manifest

    def place(self, file: str) -> str:
        """Return the place of a file in the store."""
        return f"data/{self.name}/{self.attempt}/{file}"

    def stored(self, file: str) -> int:
        """Return the number of bytes that a file has in the store."""
        return stored_size(self.files[file].size, self.key)


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
