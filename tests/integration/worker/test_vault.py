"""The vault: what is put comes back bit for bit, whatever is not that is said, keys can change."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest
from blake3 import blake3
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from runs.errors import ConfigError, TamperedError, UnavailableError
from weights.storage.artifact_store import STALE_SECONDS, Vault
from weights.storage.encryption import CHUNK, HEADER, TAG, stored_size
from weights.storage.encryption_keys import Keys
from weights.storage.manifest import Entry, Manifest

OLD, NEW = Keys({"old": b"o" * 32}), Keys({"new": b"n" * 32, "old": b"o" * 32})
NAME, OTHER = "ab" * 32, "cd" * 32
#: Every way in which a file can end in a chunk, and more chunks than are read at once.
SIZES = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 9 * CHUNK + 7]


class Raw:
    """What lies in a store, for those who tamper with it."""

    def __init__(self, url: str) -> None:
        self.fs, self.root = fsspec.url_to_fs(url)

    def read(self, place: str) -> bytes:
        return self.fs.cat_file(f"{self.root}/{place}")

    def write(self, place: str, data: bytes) -> None:
        self.fs.pipe_file(f"{self.root}/{place}", data)

    def drop(self, place: str) -> None:
        self.fs.rm(f"{self.root}/{place}", recursive=True)

    def places(self) -> list[str]:
        found = self.fs.find(self.root) if self.fs.exists(self.root) else []
        return sorted(path[len(self.root) + 1 :] for path in found)

    def file(self, file: str, name: str = NAME) -> str:
        """Where the one copy of a file lies."""
        (place,) = [p for p in self.places() if p.startswith(f"data/{name}/") and p.endswith(file)]
        return place


@pytest.fixture(params=["file", "memory"])
def url(request, tmp_path) -> str:
    if request.param == "file":
        return f"file://{tmp_path}/vault"
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture(params=["plain", "sealed"])
def keys(request) -> Keys | None:
    return OLD if request.param == "sealed" else None


def content(size: int, seed: int = 0) -> bytes:
    """Bytes of which no two chunks are alike."""
    return hashlib.shake_128(f"{size} {seed}".encode()).digest(size)


def source(folder: Path, files: Mapping[str, bytes]) -> dict[str, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for file, data in files.items():
        (folder / file).write_bytes(data)
    return {file: folder / file for file in files}


def held(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
def test_what_is_put_comes_back_bit_for_bit(url: str, keys: Keys | None, tmp_path) -> None:
    """Also files that are empty, and that end at, before and behind a chunk's end."""
    files = {f"part-{size}.safetensors": content(size) for size in SIZES}
    source(tmp_path / "from", files)
    (tmp_path / "from" / ".hidden").touch()
    assert Vault.open(url, keys).put_folder(NAME, tmp_path / "from")
    vault = Vault.open(url, keys)
    assert vault.names() == [NAME]
    assert vault.fetch(NAME, tmp_path / "deep" / "to")
    assert held(tmp_path / "deep" / "to") == files
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["to"]


def test_what_was_not_put_is_not_there(url: str, keys: Keys | None, tmp_path) -> None:
    """An empty vault is no error: the weights are rebuilt."""
    vault = Vault.open(url, keys)
    assert vault.names() == []
    assert not vault.fetch(NAME, tmp_path / "to")
    assert not vault.remove(NAME)
    assert vault.sweep() == 0
    assert not list(tmp_path.iterdir())


def test_putting_twice_stores_once_and_removing_leaves_nothing(
    url: str, keys: Keys | None, tmp_path
) -> None:
    """Many workers build the same candidate."""
    vault, files = Vault.open(url, keys), source(tmp_path / "from", {"a": b"1", "b": b"2"})
    assert vault.put(NAME, files)
    before = {place: Raw(url).read(place) for place in Raw(url).places()}
    assert not Vault.open(url, keys).put(NAME, files)
    assert {place: Raw(url).read(place) for place in Raw(url).places()} == before
    assert vault.put(OTHER, files)
    assert vault.names() == [NAME, OTHER]
    assert vault.remove(NAME)
    assert vault.names() == [OTHER]
    assert not vault.fetch(NAME, tmp_path / "to")
    assert vault.remove(OTHER)
    assert Raw(url).places() == []


def test_an_encrypted_vault_shows_neither_bytes_nor_hashes(url: str, tmp_path) -> None:
    """Who reads the bucket learns names and sizes."""
    data = b"secret weights" * 100
    Vault.open(url, OLD).put(NAME, source(tmp_path, {"a.bin": data}))
    stored = b"".join(Raw(url).read(place) for place in Raw(url).places())
    assert b"secret" not in stored
    assert blake3(data).hexdigest().encode() not in stored
    assert b"a.bin" not in Raw(url).read(f"manifests/{NAME}")


def test_a_folder_in_the_way_is_replaced_whole(url: str, keys: Keys | None, tmp_path) -> None:
    """The cache had it, damaged."""
    Vault.open(url, keys).put(NAME, source(tmp_path / "from", {"a": b"1"}))
    source(tmp_path / "to" / NAME, {"a": b"damaged", "stale": b""})
    assert Vault.open(url, keys).fetch(NAME, tmp_path / "to" / NAME)
    assert held(tmp_path / "to" / NAME) == {"a": b"1"}
    assert [p.name for p in (tmp_path / "to").iterdir()] == [NAME]


# What is not as it was put


