"""Archives: logs in one `tar.gz` file, readable with `tar` and a text editor.

    manifest.json     format, what is in it, per stream: number of events and head; added notes
    schemas.json      JSON schemas of the event types, for readers without this program
    events.jsonl      one event a line, stream after stream, in order of version; without positions
    blobs/NAME        further files, which the domain adds
    seal.json         SHA-256 of every member before it: written last, so that a cut is always seen

A reader checks every byte: the seal, the hash of every event, the chain of every stream, the heads. A
stranger's file may be made to fill memory or the disk, so every read and all unpacking is bounded.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Annotated, NotRequired, TypeVar

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from agent_forge.events import chain, failpoints
from agent_forge.events.envelope import Envelope, Json, canonical_json
from agent_forge.events.errors import ArchiveError

FORMAT = "agent-forge archive 1"

#: Number of bytes of a member that are read at a time.
BLOCK = 1 << 20

#: Largest size in bytes: of a document (manifest, schemas, seal) or one event's line; of all events.
DOCUMENT = LINE = 16 << 20
EVENTS = 1 << 30
#: Largest number of members of an archive.
MEMBERS = 10_000


class _Stream(TypedDict):
    stream: str
    events: Annotated[int, Field(ge=1)]
    head: str


class _Manifest(TypedDict):
    streams: list[_Stream]
    #: Name and size of every further file; older archives do not say.
    blobs: NotRequired[dict[str, Annotated[int, Field(ge=0)]]]


Checked = TypeVar("Checked")

_ROW, _MANIFEST = TypeAdapter(Envelope), TypeAdapter(_Manifest)
_SEAL = TypeAdapter(dict[str, str])


@dataclass(frozen=True)
class Archive:
    """The checked content of an archive file."""

    manifest: Mapping[str, object]
    #: Stream → its rows; the streams in an order in which they can be imported.
    streams: dict[str, list[Envelope]]
    #: Names of the further files.
    blobs: tuple[str, ...] = ()


def write(
    path: Path,
    streams: Mapping[str, Sequence[Envelope]],
    schemas: Mapping[str, Json],
    notes: Mapping[str, Json],
    blobs: Iterable[tuple[str, Path]] = (),
) -> None:
    """Write an archive; the file appears under its name whole or not at all. Raises OSError."""
    files = list(blobs)
    hidden = path.parent / f".{path.name}.{os.getpid()}.part"
    manifest = {
        "format": FORMAT,
        "streams": [
            {"stream": name, "events": len(rows), "head": rows[-1].hash}
            for name, rows in streams.items()
        ],
        "blobs": {name: source.stat().st_size for name, source in files},
        **notes,
    }
    try:
        with hidden.open("wb") as raw:
            with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed:
                with tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar:
                    _Writer(tar).write(manifest, streams, schemas, files)
            raw.flush()
            os.fsync(raw.fileno())
        failpoints.hit("archive-written")
        hidden.rename(path)
    finally:
        hidden.unlink(missing_ok=True)


class _Writer:
    """Writer of an archive's members; it notes the digest of each for the seal."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._digests: dict[str, str] = {}

    def write(
        self,
        manifest: Mapping[str, object],
        streams: Mapping[str, Sequence[Envelope]],
        schemas: Mapping[str, Json],
        blobs: Iterable[tuple[str, Path]],
    ) -> None:
        self._text("manifest.json", json.dumps(manifest, indent=2, ensure_ascii=False))
        self._text("schemas.json", json.dumps(schemas, indent=2, sort_keys=True))
        lines = (line(row) for rows in streams.values() for row in rows)
        self._text("events.jsonl", "\n".join(lines))
        for name, source in blobs:
            with source.open("rb") as content:
                self._add(f"blobs/{name}", content, source.stat().st_size)
        self._text("seal.json", json.dumps(self._digests, indent=2))

    def _text(self, name: str, text: str) -> None:
        content = (text + "\n").encode()
        self._add(name, io.BytesIO(content), len(content))

    def _add(self, name: str, content: IO[bytes], size: int) -> None:
        info = tarfile.TarInfo(name)
        info.size = size
        hashing = _Hashing(content)
        self._tar.addfile(info, hashing)  # pyright: ignore[reportArgumentType]  # it only reads
        self._digests[name] = hashing.digest.hexdigest()


class _Hashing:
    """A file that is hashed as it is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Return the next `size` bytes at most, all if negative; add them to the digest."""
        data = self._file.read(size)
        self.digest.update(data)
        return data

    def readline(self, size: int) -> bytes:
        """Return the next line, at most `size` bytes of it; add it to the digest."""
        data = self._file.readline(size)
        self.digest.update(data)
        return data


def line(row: Envelope) -> str:
    """Return an event as one line of JSON, without its position, which belongs to the database."""
    fields = row._asdict()
    del fields["position"]
    return canonical_json(fields)


