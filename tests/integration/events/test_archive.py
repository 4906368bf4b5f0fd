"""Archives: what went in comes out, and nothing that was cut or altered does."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_forge.events import ArchiveError, ChainError, Envelope, EventStore, New, archive
from agent_forge.events.databases.sqlite import open_store
from testing.stores.contract import new

BLOB = b"\x00\xffweights" * 1000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EventStore]:
    store = open_store(tmp_path / "log.db")
    for n in range(5):
        store.append("a/1", n, [new(f"a{n}", n)])
        store.append("b/ü", n, [new(f"b{n}", n)])
    yield store
    store.close()


@pytest.fixture
def file(store: EventStore, tmp_path: Path) -> Path:
    """An archive of both streams, with a blob."""
    blob = tmp_path / "blob"
    blob.write_bytes(BLOB)
    path = tmp_path / "log.forge"
    streams = {name: store.read(name) for name in ("a/1", "b/ü")}
    archive.write(path, streams, {"counted@1": {}}, {"run": "1"}, [("x/y.bin", blob)])
    return path


def plain(rows: list[Envelope]) -> list[Envelope]:
    """Rows without their positions."""
    return [row._replace(position=0) for row in rows]


def test_what_went_in_comes_out(store: EventStore, file: Path, tmp_path: Path) -> None:
    found = archive.read(file, tmp_path / "out")
    assert found.manifest["run"] == "1"
    assert list(found.streams) == ["a/1", "b/ü"]
    for name, rows in found.streams.items():
        assert plain(rows) == plain(store.read(name))
    assert found.blobs == ("x/y.bin",)
    assert (tmp_path / "out" / "x" / "y.bin").read_bytes() == BLOB


def test_it_can_be_read_by_anybody_with_tar(store: EventStore, file: Path) -> None:
    with tarfile.open(file) as tar:
        names = tar.getnames()
        content = tar.extractfile("events.jsonl")
        assert content
        lines = content.read().decode().splitlines()
    assert names == ["manifest.json", "schemas.json", "events.jsonl", "blobs/x/y.bin", "seal.json"]
    assert [json.loads(line)["key"] for line in lines] == [
        *(f"a{n}" for n in range(5)),
        *(f"b{n}" for n in range(5)),
    ]


def test_the_same_log_gives_the_same_bytes(store: EventStore, file: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.forge"
    streams = {name: store.read(name) for name in ("a/1", "b/ü")}
    blobs = [("x/y.bin", tmp_path / "blob")]
    archive.write(again, streams, {"counted@1": {}}, {"run": "1"}, blobs)
    assert again.read_bytes() == file.read_bytes()


def test_every_cut_is_refused_with_the_place(file: Path) -> None:
    """At every 97th byte, and all of the last hundred."""
    whole = file.read_bytes()
    places = [*range(0, len(whole), 97), *range(len(whole) - 100, len(whole))]
    told = set()
    for length in places:
        file.write_bytes(whole[:length])
        with pytest.raises(ArchiveError) as caught:
            archive.read(file)
        told.add(caught.value.where)
    assert "at its beginning" in told
    assert len(told) > 1


def repacked(file: Path, change: Callable[[str, bytes], bytes | None]) -> None:
    """Members changed by somebody who then packed them again, whole."""
    members = []
    with tarfile.open(file) as tar:
        for member in tar:
            content = tar.extractfile(member)
            assert content
            after = change(member.name, content.read())
            if after is not None:
                members.append((member.name, after))
    with tarfile.open(file, "w:gz") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def lines(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[str, bytes], bytes]:
    """A change of the events' lines."""

    def edit(name: str, data: bytes) -> bytes:
        if name != "events.jsonl":
            return data
        return b"\n".join(change(data.splitlines())) + b"\n"

    return edit


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            lines(lambda ls: [*ls[:3], ls[3].replace(b'n\\":3', b'n\\":4'), *ls[4:]]),
            r"after event 3 \(a/1 3\): the next event \(counted\) was changed",
        ),
        (lines(lambda ls: [*ls[:2], *ls[3:]]), "events.jsonl was changed"),
        (lines(lambda ls: [ls[1], ls[0], *ls[2:]]), "events.jsonl was changed"),
        (lines(lambda ls: [*ls[:2], b"{}", *ls[3:]]), "after event 2 .* is no event"),
        (lines(lambda ls: [*ls[:2], b"x", *ls[3:]]), "after event 2 .* is no event"),
        (lambda name, data: data[:-1] if name == "events.jsonl" else data, "last line .* is cut"),
        (lambda name, data: data + b"!" if name.startswith("blobs") else data, "blobs/x/y.bin was"),
        (lambda name, data: None if name == "seal.json" else data, "its end is missing"),
        (lambda name, data: None if name == "events.jsonl" else data, "events.jsonl was changed"),
        (lambda name, data: None if name == "manifest.json" else data, "the manifest is missing"),
        (lambda name, data: b"[]" if name == "manifest.json" else data, "its format is not"),
        (lambda name, data: b"{" if name == "seal.json" else data, "seal.json is no JSON"),
        (lambda name, data: b"[]" if name == "seal.json" else data, "not of its format"),
        (
            lambda name, data: data.replace(b'"streams"', b'"x"') if name == "manifest.json" else data,
            "not of its format",
        ),
        (
            lambda name, data: (
                data.replace(b'"events": 5', b'"events": 0') if name == "manifest.json" else data
            ),
            "not of its format",
        ),
        (lines(lambda ls: [ls[0].replace(b'"version":1', b'"version":"1"'), *ls[1:]]), "is no event"),
    ],
)
def test_every_alteration_is_refused(file: Path, change, why: str) -> None:
    repacked(file, change)
    with pytest.raises(ArchiveError, match=why):
        archive.read(file)


