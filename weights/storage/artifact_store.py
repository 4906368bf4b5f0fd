"""Artifact store: files of artifacts at one URL, for workers that share no file system.

    manifests/NAME            the list of an artifact's files; without it there is no artifact
    data/NAME/ATTEMPT/FILE    one file, plain or sealed (`weights/storage/encryption.py`)

An artifact's name is a digest of its content; whole models have the prefix `model-`
(`weights/storage/inputs.py`), snapshots of trainings `snapshot-` and a digest of their identity
(`studies/making/shared_snapshots.py`). Every upload writes into a new folder, an attempt, whose name
starts with the Unix second at which it began, in hex. The upload then replaces the manifest in one
step. So uploads and downloads never disturb each other, and an upload that died stays invisible. Once
its files are a day old, `sweep` or a later `put` of the artifact removes them.

A fetched artifact has the bytes that were put, or an error names the file that differs. Without
keys this protects against accidents only: an attacker who can write to the store can change a file
together with its manifest. With keys it protects against such an attacker, too: an artifact is
accepted only if its manifest and every file are sealed under this name. With keys, an artifact that
is not encrypted is refused, unless the vault is opened with `plain`. In this way `rotate` encrypts,
once, a store that was filled without keys. The caller checks that the files fit the artifact's name.

The manifest is one stored file with the sizes and hashes of the artifact's files:

    first line    BLAKE3 of all bytes after this line, in hex: tells accidental damage from the rest
    second line   "forge manifest", the format's number, and "plain" or "key" and the key's id
    the rest      the manifest as JSON, sealed as the artifact's file "/manifest" if there is a key

A manifest that opens under its key vouches for the artifact's name and for the plain bytes of every
file, so an artifact is authenticated as a whole. The second line is read before the key is known;
an attacker who changes it only leads the reader to a key that does not open the rest.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import blake3
from pydantic import BaseModel, Field

from agent_forge.events import failpoints
from agent_forge.runs.errors import ConfigError, ForgeError, TamperedError, UnavailableError
from agent_forge.runs.home import Home
from agent_forge.weights.storage.encryption import (
    CHUNK,
    FILE_VARIABLE,
    KEY_ID,
    MANIFEST,
    Keys,
    damaged,
    seal,
    stored_size,
    unseal,
)
from agent_forge.weights.storage.remote_files import GoneError, StoredFiles, connected

log = logging.getLogger(__name__)

#: Age in seconds at which an attempt without a manifest counts as dead; no upload takes as long.
STALE_SECONDS = 24 * 3600
#: Size in bytes of the largest manifest that is read.
MANIFEST_BYTES = 2**24
#: Number of tries of a download: it begins again if the artifact was replaced meanwhile.
TRIES = 5


class UnsealedError(ConfigError):
    """An artifact that is not encrypted although keys are set: a stranger may have written it."""


class Vault:
    """The artifacts at one URL. Any number of processes and threads may use it at once."""

    def __init__(self, store: StoredFiles, keys: Keys | None, plain: bool = False) -> None:
        self._store = store
        self._keys = keys
        self._takes_plain = plain or keys is None

    @classmethod
    def open(cls, url: str, keys: Keys | None = None, plain: bool = False) -> Vault:
        """Return the vault at a URL such as file:///dir or s3://bucket/prefix; write nothing yet.

        With keys, files are encrypted when they are put, and artifacts that are not encrypted are
        refused unless `plain`. Raises ConfigError for a bad URL or a missing package.
        """
        return cls(connected(url), keys, plain)

    def put_folder(self, name: str, folder: Path) -> bool:
        """Put a folder's files but hidden ones as artifact `name`; return False if there; see `put`."""
        try:
            files = {p.name: p for p in folder.iterdir() if not p.name.startswith(".")}
        except OSError as error:
            raise UnavailableError(f"{folder} cannot be read: {error}. Check the path.") from error
        return self.put(name, files)

    def put(self, name: str, files: Mapping[str, Path]) -> bool:
        """Store files as the artifact `name`; return False if the store has it complete already.

        It replaces an artifact that lacks files or bytes, or that is refused as not encrypted. False
        also means that another process was faster. Raises ConfigError, UnavailableError.
        """
        _check(name, files)
        before = self._readable(name)
        if before is not None and self._is_whole(before):
            return False
        written = self._replace(name, before, {f: _chunks(files[f]) for f in sorted(files)})
        self._sweep(name)
        return written

    def fetch(self, name: str, folder: Path) -> bool:
        """Download an artifact as a folder, complete and checked; return False if there is none.

        It replaces an existing folder. Raises TamperedError if a file has other bytes than were put,
        ConfigError if its key is missing or it is not encrypted, and UnavailableError. After an error
        no part of the download is left.
        """
        _check(name)
        existed = folder.is_dir()
        for _ in range(TRIES):
            manifest = self._manifest(name)
            if manifest is None:
                return False
            hidden = folder.parent / f".{folder.name}.{secrets.token_hex(8)}.part"
            try:
                self._download(manifest, hidden)
                _settle(hidden, folder, existed)
                return True
            except TamperedError:
                if self._manifest(name) == manifest:
                    raise
            except OSError as error:
                failed = f"{folder} cannot be written: {error}. Free space or choose another."
                raise UnavailableError(failed) from error
            finally:
                shutil.rmtree(hidden, ignore_errors=True)
        raise UnavailableError(f"artifact {name} is replaced all the time. Try again later.")

    def files(self, name: str) -> tuple[str, ...]:
        """Return a tuple of the names of an artifact's files; () without one. Raises as `fetch`."""
        _check(name)
        manifest = self._manifest(name)
        return tuple(manifest.files) if manifest else ()

    def names(self) -> list[str]:
        """Return the names of all artifacts in the store, sorted."""
        return [name for name in self._store.list("manifests") if re.fullmatch(NAME, name)]

    def has(self, name: str) -> bool:
        """Return True if the store has an artifact of this name, whole or damaged."""
        _check(name)
        return self._store.size(f"manifests/{name}") is not None

    def remove(self, name: str) -> bool:
        """Remove an artifact, even damaged; return True if it was there. Uploads in progress fail."""
        there = self.has(name)
        self._store.drop(f"manifests/{name}")
        self._store.drop(f"data/{name}")
        return there

    def rotate(self) -> int:
        """Encrypt all artifacts of other keys again, under the first key; return their number.

        An artifact that is not encrypted counts as unreadable, unless the vault takes plain ones.
        The call may be interrupted and repeated. It leaves an unreadable artifact as it is, and raises
        its error once all others are done. The older keys may be deleted if there was no error and no
        process uses them for `put`.
        """
        if self._keys is None:
            raise ConfigError(f"encrypting again needs keys. Set {FILE_VARIABLE}.")
        rewritten, failed = 0, []
        for name in self.names():
            try:
                rewritten += self._rotated(name, self._keys.first)
            except (TamperedError, ConfigError) as error:
                failed.append(error)
        self.sweep()
        if failed:
            count = f"{rewritten} artifacts were encrypted again, {len(failed)} cannot be"
            raise type(failed[0])(f"{count}: {failed[0]}") from failed[0]
        return rewritten

    def sweep(self) -> int:
        """Remove the files of dead uploads begun over a day ago; return the number of uploads."""
        return sum(self._sweep(n) for n in self._store.list("data") if re.fullmatch(NAME, n))

    def _rotated(self, name: str, key: str) -> bool:
        """Encrypt an artifact again, under the key `key`; return True if that was done.

        False: the artifact has that key already, or another process replaced it meanwhile.
        """
        before = self._manifest(name)
        if before is None or before.key == key:
            return False
        try:
            sources = {file: self._plain(before, file) for file in before.files}
            return self._replace(name, before, sources)
        except TamperedError:
            if self._manifest(name) == before:
                raise
            return False

    def _sweep(self, name: str) -> int:
        try:
            manifest = self._manifest(name)
        except (TamperedError, ConfigError):
            return 0  # without a readable manifest the current attempt is unknown: remove none
        live_attempt = manifest.attempt if manifest else None
        before = time.time() - STALE_SECONDS
        attempts = [a for a in self._store.list(f"data/{name}") if re.fullmatch(ATTEMPT, a)]
        dead = [a for a in attempts if a != live_attempt and int(a.partition("-")[0], 16) < before]
        for attempt in dead:
            self._store.drop(f"data/{name}/{attempt}")
        return len(dead)

    def _manifest(self, name: str) -> Manifest | None:
        """Return an artifact's Manifest; None if there is none. Raises TamperedError, ConfigError."""
        place = f"manifests/{name}"
        try:
            size = self._store.size(place)
            if size is None:
                return None
            data = self._store.read(place) if size <= MANIFEST_BYTES else b""
        except GoneError:
            return None
        manifest = Manifest.decode(data, self._keys, name)
        if manifest.key is None and not self._takes_plain:
            raise UnsealedError(
                f"artifact {name} is not encrypted, and keys are set: any user of the store "
                "may have put it there. If it is from before there were keys, `forge artifacts rotate "
                "--plain` encrypts everything once; if not, `forge artifacts remove` removes it."
            )
        return manifest

    def _readable(self, name: str) -> Manifest | None:
        try:
            return self._manifest(name)
        except (TamperedError, UnsealedError) as error:
            log.warning("%s", error)
            return None

    def _is_whole(self, manifest: Manifest) -> bool:
        size, at = self._store.size, manifest.place
        return all(size(at(file)) == manifest.stored(file) for file in manifest.files)

    def _replace(
        self, name: str, before: Manifest | None, sources: Mapping[str, Iterable[bytes]]
    ) -> bool:
        """Upload an artifact in place of `before`; return False if another process was faster."""
        attempt = f"{int(time.time()):x}-{secrets.token_hex(8)}"
        dead: str | None = attempt
        try:
            entries = {file: self._upload(name, attempt, file, sources[file]) for file in sources}
            key = self._keys.first if self._keys else None
            manifest = Manifest(name=name, attempt=attempt, key=key, files=entries)
            self._store.write(manifest.place(".manifest"), [manifest.encode(self._keys)])
            failpoints.hit("vault-uploaded")
            if self._readable(name) != before:
                return False
            if not self._is_whole(manifest):
                raise UnavailableError(f"artifact {name} did not arrive whole. Try again.")
            dead = None  # from here on the manifest may be in place, even if an error is raised
            self._store.move(manifest.place(".manifest"), f"manifests/{name}")
            failpoints.hit("vault-published")
            dead = before.attempt if before else None
            return True
        finally:
            if dead:
                with contextlib.suppress(ForgeError):
                    self._store.drop(f"data/{name}/{dead}")

    def _upload(self, name: str, attempt: str, file: str, chunks: Iterable[bytes]) -> Entry:
        measured = HashedChunks(chunks)
        self._store.write(f"data/{name}/{attempt}/{file}", seal(measured, self._keys, name, file))
        failpoints.hit("vault-file-uploaded")
        return measured.entry()

    def _plain(self, manifest: Manifest, file: str) -> Iterator[bytes]:
        """Yield a file's plain chunks. Raises TamperedError, at the latest at the end of the file."""
        name, place, stored = manifest.name, manifest.place(file), manifest.stored(file)
        size = self._store.size(place)
        if size != stored:
            lacks = "is not there" if size is None else f"has {size} bytes instead of {stored}"
            raise damaged(name, file, lacks)
        read = partial(self._store.read, place)
        measured = HashedChunks(unseal(read, stored, self._keys, manifest.key, name, file))
        try:
            yield from measured
        except GoneError:
            raise damaged(name, file, "vanished") from None
        if measured.entry() != manifest.files[file]:
            raise damaged(name, file, "has other bytes than were put")

    def _download(self, manifest: Manifest, folder: Path) -> None:
        folder.mkdir(parents=True)
        for file in manifest.files:
            with (folder / file).open("xb") as opened:
                for chunk in self._plain(manifest, file):
                    opened.write(chunk)
                opened.flush()
                os.fsync(opened.fileno())


