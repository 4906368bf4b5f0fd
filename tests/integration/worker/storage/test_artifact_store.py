"""The artifact store: what is put comes back bit for bit, and every change of it is found."""

from __future__ import annotations

import tempfile
import tracemalloc
import uuid
from pathlib import Path
from typing import Any

import fsspec
import pytest
from blake3 import blake3
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_forge.runs.errors import ConfigError, TamperedError, UnavailableError
from agent_forge.weights.storage.artifact_store import Entry, Manifest, Vault
from agent_forge.weights.storage.encryption import CHUNK, HEADER, TAG, Keys, stored_size
from testing.services.artifact_stores import (
    NAME,
    NEW,
    OLD,
    OTHER,
    Raw,
    content,
    flip,
    held,
    refuses,
    source,
)

#: Every way in which a file can end in a chunk, and more chunks than are read at once.
SIZES = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 9 * CHUNK + 7]


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


#: Positions in a sealed file of two whole chunks and 100 bytes: each part of the header and of a chunk.
SPOTS = {
    "header": 0,
    "header's end": HEADER - 1,
    "first tag": HEADER,
    "first byte": HEADER + 1,
    "first check": HEADER + CHUNK + 3,
    "second tag": HEADER + CHUNK + TAG,
    "last check": HEADER + 2 * (CHUNK + TAG) + 100 + TAG - 1,
}


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


def test_a_damaged_manifest_is_replaced_by_the_next_upload(url: str, keys, tmp_path, caplog) -> None:
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


@pytest.mark.parametrize("file", ["../../escaped", "/etc/x", "", ".", "..", "a/b", ".hidden", "a\n"])
def test_a_manifest_cannot_write_outside_of_its_folder(url: str, file: str, tmp_path) -> None:
    """A stranger may have written it, checksum and all."""
    files = {file: Entry(size=3, blake3=blake3(b"abc").hexdigest())}
    written = Manifest.model_construct(name=NAME, attempt="1-" + "0" * 16, key=None, files=files)
    Raw(url).fs.makedirs(f"{Raw(url).root}/manifests", exist_ok=True)
    Raw(url).write(f"manifests/{NAME}", written.encode(None))
    refuses(url, None, tmp_path / "x", "^the manifest")


# Names and places


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "/dir",
        "file://",
        "file:///",
        "file://dir",
        "s3://",
        "nonsense://x/y",
        "://x",
        "simplecache::memory://x",
        "memory://a*b",
    ],
)
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
    "name", ["", "abc", "AB" * 32, "../" + "a" * 61, NAME + "\n", "*" * 64, "model-", f"models-{NAME}"]
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


# Large files, any size


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
            st.builds(
                lambda chunks, more: max(0, chunks * CHUNK + more),
                st.integers(0, 9),
                st.integers(-17, 17),
            ),
        ),
        min_size=1,
        max_size=4,
    ),
    ids=st.sampled_from([None, OLD, NEW]),
)
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