def sealed(file: Path, change: Callable[[str, bytes], bytes]) -> None:
    """A change by somebody who made the seal anew, too."""
    import hashlib

    digests = {}

    def edit(name: str, data: bytes) -> bytes:
        if name == "seal.json":
            return json.dumps(digests).encode()
        after = change(name, data)
        digests[name] = hashlib.sha256(after).hexdigest()
        return after

    repacked(file, edit)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lines(lambda ls: [*ls[:2], *ls[3:]]), "event 3 is missing"),
        (lines(lambda ls: [*ls[:4], *ls[5:]]), "event 5 is gone from the end"),
        (lines(lambda ls: ls[:5]), "events 1 to 5 are gone|stream"),
    ],
)
def test_a_seal_made_anew_does_not_hide_a_broken_chain(file: Path, change, why: str) -> None:
    sealed(file, change)
    with pytest.raises(ArchiveError, match=why):
        archive.read(file)


@pytest.mark.parametrize("name", ["blobs/../../evil", "blobs//etc/evil", "other.txt", "../x"])
def test_names_that_point_elsewhere_are_refused(file: Path, tmp_path: Path, name: str) -> None:
    with tarfile.open(file, "w:gz") as tar:
        for member in ("manifest.json", name):
            data = json.dumps({"format": archive.FORMAT, "streams": []}).encode()
            info = tarfile.TarInfo(member)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    with pytest.raises(ArchiveError, match=r"points out|does not belong"):
        archive.read(file, tmp_path / "out")
    assert not (tmp_path / "evil").exists()


def test_a_link_is_refused(file: Path) -> None:
    with tarfile.open(file, "w:gz") as tar:
        info = tarfile.TarInfo("events.jsonl")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info)
    with pytest.raises(ArchiveError, match="does not belong"):
        archive.read(file)


@pytest.mark.parametrize("content", [b"", b"hello", b"\x1f\x8b", gzip.compress(b"hello", mtime=0)])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(ArchiveError):
        archive.read(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="cannot be read"):
        archive.read(tmp_path / "nothing")


