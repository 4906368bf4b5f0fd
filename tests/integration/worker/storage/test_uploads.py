"""Uploads and downloads that fail, die or meet each other: an artifact is there whole or not at all."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from blake3 import blake3

from agent_forge.runs.errors import UnavailableError
from agent_forge.weights.storage.artifact_store import STALE_SECONDS, Entry, Manifest, Vault
from agent_forge.weights.storage.encryption import CHUNK, Keys
from testing.services.artifact_stores import (
    NAME,
    NEW,
    OLD,
    OTHER,
    Broken,
    Raw,
    content,
    fail,
    held,
    killed,
    meanwhile,
    source,
)


@pytest.fixture
def broken():
    """A URL in a store that can be made to fail."""
    yield f"broken://{uuid.uuid4().hex}"
    Broken.fails = staticmethod(lambda what, path: None)


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
    "error", [PermissionError(13, "Permission denied"), ConnectionError("down"), RuntimeError("boto")]
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


@pytest.mark.parametrize(
    ("failpoint", "there"),
    [("vault-file-uploaded:1", False), ("vault-uploaded:1", False), ("vault-published:1", True)],
)
def test_a_killed_upload_is_there_whole_or_not_at_all(failpoint: str, there: bool, tmp_path) -> None:
    """SIGKILL gives no time to tidy up."""
    files, url = source(tmp_path / "from", {"a": b"1", "b": b"2"}), f"file://{tmp_path}/vault"
    killed(failpoint, "put", url, NAME, str(tmp_path / "from"))
    vault = Vault.open(url, NEW)
    assert vault.fetch(NAME, tmp_path / "early") is there
    assert vault.put(NAME, files) is not there
    assert vault.fetch(NAME, tmp_path / "to")


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