def refuses(url: str, keys: Keys | None, folder: Path, match: str | None = None) -> None:
    """Fetching raises and leaves nothing behind."""
    with pytest.raises(TamperedError, match=match) as caught:
        Vault.open(url, keys).fetch(NAME, folder / "to")
    assert NAME in str(caught.value)
    assert not folder.exists() or not list(folder.iterdir())


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


#: Positions in a sealed file of two whole chunks and 100 bytes: each part of the header and of a chunk.
SPOTS = {
    "header": 0, "header's end": HEADER - 1, "first tag": HEADER, "first byte": HEADER + 1,
    "first check": HEADER + CHUNK + 3, "second tag": HEADER + CHUNK + TAG,
    "last check": HEADER + 2 * (CHUNK + TAG) + 100 + TAG - 1,
}  # fmt: skip


@pytest.mark.parametrize("spot", SPOTS)
def test_a_flipped_bit_anywhere_in_a_sealed_file_is_found(url: str, spot: str, tmp_path) -> None:
    """None of its bytes is without a check."""
    files = source(tmp_path / "from", {"a": content(2 * CHUNK + 100), "b": b"whole"})
    Vault.open(url, OLD).put(NAME, files)
    raw = Raw(url)
    raw.write(raw.file("/a"), flip(raw.read(raw.file("/a")), SPOTS[spot]))
    refuses(url, OLD, tmp_path / "x", "^a of artifact")


@pytest.mark.parametrize("at", [0, CHUNK - 1, CHUNK, 2 * CHUNK + 99])
def test_a_flipped_bit_in_a_plain_file_is_found(url: str, at: int, tmp_path) -> None:
    """By its hash."""
    Vault.open(url).put(NAME, source(tmp_path / "from", {"a": content(2 * CHUNK + 100)}))
    raw = Raw(url)
    raw.write(raw.file("/a"), flip(raw.read(raw.file("/a")), at))
    refuses(url, None, tmp_path / "x", "^a of artifact .* has other bytes")


def test_every_flipped_bit_of_a_small_artifact_is_found(keys: Keys | None, tmp_path) -> None:
    """Of the manifest and of the file; in memory, as there are thousands."""
    url = f"memory://{uuid.uuid4().hex}"
    vault, raw = Vault.open(url, keys), Raw(url)
    vault.put(NAME, source(tmp_path / "from", {"a": b"abc"}))
    for place in raw.places():
        whole = raw.read(place)
        for at in range(len(whole)):
            raw.write(place, flip(whole, at))
            with pytest.raises(TamperedError):
                vault.fetch(NAME, tmp_path / "x" / "to")
        raw.write(place, whole)
    assert vault.fetch(NAME, tmp_path / "to")


def test_a_cut_file_is_found_wherever_it_was_cut(url: str, keys: Keys | None, tmp_path) -> None:
    """At a chunk's end too, where every tag that is left is right."""
    Vault.open(url, keys).put(NAME, source(tmp_path / "from", {"a": content(3 * CHUNK)}))
    raw = Raw(url)
    place, step = raw.file("/a"), CHUNK + TAG
    whole = raw.read(place)
    for left in (0, 1, HEADER, HEADER + step, HEADER + 2 * step, CHUNK, 2 * CHUNK, len(whole) - 1):
        raw.write(place, whole[:left])
        refuses(url, keys, tmp_path / "x", f"^a of artifact .* has {left} bytes instead of")
    raw.write(place, whole + b"\0")
    refuses(url, keys, tmp_path / "x")


def test_a_cut_manifest_is_found_wherever_it_was_cut(url: str, keys: Keys | None, tmp_path) -> None:
    """An upload of the manifest that did not end, where the store has no renaming."""
    Vault.open(url, keys).put(NAME, source(tmp_path / "from", {"a": b"abc"}))
    whole = Raw(url).read(f"manifests/{NAME}")
    for left in (0, 1, HEADER, HEADER + TAG, len(whole) - 1):
        Raw(url).write(f"manifests/{NAME}", whole[:left])
        refuses(url, keys, tmp_path / "x", "^the manifest")


def test_a_removed_file_is_found_and_put_again(url: str, keys: Keys | None, tmp_path) -> None:
    """A manifest alone is no artifact."""
    files = source(tmp_path / "from", {"a": b"1", "b": b"2"})
    vault, raw = Vault.open(url, keys), Raw(url)
    vault.put(NAME, files)
    raw.drop(raw.file("/b"))
    refuses(url, keys, tmp_path / "x", "^b of artifact .* is not there")
    assert vault.put(NAME, files)
    assert vault.fetch(NAME, tmp_path / "to")
    assert len(raw.places()) == 3


def test_a_damaged_manifest_is_replaced_by_the_next_upload(
    url: str, keys, tmp_path, caplog
) -> None:
    """And said; its files are known to nobody and go when they are old."""
    files = source(tmp_path / "from", {"a": b"1"})
    Vault.open(url, keys).put(NAME, files)
    Raw(url).write(f"manifests/{NAME}", b"{}")
    assert Vault.open(url, keys).sweep() == 0
    assert Vault.open(url, keys).put(NAME, files)
    assert "the manifest of artifact" in caplog.text
    assert Vault.open(url, keys).fetch(NAME, tmp_path / "to")


def test_files_that_changed_places_are_found(url: str, keys: Keys | None, tmp_path) -> None:
    """Of the same size, with right tags, under the same key."""
    vault, raw = Vault.open(url, keys), Raw(url)
    vault.put(NAME, source(tmp_path / "1", {"a": content(500, 1), "b": content(500, 2)}))
    vault.put(OTHER, source(tmp_path / "2", {"a": content(500, 3)}))
    whole = raw.read(raw.file("/a"))
    for stranger in (raw.file("/b"), raw.file("/a", OTHER)):
        raw.write(raw.file("/a"), raw.read(stranger))
        refuses(url, keys, tmp_path / "x", "^a of artifact")
    raw.write(raw.file("/a"), whole)
    raw.write(f"manifests/{NAME}", raw.read(f"manifests/{OTHER}"))
    refuses(url, keys, tmp_path / "x", "^the manifest")