def read(path: Path, blobs_into: Path | None = None) -> Archive:
    """Return an archive's content, checked; write its further files into `blobs_into`, if given.

    Raises ArchiveError naming the place where the archive is truncated or altered.
    """
    reader = _MemberReader(path, blobs_into)
    try:
        with path.open("rb") as raw, gzip.open(raw) as packed:
            bounded = BoundedUnpacking(raw, packed, reader.bad)
            with bounded.header():  # opening reads the first one
                tar = _open_tar(bounded)
            with tar:
                while member := _next(tar, bounded):
                    reader.member(tar, member)
            while bounded.read(BLOCK):  # up to gzip's checksum at the very end
                pass
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ArchiveError(str(path), reader.reached(), f"it is cut or damaged ({error})") from error
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile):
            raise
        raise ArchiveError(str(path), reader.reached(), f"it cannot be read ({error})") from error
    return reader.finished()


def _open_tar(bounded: BoundedUnpacking) -> tarfile.TarFile:
    # `tarfile` only reads from it, and asks for no more than `read`.
    return tarfile.open(fileobj=bounded, mode="r|")  # pyright: ignore[reportCallIssue, reportArgumentType, reportUnknownVariableType]


def _next(tar: tarfile.TarFile, bounded: BoundedUnpacking) -> tarfile.TarInfo | None:
    """Return the archive's next member, its header read; None at the end. Raises ArchiveError."""
    with bounded.header():
        return tar.next()