def test_a_failed_write_leaves_nothing(store: EventStore, tmp_path: Path) -> None:
    path = tmp_path / "half.forge"
    rows = {"a/1": store.read("a/1")}
    with pytest.raises(OSError, match="nothing"):
        archive.write(path, rows, {}, {}, [("x", tmp_path / "nothing")])
    assert not [p for p in tmp_path.iterdir() if "half" in p.name]


# ---- adopt -----------------------------------------------------------------------------------


@pytest.fixture
def other(tmp_path: Path) -> Iterator[EventStore]:
    other = open_store(tmp_path / "other.db")
    yield other
    other.close()


def test_adopted_rows_keep_their_hashes_and_get_positions_of_their_own(store, other) -> None:
    other.append("c", 0, [new("c0")])
    assert other.adopt("a/1", store.read("a/1")) == 5
    assert plain(other.read("a/1")) == plain(store.read("a/1"))
    assert [row.position for row in other.read_all()] == [1, 2, 3, 4, 5, 6]


def test_adopting_again_adds_only_what_is_new(store, other) -> None:
    rows = store.read("a/1")
    assert other.adopt("a/1", rows[:3]) == 3
    assert other.adopt("a/1", rows) == 2
    assert other.adopt("a/1", rows) == 0
    assert other.adopt("a/1", rows[:2]) == 0
    other.append("a/1", 5, [new("a5")])
    assert len(other.read("a/1")) == 6


def test_another_history_under_the_same_name_is_refused(store, other) -> None:
    other.adopt("a/1", store.read("a/1")[:2])
    other.append("a/1", 2, [new("mine")])
    with pytest.raises(ChainError, match="event 3"):
        other.adopt("a/1", store.read("a/1"))
    assert len(other.read("a/1")) == 3


def bomb(path: Path, members: list[tuple[str, Iterator[bytes], int]]) -> Path:
    """An archive with a manifest of nothing, and members that are made as they are written."""
    manifest = json.dumps({"format": archive.FORMAT, "streams": []}).encode()
    with gzip.open(path, "wb", compresslevel=1) as out:
        for name, pieces, size in [("manifest.json", iter([manifest]), len(manifest)), *members]:
            info = tarfile.TarInfo(name)
            info.size = size
            out.write(info.tobuf())
            for piece in pieces:
                out.write(piece)
            out.write(bytes(-size % 512))
    return path


MB = 1 << 20