def test_chunks_that_changed_places_are_found(url: str, tmp_path) -> None:
    """Each is right where it was."""
    Vault.open(url, OLD).put(NAME, source(tmp_path / "from", {"a": content(3 * CHUNK)}))
    raw, step = Raw(url), CHUNK + TAG
    whole = raw.read(raw.file("/a"))
    head, *chunks = whole[:HEADER], *(whole[HEADER + i * step :][:step] for i in range(3))
    for order in ((1, 0, 2), (0, 2, 1), (0, 0, 2)):
        raw.write(raw.file("/a"), head + b"".join(chunks[i] for i in order))
        refuses(url, OLD, tmp_path / "x", "^a of artifact .* fails its check in chunk [01]")


def test_a_plain_file_in_a_sealed_artifact_is_found(url: str, tmp_path) -> None:
    """A plain file, and a plain manifest that names the key, are not taken for sealed ones."""
    Vault.open(url, OLD).put(NAME, source(tmp_path / "from", {"a": b"abc"}))
    raw = Raw(url)
    manifest = Manifest.decode(raw.read(f"manifests/{NAME}"), OLD, NAME)
    raw.write(raw.file("/a"), b"abc".ljust(stored_size(3, "old")))
    refuses(url, OLD, tmp_path / "x", "^a of artifact .* fails its check")
    raw.write(f"manifests/{NAME}", plain(manifest))
    refuses(url, OLD, tmp_path / "x", "^the manifest .* another artifact's, or another key's")


def plain(manifest: Manifest) -> bytes:
    """Return the stored bytes of a manifest that is not sealed, although it may name a key."""
    whole = manifest.model_copy(update={"key": None}).encode(None)
    line = whole.partition(b"\n")[2].partition(b"\n")[0]
    rest = line + b"\n" + manifest.model_dump_json().encode()
    return blake3(rest).hexdigest().encode() + b"\n" + rest


@pytest.mark.parametrize(
    "file", ["../../escaped", "/etc/x", "", ".", "..", "a/b", ".hidden", "a\n"]
)
def test_a_manifest_cannot_write_outside_of_its_folder(url: str, file: str, tmp_path) -> None:
    """A stranger may have written it, checksum and all."""
    files = {file: Entry(size=3, blake3=blake3(b"abc").hexdigest())}
    written = Manifest.model_construct(name=NAME, attempt="1-" + "0" * 16, key=None, files=files)
    Raw(url).fs.makedirs(f"{Raw(url).root}/manifests", exist_ok=True)
    Raw(url).write(f"manifests/{NAME}", written.encode(None))
    refuses(url, None, tmp_path / "x", "^the manifest")


# Uploads that died


class Broken(MemoryFileSystem):
    """A store in memory that fails when told to."""

    protocol = "broken"
    store: dict[str, Any] = {}
    pseudo_dirs: list[str] = [""]
    #: Called with what is done and the path.
    fails: Callable[[str, str], None] = staticmethod(lambda what, path: None)

    def _open(self, path, mode="rb", **kwargs):
        Broken.fails("write" if "w" in mode else "read", path)
        return super()._open(path, mode=mode, **kwargs)

    def mv(self, path1, path2, **kwargs):
        Broken.fails("move", path2)
        super().mv(path1, path2, **kwargs)
        Broken.fails("moved", path2)

    def info(self, path, **kwargs):
        Broken.fails("info", path)
        return super().info(path, **kwargs)

    def ls(self, path, detail=True, **kwargs):
        Broken.fails("ls", path)
        return super().ls(path, detail=detail, **kwargs)

    def cat_file(self, path, start=None, end=None, **kwargs):
        Broken.fails("cat", path)
        return super().cat_file(path, start=start, end=end, **kwargs)

    def rm(self, path, recursive=False, maxdepth=None):
        Broken.fails("rm", path)
        super().rm(path, recursive=recursive, maxdepth=maxdepth)


fsspec.register_implementation("broken", Broken, clobber=True)


@pytest.fixture
def broken():
    """A URL in a store that can be made to fail."""
    yield f"broken://{uuid.uuid4().hex}"
    Broken.fails = staticmethod(lambda what, path: None)


def fail(what: str, part: str, error: Exception) -> None:
    """Let the store fail in doing this with such a path."""

    def fails(done: str, path: str) -> None:
        if done == what and path.endswith(part):
            raise error

    Broken.fails = staticmethod(fails)


@pytest.mark.parametrize(("what", "part"), [("write", "/b"), ("write", ".manifest"), ("move", "")])
def test_an_upload_that_failed_is_not_seen_and_the_next_one_heals_it(
    broken: str, keys: Keys | None, what: str, part: str, tmp_path
) -> None:
    """Wherever it failed, nobody fetches half an artifact."""
    files = source(tmp_path / "from", {"a": b"1", "b": b"2"})
    vault = Vault.open(broken, keys)
    fail(what, part, OSError(28, "No space left on device"))
    with pytest.raises(UnavailableError, match=r"No space left on device.*Check free space"):
        vault.put(NAME, files)
    Broken.fails = staticmethod(lambda what, path: None)
    assert vault.names() == []
    assert not vault.fetch(NAME, tmp_path / "to")
    assert vault.put(NAME, files)
    assert vault.fetch(NAME, tmp_path / "to")
    assert held(tmp_path / "to") == {"a": b"1", "b": b"2"}