def _check(name: str, files: Iterable[str] = ("any",)) -> None:
    """Raise ConfigError for a name that an artifact or its files cannot have, or if there are none."""
    if not re.fullmatch(NAME, name):
        raise ConfigError(
            f"{name!r} cannot name an artifact: give a digest of 64 hex digits, or one after "
            "model- or snapshot-."
        )
    if not files or not all(re.fullmatch(FILE, file) for file in files):
        raise ConfigError(
            f"artifact {name} cannot hold the files {sorted(files)}: there must be some, each with "
            "up to 200 letters, digits and ._+- in its name, the first no dot."
        )


def _chunks(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                yield chunk
    except OSError as error:
        raise UnavailableError(f"{path} cannot be read: {error}. Check the path.") from error


def _settle(hidden: Path, folder: Path, replace: bool) -> None:
    """Rename a finished download to its folder; `replace`: first remove the folder that is there.

    If another download was faster, its folder stays, because it has the same bytes.
    """
    aside = hidden.with_suffix(".old")
    if replace:
        with contextlib.suppress(FileNotFoundError):
            folder.rename(aside)
    try:
        hidden.rename(folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def open_vault(home: Home, plain: bool = False) -> Vault:
    """Return the vault of FORGE_ARTIFACT_STORE, with the environment's keys. Raises ConfigError."""
    if home.store is None:
        raise ConfigError(
            "FORGE_ARTIFACT_STORE is not set: name a store, such as s3://bucket/forge or file:///mnt/forge."
        )
    return Vault.open(home.store, Keys.from_environment(), plain)


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
        """Return the manifest's bytes in the store, sealed under the first key if there is one."""
        body = b"".join(seal(split(self.model_dump_json().encode()), keys, self.name, MANIFEST))
        key = "plain" if self.key is None else f"key {self.key}"
        rest = f"forge manifest {FORMAT} {key}\n".encode() + body
        return blake3.blake3(rest).hexdigest().encode() + b"\n" + rest

    @classmethod
    def decode(cls, data: bytes, keys: Keys | None, name: str) -> Manifest:
        """Return the manifest of artifact `name` from its stored bytes.

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
        """Return a file's path in the store: data/NAME/ATTEMPT/FILE."""
        return f"data/{self.name}/{self.attempt}/{file}"

    def stored(self, file: str) -> int:
        """Return the number of bytes that a file has in the store."""
        return stored_size(self.files[file].size, self.key)


class HashedChunks:
    """Iterator over chunks that counts and hashes their bytes."""

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
        """Return an Entry: the size and hash of the chunks that were passed on."""
        return Entry(size=self._size, blake3=self._hasher.hexdigest())


def split(data: bytes) -> Iterator[bytes]:
    """Return an iterator over the data in chunks of `CHUNK` bytes, the last of which may be shorter."""
    return (data[start : start + CHUNK] for start in range(0, len(data), CHUNK))