def zeros(mb: int) -> Iterator[bytes]:
    return (bytes(MB) for _ in range(mb))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mb", "why"),
    [
        ("blobs/x/y.bin", 768, "unpacks to more than 100 times its size"),
        ("schemas.json", 1024, "schemas.json has 1,073,741,824 bytes, more than"),
        ("events.jsonl", 300, "the next event has more than the 16,777,216 bytes allowed"),
    ],
)
def test_bombs_are_refused_early_and_in_little_memory(
    tmp_path: Path, name: str, mb: int, why: str
) -> None:
    """A file of two megabytes filled the disk, one of a megabyte took three gigabytes of memory."""
    import tracemalloc

    path = bomb(tmp_path / "bomb.forge", [(name, zeros(mb), mb * MB)])
    assert path.stat().st_size < 12 * MB
    tracemalloc.start()
    with pytest.raises(ArchiveError, match=why):
        archive.read(path, tmp_path / "out")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 150 * MB
    written = sum(file.stat().st_size for file in (tmp_path / "out").rglob("*") if file.is_file())
    assert written < mb * MB


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME], ids=["pax", "gnu"])
def test_a_name_without_end_is_refused_early_and_in_little_memory(tmp_path: Path, kind: bytes) -> None:
    """A long name is a content of its own: six megabytes of file took a gigabyte of memory."""
    import os
    import tracemalloc

    size = 64 * MB
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, size
    path = tmp_path / "bomb.forge"
    with gzip.open(path, "wb", compresslevel=1) as out:
        out.write(info.tobuf())
        for _ in range(size // MB):  # what packs to a hundredth is within the proportion
            out.write(os.urandom(16_000) + bytes(MB - 16_000))
    tracemalloc.start()
    with pytest.raises(ArchiveError, match="header of its next file has more than 1,048,576 bytes"):
        archive.read(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 16 * MB


def test_long_names_are_names(store: EventStore, tmp_path: Path) -> None:
    """The counterpart: an ordinary long name is taken, each with a header of its own."""
    blob = tmp_path / "blob"
    blob.write_bytes(b"x")
    names = tuple(f"{'deep/' * 60}{n}" for n in range(3))
    path = tmp_path / "long.forge"
    archive.write(path, {"a/1": store.read("a/1")}, {}, {}, [(name, blob) for name in names])
    assert archive.read(path).blobs == names


def test_a_file_that_there_is_no_room_for_is_refused_before_the_disk_is_full(
    file: Path, tmp_path: Path, monkeypatch
) -> None:
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(archive.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(ArchiveError, match=r"'y.bin' has 9,000 bytes, and .* has room for 1,000"):
        archive.read(file, tmp_path / "out")


def test_deep_json_is_no_event_and_no_document(file: Path) -> None:
    """The interpreter's own limit was a traceback."""
    deep = b"[" * 100_000
    repacked(file, lines(lambda ls: [deep, *ls[1:]]))
    with pytest.raises(ArchiveError, match="is no event"):
        archive.read(file)
    repacked(file, lambda name, data: deep if name == "manifest.json" else data)
    with pytest.raises(ArchiveError, match="is no JSON"):
        archive.read(file)


def manifest(change: Callable[[dict], object]) -> Callable[[str, bytes], bytes]:
    """A change of the manifest."""

    def edit(name: str, data: bytes) -> bytes:
        if name != "manifest.json":
            return data
        content = json.loads(data)
        change(content)
        return json.dumps(content).encode()

    return edit


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda told: told["streams"].append(told["streams"][0]), "names a stream twice"),
        (lambda told: told["streams"].pop(), "more events than its manifest says"),
        (lambda told: told["blobs"].update(more=3), "a file that its manifest names is missing"),
        (lambda told: told["blobs"].clear(), "blobs/x/y.bin was changed: its manifest has no such"),
    ],
)
def test_the_manifest_says_what_is_there_and_nothing_twice(file: Path, change, why: str) -> None:
    """A stream that was named twice was verified, and then failed at the import."""
    sealed(file, manifest(change))
    with pytest.raises(ArchiveError, match=why):
        archive.read(file)


def test_a_renamed_member_and_one_that_is_there_twice_are_refused(file: Path) -> None:
    with tarfile.open(file) as tar:
        found = [(m.name, e.read()) for m in tar if (e := tar.extractfile(m))]
    for names in ({"blobs/x/y.bin": ["blobs/z.bin"]}, {"schemas.json": ["schemas.json"] * 2}):
        with tarfile.open(file, "w:gz") as tar:
            for old, data in found:
                for name in names.get(old, [old]):
                    info = tarfile.TarInfo(name)
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
        with pytest.raises(ArchiveError, match=r"its manifest has no such file|twice"):
            archive.read(file)


@pytest.mark.parametrize(("value", "zero"), [("a\0b", True), ("a\\u0000b", False), ("\\\0", True)])
def test_a_zero_byte_is_refused_where_text_of_those_letters_is_not(
    store: EventStore, value: str, zero: bool
) -> None:
    """JSON writes a zero byte as letters, which every database takes; a table does not."""
    from agent_forge.events import UnstorableError
    from testing.stores.contract import Noted

    event = New(Noted(value=value), "zero")
    if zero:
        with pytest.raises(UnstorableError, match="zero byte"):
            store.append("z", 0, [event])
    else:
        assert store.append("z", 0, [event]).fresh