def test_a_lost_answer_to_the_last_step_harms_nothing(broken: str, keys, tmp_path) -> None:
    """The manifest may be in place although the store said no: its files must stay."""
    vault, files = Vault.open(broken, keys), source(tmp_path / "from", {"a": b"1"})
    fail("moved", f"manifests/{NAME}", TimeoutError())
    with pytest.raises(UnavailableError, match="TimeoutError"):
        vault.put(NAME, files)
    Broken.fails = staticmethod(lambda what, path: None)
    assert vault.fetch(NAME, tmp_path / "to")
    assert not vault.put(NAME, files)


@pytest.mark.parametrize("what", ["info", "cat", "ls", "rm", "write", "move"])
@pytest.mark.parametrize(
    "error",
    [PermissionError(13, "Permission denied"), ConnectionError("down"), RuntimeError("boto")],
)
def test_trouble_with_the_store_says_what_to_check(broken, what: str, error, tmp_path) -> None:
    """Whatever class of its own the store's library raises."""
    vault = Vault.open(broken)
    vault.put(NAME, source(tmp_path / "from", {"a": b"1"}))
    files = source(tmp_path / "from", {"a": b"1"})
    act = {
        "info": lambda: vault.fetch(NAME, tmp_path / "x" / "to"),
        "cat": lambda: vault.fetch(NAME, tmp_path / "x" / "to"),
        "ls": vault.names,
        "rm": lambda: vault.remove(NAME),
        "write": lambda: vault.put(OTHER, files),
        "move": lambda: vault.put(OTHER, files),
    }[what]
    fail(what, "", error)
    with pytest.raises(UnavailableError, match="Check free space, permissions and the network"):
        act()
    assert not (tmp_path / "x").exists() or not list((tmp_path / "x").iterdir())


def test_trouble_with_this_machine_says_what_to_check(url: str, keys, tmp_path) -> None:
    """A source that is gone, a place that is no folder."""
    vault, files = Vault.open(url, keys), source(tmp_path / "from", {"a": b"1"})
    with pytest.raises(UnavailableError, match="Check the path"):
        vault.put_folder(NAME, tmp_path / "nowhere")
    (tmp_path / "from" / "b").mkdir()
    with pytest.raises(UnavailableError, match=r"cannot be read: .*Is a directory"):
        vault.put_folder(NAME, tmp_path / "from")
    assert vault.names() == []
    vault.put(NAME, files)
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match="Free space or choose another"):
        vault.fetch(NAME, tmp_path / "file" / "to")
    with pytest.raises(UnavailableError, match="Free space or choose another"):
        vault.fetch(NAME, tmp_path / "file")
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "vault") == ["file", "from"]


def test_what_a_dead_upload_left_goes_when_it_is_a_day_old(url: str, keys, tmp_path) -> None:
    """Not earlier: it may be alive."""
    files, raw, vault = source(tmp_path / "from", {"a": b"1"}), Raw(url), Vault.open(url, keys)
    vault.put(NAME, files)
    kept = raw.places()
    dead = f"{int(time.time()) - STALE_SECONDS - 100:x}-{'1' * 16}"
    alive = f"{int(time.time()) - STALE_SECONDS // 2:x}-{'2' * 16}"
    for name in (NAME, OTHER):
        for attempt in (dead, alive):
            raw.fs.makedirs(f"{raw.root}/data/{name}/{attempt}", exist_ok=True)
            raw.write(f"data/{name}/{attempt}/a", b"half")
    assert vault.sweep() == 2
    assert raw.places() == sorted([*kept, *(f"data/{n}/{alive}/a" for n in (NAME, OTHER))])


def meanwhile(what: str, part: str, act: Callable[[], object]) -> None:
    """Let somebody else act, once, when this is done with such a path."""

    def acts(done: str, path: str) -> None:
        if done == what and path.endswith(part):
            Broken.fails = staticmethod(lambda what, path: None)
            act()

    Broken.fails = staticmethod(acts)


def test_of_two_uploads_the_first_to_end_stays(broken: str, keys: Keys | None, tmp_path) -> None:
    """And the other leaves nothing."""
    files = source(tmp_path / "from", {"a": b"1"})
    meanwhile("write", ".manifest", lambda: Vault.open(broken, keys).put(NAME, files))
    assert not Vault.open(broken, keys).put(NAME, files)
    assert len(Raw(broken).places()) == 2
    assert Vault.open(broken, keys).fetch(NAME, tmp_path / "to")


def test_an_upload_that_fails_beside_another_does_it_no_harm(
    broken: str, keys: Keys | None, tmp_path
) -> None:
    """Libraries of stores keep what was written before an error: that must replace no file."""
    good = source(tmp_path / "good", {"a": content(3 * CHUNK)})
    bad = source(tmp_path / "bad", {"a": content(3 * CHUNK)})

    def overtaken() -> None:
        assert Vault.open(broken, keys).put(NAME, good)
        bad["a"].unlink()
        bad["a"].mkdir()

    meanwhile("write", "/a", overtaken)
    with pytest.raises(UnavailableError, match="cannot be read"):
        Vault.open(broken, keys).put(NAME, bad)
    assert Vault.open(broken, keys).fetch(NAME, tmp_path / "to")
    assert held(tmp_path / "to") == {"a": content(3 * CHUNK)}