class _MemberReader:
    """Reader of an archive that checks each member as it comes."""

    def __init__(self, path: Path, blobs_into: Path | None) -> None:
        self._path = path
        self._blobs_into = blobs_into
        self._digests: dict[str, str] = {}
        self._seal: dict[str, str] | None = None
        self._manifest: _Manifest | None = None
        #: The manifest's other fields.
        self._notes: Mapping[str, object] = {}
        self._rows: list[Envelope] = []
        self._blobs: list[str] = []

    def reached(self) -> str:
        """Return how far the reader has come, for messages: "at its beginning", "after event 7 (…)"."""
        if self._blobs or "events.jsonl" in self._digests:
            done = [name for name in self._digests if name not in ("manifest.json", "schemas.json")]
            return f"after {done[-1]}"
        if self._rows:
            return f"after event {len(self._rows)} ({self._rows[-1].stream} {self._rows[-1].version})"
        return "at its beginning" if self._manifest is None else "before its first event"

    def bad(self, why: str) -> ArchiveError:
        """Return an ArchiveError with the reason `why` and the place that the reader has reached."""
        return ArchiveError(str(self._path), self.reached(), why)

    def member(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Read one member, check it and note its digest. Raises ArchiveError."""
        file = tar.extractfile(member) if member.isreg() and not member.issparse() else None
        if file is None or self._seal is not None:
            raise self.bad(f"it holds {member.name!r}, which does not belong there")
        if member.name in self._digests or len(self._digests) >= MEMBERS:
            raise self.bad(f"it holds {member.name!r} twice, or more than {MEMBERS:,} files")
        hashing = _Hashing(file)
        if member.name == "events.jsonl":
            self._check_size(member, EVENTS)
            self._read_events(hashing)
        elif member.name.startswith("blobs/"):
            self._read_blob(member.name.removeprefix("blobs/"), member.size, hashing)
        elif member.name in ("manifest.json", "schemas.json", "seal.json"):
            self._check_size(member, DOCUMENT)
            self._read_document(member.name, hashing)
        else:
            raise self.bad(f"it holds {member.name!r}, which does not belong there")
        self._digests[member.name] = hashing.digest.hexdigest()

    def _check_size(self, member: tarfile.TarInfo, most: int) -> None:
        if member.size > most:
            raise self.bad(f"{member.name} has {member.size:,} bytes, more than the {most:,} allowed")

    def _read_document(self, name: str, file: _Hashing) -> None:
        try:
            content: Json = json.loads(file.read())
        except (ValueError, RecursionError) as error:
            raise self.bad(f"{name} is no JSON ({error})") from error
        if name == "seal.json":
            self._seal = self._validated(_SEAL, content)
        elif name == "manifest.json":
            notes: Mapping[str, object] = content if isinstance(content, Mapping) else {}
            if notes.get("format") != FORMAT:
                raise self.bad(f"its format is not {FORMAT!r}: another program or version wrote it")
            manifest = self._validated(_MANIFEST, notes)
            names = [stream["stream"] for stream in manifest["streams"]]
            if len(set(names)) < len(names):
                raise self.bad("its manifest names a stream twice")
            self._manifest, self._notes = manifest, notes

    def _validated(self, adapter: TypeAdapter[Checked], content: object) -> Checked:
        try:
            return adapter.validate_python(content)
        except ValidationError as error:
            raise self.bad(f"it is not of its format ({error.errors()[0]['msg']})") from error

    def _read_events(self, file: _Hashing) -> None:
        if self._manifest is None:
            raise self.bad("the manifest is missing")
        count = sum(stream["events"] for stream in self._manifest["streams"])
        while text := file.readline(LINE + 1):
            if len(text) > LINE:
                raise self.bad(f"the next event has more than the {LINE:,} bytes allowed")
            if not text.endswith(b"\n"):
                raise self.bad("the last line of its events is cut")
            if len(self._rows) == count:
                raise self.bad("it holds more events than its manifest says")
            self._read_event(text)

    def _read_event(self, text: bytes) -> None:
        try:
            fields = {**json.loads(text), "position": len(self._rows) + 1}
            row = _ROW.validate_python(fields, strict=True)
        except (ValueError, TypeError, RecursionError) as error:
            raise self.bad(f"the next event is no event ({error})") from error
        if not chain.fits(row):
            raise self.bad(f"the next event ({row.type}) was changed: its hash does not fit")
        self._rows.append(row)

    def _read_blob(self, name: str, size: int, file: _Hashing) -> None:
        pure = PurePosixPath(name)
        if pure.is_absolute() or ".." in pure.parts or not pure.parts or "\0" in name:
            raise self.bad(f"the name {name!r} points out of the archive")
        blobs = None if self._manifest is None else self._manifest.get("blobs")
        if blobs is not None and blobs.get(name) != size:
            raise self.bad(f"blobs/{name} was changed: its manifest has no such file of {size:,} bytes")
        target = None if self._blobs_into is None else self._blobs_into / pure
        if target is None:
            while file.read(BLOCK):
                pass
        else:
            self._check_room(size, target)
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as out:
                while block := file.read(BLOCK):
                    out.write(block)
        self._blobs.append(name)

    def _check_room(self, size: int, target: Path) -> None:
        """Make the folder; raise ArchiveError if a file of `size` bytes does not fit on its disk."""
        assert self._blobs_into is not None
        self._blobs_into.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self._blobs_into).free
        if size > free:
            raise self.bad(
                f"its file {target.name!r} has {size:,} bytes, and {self._blobs_into} has room for "
                f"{free:,}"
            )

    def finished(self) -> Archive:
        """Return the archive's content; raise ArchiveError if the seal, a chain or a head is wrong."""
        if self._manifest is None or self._seal is None:
            raise self.bad("its end is missing: it was cut")
        del self._digests["seal.json"]
        if self._digests != self._seal:
            names = sorted(self._digests.items() ^ self._seal.items())
            raise self.bad(f"{names[0][0] if names else 'the seal'} was changed: the seal does not fit")
        streams = dict(self._checked())
        if sum(map(len, streams.values())) != len(self._rows):
            raise self.bad("it holds events of streams that its manifest does not name")
        if set(self._manifest.get("blobs", self._blobs)) != set(self._blobs):
            raise self.bad("a file that its manifest names is missing")
        return Archive({**self._notes, **self._manifest}, streams, tuple(self._blobs))

    def _checked(self) -> Iterator[tuple[str, list[Envelope]]]:
        assert self._manifest
        for stream in self._manifest["streams"]:
            rows = [row for row in self._rows if row.stream == stream["stream"]]
            broken: list[chain.Break | None] = [*chain.check(rows)]
            broken.append(chain.missing_tail(rows, stream["events"], stream["head"], "the manifest"))
            for fault in filter(None, broken):
                raise ArchiveError(str(self._path), f"at event {fault.version}", fault.message)
            if len(rows) != stream["events"]:
                raise self.bad(f"stream {stream['stream']} has more events than the manifest says")
            yield stream["stream"], rows


#: Bytes that one member's header may have, its long names included.
HEADER = 1 << 20
#: The unpacked content may be `EXPANSION` times as large as the file, and `SLACK` bytes more. Logs
#: shrink to a tenth, weights to a half; a file that shrinks to a thousandth was made to fill the disk.
EXPANSION, SLACK = 100, 64 << 20


class BoundedUnpacking:
    """Reader of a file's unpacked content that stops at far more bytes than the packed file has.

    Long names stand before a member as content of their own, which `tarfile` reads into memory
    whole: inside a `with header()` block at most `HEADER` bytes can be read.
    """

    def __init__(
        self, raw: IO[bytes], packed: gzip.GzipFile, bad: Callable[[str], ArchiveError]
    ) -> None:
        self._raw, self._packed, self._bad = raw, packed, bad
        self._seen = 0
        #: The number of bytes seen beyond which a header is too long; None outside of headers.
        self._until: int | None = None

    @contextlib.contextmanager
    def header(self) -> Generator[None]:
        """Limit what is read inside the `with` block to `HEADER` bytes."""
        self._until = self._seen + HEADER
        try:
            yield
        finally:
            self._until = None

    def read(self, size: int) -> bytes:
        """Return the next `size` unpacked bytes at most. Raises ArchiveError beyond a limit."""
        data = self._packed.read(size)
        self._seen += len(data)
        if self._until is not None and self._seen > self._until:
            raise self._bad(f"the header of its next file has more than {HEADER:,} bytes")
        if self._seen > SLACK + EXPANSION * self._raw.tell():
            raise self._bad(
                f"it unpacks to more than {EXPANSION} times its size: it was made to fill the disk"
            )
        return data