def test_what_is_removed_below_an_upload_is_not_published(broken: str, keys, tmp_path) -> None:
    """A manifest without its files would be damage."""
    files = source(tmp_path / "from", {"a": b"1"})
    meanwhile("write", ".manifest", lambda: Raw(broken).drop(f"data/{NAME}"))
    with pytest.raises(UnavailableError, match="did not arrive whole"):
        Vault.open(broken, keys).put(NAME, files)
    assert Raw(broken).places() == []


def test_what_is_removed_below_a_download_is_not_there(broken: str, keys, tmp_path) -> None:
    """Removed, not damaged."""
    vault = Vault.open(broken, keys)
    for part in ("/a", f"manifests/{NAME}"):
        vault.put(NAME, source(tmp_path / "from", {"a": b"1"}))
        meanwhile("cat", part, lambda: Vault.open(broken).remove(NAME))
        assert not vault.fetch(NAME, tmp_path / "x" / "to")
    assert not list((tmp_path / "x").iterdir())


@pytest.mark.parametrize(("what", "part"), [("cat", "/a"), ("write", "/a"), ("write", ".manifest")])
def test_of_two_rotations_one_does_the_work(broken: str, what: str, part: str, tmp_path) -> None:
    """Wherever the other is when it is overtaken; nothing is left of it."""
    Vault.open(broken, OLD).put(NAME, source(tmp_path / "from", {"a": content(5 * CHUNK)}))
    meanwhile(what, part, lambda: Vault.open(broken, NEW).rotate())
    assert Vault.open(broken, NEW).rotate() == 0
    assert len(Raw(broken).places()) == 2
    assert Vault.open(broken, Keys({"new": b"n" * 32})).fetch(NAME, tmp_path / "to")


def test_a_download_that_is_always_overtaken_gives_up(broken: str, tmp_path) -> None:
    """It says so, instead of calling it damage."""
    files = source(tmp_path / "from", {"a": b"1"})
    Vault.open(broken).put(NAME, files)

    def again(done: str, path: str) -> None:
        if done == "cat" and path.endswith("/a"):
            Vault.open(broken).remove(NAME)
            Vault.open(broken).put(NAME, files)

    Broken.fails = staticmethod(again)
    with pytest.raises(UnavailableError, match="is replaced all the time"):
        Vault.open(broken).fetch(NAME, tmp_path / "x" / "to")
    assert not list((tmp_path / "x").iterdir())


def test_an_artifact_stays_however_old_it_is(url: str, tmp_path) -> None:
    """Only what no manifest names is swept."""
    raw = Raw(url)
    old = f"{int(time.time()) - 10 * STALE_SECONDS:x}-{'1' * 16}"
    files = {"a": Entry(size=3, blake3=blake3(b"abc").hexdigest())}
    written = Manifest(name=NAME, attempt=old, key=None, files=files)
    for place, data in ((written.place("a"), b"abc"), (f"manifests/{NAME}", written.encode(None))):
        raw.fs.makedirs(f"{raw.root}/{place}".rpartition("/")[0], exist_ok=True)
        raw.write(place, data)
    assert Vault.open(url).sweep() == 0
    assert Vault.open(url).fetch(NAME, tmp_path / "to")


KILLED = """
import sys
from pathlib import Path
from weights.storage.encryption_keys import Keys
from weights.storage.artifact_store import Vault

_, what, url, name, folder = sys.argv
keys = Keys({"new": b"n" * 32, "old": b"o" * 32})
vault = Vault.open(url, keys)
vault.put_folder(name, Path(folder)) if what == "put" else vault.rotate()
"""


def killed(failpoint: str, *arguments: str) -> None:
    """Run the program above until SIGKILL at a failpoint."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments],
        env={**os.environ, "FORGE_FAILPOINTS": f"kill:{failpoint}"},
        cwd=Path(__file__).parents[3],
        capture_output=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize(
    ("failpoint", "there"),
    [("vault-file-uploaded:1", False), ("vault-uploaded:1", False), ("vault-published:1", True)],
)
def test_a_killed_upload_is_there_whole_or_not_at_all(
    failpoint: str, there: bool, tmp_path
) -> None:
    """SIGKILL gives no time to tidy up."""
    files, url = source(tmp_path / "from", {"a": b"1", "b": b"2"}), f"file://{tmp_path}/vault"
    killed(failpoint, "put", url, NAME, str(tmp_path / "from"))
    vault = Vault.open(url, NEW)
    assert vault.fetch(NAME, tmp_path / "early") is there
    assert vault.put(NAME, files) is not there
    assert vault.fetch(NAME, tmp_path / "to")


# Keys


def test_under_another_key_nothing_can_be_read(url: str, tmp_path) -> None:
    """The message names the key that is missing, or says that two share an id."""
    files = source(tmp_path / "from", {"a": b"1"})
    Vault.open(url, OLD).put(NAME, files)
    for keys, match in (
        (None, "under key old and no key was given. Set FORGE_ARTIFACT_KEY"),
        (Keys({"new": b"n" * 32}), "under key old, which is not among the keys. Add its line"),
    ):
        vault = Vault.open(url, keys)
        for act in (
            lambda v=vault: v.fetch(NAME, tmp_path / "x"),
            lambda v=vault: v.put(NAME, files),
        ):
            with pytest.raises(ConfigError, match=match):
                act()
    with pytest.raises(TamperedError, match="or key old is another"):
        Vault.open(url, Keys({"old": b"x" * 32})).fetch(NAME, tmp_path / "x")
    assert Vault.open(url).remove(NAME)


def test_rotation_encrypts_all_under_the_first_key(url: str, tmp_path) -> None:
    """What was plain, what was under an older key; then the older one can go."""
    files = {f"f{size}": content(size) for size in (0, CHUNK, 5 * CHUNK + 1)}
    names = [f"{number:064x}" for number in range(4)]
    for name, keys in zip(names, (None, OLD, NEW, OLD), strict=True):
        Vault.open(url, keys).put(name, source(tmp_path / "from", files))
    vault, raw = Vault.open(url, NEW, plain=True), Raw(url)
    places = len(raw.places())
    dead = f"data/{OTHER}/1-{'1' * 16}"
    raw.fs.makedirs(f"{raw.root}/{dead}", exist_ok=True)
    raw.write(f"{dead}/a", b"under an older key")
    assert vault.fetch(names[0], tmp_path / "plain")
    assert vault.rotate() == 3
    assert vault.rotate() == 0
    assert Vault.open(url, NEW).rotate() == 0
    assert len(raw.places()) == places
    alone = Vault.open(url, Keys({"new": b"n" * 32}))
    for name in names:
        assert alone.fetch(name, tmp_path / name)
        assert held(tmp_path / name) == files
    with pytest.raises(ConfigError, match="needs keys"):
        Vault.open(url).rotate()


@pytest.mark.slow
@pytest.mark.parametrize("hit", range(1, 5))
def test_a_killed_rotation_loses_nothing_and_is_taken_up_again(hit: int, tmp_path) -> None:
    """Killed at each of the steps of two artifacts: file, manifest, published; then the next."""
    url, names = f"file://{tmp_path}/vault", [NAME, OTHER]
    for name in names:
        Vault.open(url, OLD).put(name, source(tmp_path / "from", {"a": content(CHUNK + 1)}))
    killed(f":{hit}", "rotate", url, NAME, "")
    for name in names:
        assert Vault.open(url, NEW).fetch(name, tmp_path / "early" / name)
    assert Vault.open(url, NEW).rotate() == (2 if hit < 3 else 1)
    for name in names:
        assert Vault.open(url, Keys({"new": b"n" * 32})).fetch(name, tmp_path / "late" / name)


def test_rotation_passes_over_what_is_damaged_and_says_so(url: str, tmp_path) -> None:
    """One bad file must not keep the old key alive for all others, nor be hidden by a new seal."""
    for name in (NAME, OTHER):
        Vault.open(url, OLD).put(name, source(tmp_path / "from", {"a": content(100)}))
    raw = Raw(url)
    raw.write(raw.file("/a"), flip(raw.read(raw.file("/a")), HEADER))
    before = raw.read(f"manifests/{NAME}")
    with pytest.raises(
        TamperedError, match=f"1 artifacts were .* 1 cannot be: a of artifact {NAME}"
    ):
        Vault.open(url, NEW).rotate()
    assert raw.read(f"manifests/{NAME}") == before
    assert Vault.open(url, Keys({"new": b"n" * 32})).fetch(OTHER, tmp_path / "to")


def intruded(url: str, folder: Path) -> None:
    """A sealed artifact, and in its place a plain one of somebody who has no key."""
    files = {"model.safetensors": b"weights", "tokenizer_config.json": b"{}"}
    Vault.open(url, OLD).put(NAME, source(folder / "from", files))
    evil = source(folder / "evil", {**files, "tokenizer_config.json": b'{"chat_template": "EVIL"}'})
    raw = Raw(url)
    raw.drop(f"manifests/{NAME}")
    assert Vault.open(url).put(NAME, evil)


def test_a_plain_artifact_in_the_place_of_a_sealed_one_is_refused(url: str, tmp_path) -> None:
    """Weights have a digest of their own, tokenizer and config have not: only the seal holds them."""
    intruded(url, tmp_path)
    vault = Vault.open(url, OLD)
    for act in (lambda: vault.fetch(NAME, tmp_path / "to"), lambda: vault.files(NAME)):
        with pytest.raises(ConfigError, match=r"not encrypted, and keys are set.*rotate --plain"):
            act()
    assert not (tmp_path / "to").exists()
    assert vault.names() == [NAME], "it is left for whoever runs the store to look at"


def test_rotation_seals_nothing_that_was_not_sealed(url: str, tmp_path) -> None:
    """Else a stranger's file would have the real key's seal from then on. The others are done."""
    intruded(url, tmp_path)
    Vault.open(url, OLD).put(OTHER, source(tmp_path / "other", {"a": b"1"}))
    before = Raw(url).read(f"manifests/{NAME}")
    with pytest.raises(
        ConfigError, match=f"1 artifacts were .* 1 cannot be: artifact {NAME} is not"
    ):
        Vault.open(url, NEW).rotate()
    assert Raw(url).read(f"manifests/{NAME}") == before
    assert Vault.open(url, Keys({"new": b"n" * 32})).fetch(OTHER, tmp_path / "to")


def test_whoever_has_the_files_puts_them_in_the_place_of_a_plain_artifact(
    url: str, tmp_path
) -> None:
    """A store heals by its own workers: what they put is sealed."""
    intruded(url, tmp_path)
    vault = Vault.open(url, OLD)
    assert vault.put_folder(NAME, tmp_path / "from")
    assert vault.fetch(NAME, tmp_path / "to")
    assert held(tmp_path / "to")["tokenizer_config.json"] == b"{}"


def test_whole_sealed_artifacts_cannot_be_exchanged(url: str, tmp_path) -> None:
    """Every byte under one name is put under another: the names are bound in."""
    vault, raw, model = Vault.open(url, OLD), Raw(url), f"model-{NAME}"
    for name, text in ((OTHER, b"2"), (model, b"3")):
        vault.put(name, source(tmp_path / "from", {"a": text}))
        stolen = [p for p in raw.places() if f"/{name}" in p]
        for place in stolen:
            mine = place.replace(f"/{name}", f"/{NAME}")
            raw.fs.makedirs(f"{raw.root}/{mine}".rpartition("/")[0], exist_ok=True)
            raw.write(mine, raw.read(place))
        assert len(stolen) == 2
        refuses(url, OLD, tmp_path / "x", "^the manifest of artifact .* fails its check")


def test_a_model_and_bare_weights_have_names_of_their_own(
    url: str, keys: Keys | None, tmp_path
) -> None:
    """A champion's weights must not hide the model that a run on another machine needs."""
    vault, model = Vault.open(url, keys), f"model-{NAME}"
    assert vault.put(NAME, source(tmp_path / "bare", {"a.safetensors": b"1"}))
    assert vault.put(
        model, source(tmp_path / "model", {"a.safetensors": b"1", "config.json": b"{}"})
    )
    assert vault.names() == [NAME, model]
    assert vault.files(NAME) == ("a.safetensors",)
    assert vault.files(model) == ("a.safetensors", "config.json")
    assert vault.files(OTHER) == ()
    assert vault.fetch(model, tmp_path / "to")
    assert set(held(tmp_path / "to")) == {"a.safetensors", "config.json"}


# Other versions of the program


def other_format(data: bytes, number: int) -> bytes:
    """Return a manifest's stored bytes with another format number, and a right checksum."""
    rest = data.partition(b"\n")[2].replace(b"forge manifest 2 ", b"forge manifest %d " % number)
    return blake3(rest).hexdigest().encode() + b"\n" + rest


def test_a_newer_format_is_refused_and_not_called_damaged(
    url: str, keys: Keys | None, tmp_path
) -> None:
    """Its checksum is right: the program is to be updated, and nothing is to be removed."""
    files = source(tmp_path / "from", {"a": b"1"})
    vault = Vault.open(url, keys)
    vault.put(NAME, files)
    newer = other_format(Raw(url).read(f"manifests/{NAME}"), 3)
    Raw(url).write(f"manifests/{NAME}", newer)
    for act in (lambda: vault.fetch(NAME, tmp_path / "to"), lambda: vault.put(NAME, files)):
        with pytest.raises(ConfigError, match=r"in format 3, .* reads 2\. Update the program"):
            act()
    assert Raw(url).read(f"manifests/{NAME}") == newer


#: The first bytes of a manifest of format 1, encrypted and plain.
FORMAT_1 = {
    "sealed": b"\x89FORGE\r\n\x01" + b"old".ljust(32, b"\0") + bytes(100),
    "plain": b'{"format":1,"blake3":"' + b"0" * 64 + b'","manifest":{}}',
}


@pytest.mark.parametrize("before", FORMAT_1)
def test_a_store_of_format_1_is_refused_in_one_sentence(
    url: str, before: str, keys: Keys | None, tmp_path
) -> None:
    """No release wrote it. It is neither damaged nor taken over, and it can be removed."""
    vault, files = Vault.open(url, keys), source(tmp_path / "from", {"a": b"1"})
    vault.put(NAME, files)
    Raw(url).write(f"manifests/{NAME}", FORMAT_1[before])
    for act in (
        lambda: vault.fetch(NAME, tmp_path / "to"),
        lambda: vault.files(NAME),
        lambda: vault.put(NAME, files),
        lambda: Vault.open(url, NEW, plain=True).rotate(),
    ):
        with pytest.raises(ConfigError, match=r"was stored in format 1, .*forge artifacts remove"):
            act()
    assert vault.names() == [NAME]
    assert vault.remove(NAME)
    assert vault.put(NAME, files)


# Names and places


@pytest.mark.parametrize(
    "bad", ["", "/dir", "file://", "file:///", "file://dir", "s3://", "nonsense://x/y", "://x",
            "simplecache::memory://x", "memory://a*b"],
)  # fmt: skip
def test_a_bad_url_is_refused(bad: str) -> None:
    """Before any work."""
    with pytest.raises(ConfigError):
        Vault.open(bad)


@pytest.mark.parametrize("error", [ValueError, OSError])
def test_the_password_of_a_store_is_not_in_what_its_library_says(error: type[Exception]) -> None:
    """Libraries put the address into their errors."""

    class Talks(MemoryFileSystem):
        protocol = "talks"
        cachable = False

        def info(self, path, **kwargs):
            raise error("http://ada:PASS@host/x: 403")

        @classmethod
        def _get_kwargs_from_urls(cls, path):
            if "broken" in path:
                raise error(f"no {path}")
            return {}

    fsspec.register_implementation("talks", Talks, clobber=True)
    with pytest.raises(UnavailableError, match="vault talks://host/x cannot look for") as said:
        Vault.open("talks://ada:PASS@host/x").remove(NAME)
    assert "PASS" not in str(said.value)
    with pytest.raises((ConfigError, UnavailableError), match="host/broken") as said:
        Vault.open("talks://ada:PASS@host/broken")
    assert "PASS" not in str(said.value)


def test_a_missing_package_is_named() -> None:
    """As fsspec names it: for s3:// it is s3fs."""
    fsspec.register_implementation(
        "absent", "no_such_package.Store", clobber=True, errtxt="Install no-such-package"
    )
    with pytest.raises(ConfigError, match=r"absent://x.*Install no-such-package") as caught:
        Vault.open("absent://user:word@x")
    assert "word" not in str(caught.value)


def test_a_store_that_cannot_be_reached_is_said_at_once() -> None:
    """Some connect when they are opened."""

    class Far(MemoryFileSystem):
        protocol = "far"

        def __init__(self, **options: Any) -> None:
            raise ConnectionRefusedError("no route")

    fsspec.register_implementation("far", Far, clobber=True)
    with pytest.raises(UnavailableError, match="cannot be reached: no route"):
        Vault.open("far://x")


@pytest.mark.parametrize(
    "name",
    ["", "abc", "AB" * 32, "../" + "a" * 61, NAME + "\n", "*" * 64, "model-", f"models-{NAME}"],
)
def test_a_bad_name_is_refused(name: str, url: str, tmp_path) -> None:
    """Names become paths."""
    vault, files = Vault.open(url), source(tmp_path / "from", {"a": b"1"})
    for act in (
        lambda: vault.put(name, files),
        lambda: vault.fetch(name, tmp_path / "to"),
        lambda: vault.remove(name),
    ):
        with pytest.raises(ConfigError, match="64 hex digits"):
            act()


@pytest.mark.parametrize("file", ["", ".a", "a/b", "a b", "a*", "../a", "x" * 201, "a\n", "é"])
def test_a_bad_file_name_is_refused(file: str, url: str, tmp_path) -> None:
    """It must be the same on every store and every machine."""
    path = source(tmp_path / "from", {"a": b"1"})["a"]
    with pytest.raises(ConfigError, match="cannot hold the files"):
        Vault.open(url).put(NAME, {"good": path, file: path})
    with pytest.raises(ConfigError, match="cannot hold the files"):
        Vault.open(url).put(NAME, {})


# Several at once, large, any size


def test_many_may_put_and_fetch_the_same_at_once(url: str, keys: Keys | None, tmp_path) -> None:
    """Threads here; nothing in a vault knows of other users."""
    files = {"a": content(2 * CHUNK + 3), "b": b""}
    paths, start = source(tmp_path / "from", files), threading.Barrier(6)

    def one(number: int) -> bool:
        vault = Vault.open(url, keys)
        start.wait()
        vault.put(NAME, paths)
        return vault.fetch(NAME, tmp_path / "to" / "shared") and vault.fetch(
            NAME, tmp_path / "to" / str(number)
        )

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(one, range(6)))
    assert {p.name for p in (tmp_path / "to").iterdir()} == {"shared", *map(str, range(6))}
    assert all(held(folder) == files for folder in (tmp_path / "to").iterdir())


def test_fetching_while_others_rotate_and_put_never_sees_half(url: str, tmp_path) -> None:
    """A download whose files are replaced below it begins again."""
    files = {"a": content(CHUNK), "b": content(5 * CHUNK)}
    paths = source(tmp_path / "from", files)
    Vault.open(url, None).put(NAME, paths)
    done = threading.Event()

    def rotates() -> None:
        for number in range(12):
            by_id = {f"k{number + back}": bytes([number + back]) * 32 for back in (1, 0)}
            Vault.open(url, Keys(by_id), plain=number == 0).rotate()
        done.set()

    every = Keys({f"k{number}": bytes([number]) * 32 for number in range(13)})
    with ThreadPoolExecutor(1) as pool:
        turning, fetched = pool.submit(rotates), 0
        while not done.is_set() and not turning.done():
            with contextlib.suppress(UnavailableError):  # it gives up where it is never left alone
                assert Vault.open(url, every, plain=True).fetch(NAME, tmp_path / f"to{fetched}")
                assert held(tmp_path / f"to{fetched}") == files
            fetched += 1
        turning.result()
    assert Vault.open(url, every).fetch(NAME, tmp_path / "last")
    assert len(Raw(url).places()) == 3


@pytest.mark.slow
def test_memory_does_not_grow_with_a_file(keys: Keys | None, tmp_path) -> None:
    """64 MiB up, down and encrypted again, in less than 16 MiB."""
    url, path = f"file://{tmp_path}/vault", tmp_path / "large"
    with path.open("wb") as file:
        for number in range(64):
            file.write(bytes([number]) * CHUNK)
    Vault.open(url, NEW).names()  # what is imported once is not counted
    tracemalloc.start()
    try:
        Vault.open(url, keys).put(NAME, {"large": path})
        Vault.open(url, NEW, plain=True).fetch(NAME, tmp_path / "to")
        assert Vault.open(url, NEW, plain=True).rotate() == 1
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 * 2**20
    assert (tmp_path / "to" / "large").stat().st_size == 64 * CHUNK


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(
        st.one_of(
            st.integers(0, 100),
            st.integers(0, 6 * CHUNK),
            st.builds(lambda chunks, more: max(0, chunks * CHUNK + more),
                      st.integers(0, 9), st.integers(-17, 17)),
        ),
        min_size=1, max_size=4,
    ),
    ids=st.sampled_from([None, OLD, NEW]),
)  # fmt: skip
def test_files_of_any_sizes_come_back(sizes: list[int], ids: Keys | None) -> None:
    """The property behind all others, also after a rotation."""
    url = f"memory://{uuid.uuid4().hex}"
    files = {f"f{number}": content(size) for number, size in enumerate(sizes)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Vault.open(url, ids).put(NAME, source(folder / "from", files))
        for number in range(2):
            vault = Vault.open(url, NEW, plain=ids is None and number == 0)
            assert vault.fetch(NAME, folder / str(number))
            assert held(folder / str(number)) == files
            assert vault.rotate() == (ids is not NEW and number == 0)
    Vault.open(url, NEW).remove(NAME)
