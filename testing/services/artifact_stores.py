"""Artifact stores for tests: look into one, change it, let it fail, kill a process that uses it."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from agent_forge.runs.errors import TamperedError
from agent_forge.weights.storage.artifact_store import Vault
from agent_forge.weights.storage.encryption import Keys

OLD, NEW = Keys({"old": b"o" * 32}), Keys({"new": b"n" * 32, "old": b"o" * 32})
NAME, OTHER = "ab" * 32, "cd" * 32


class Raw:
    """The stored files of an artifact store, read and changed without its checks."""

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
        """Return the place of the only copy of a file."""
        (place,) = [p for p in self.places() if p.startswith(f"data/{name}/") and p.endswith(file)]
        return place


def content(size: int, seed: int = 0) -> bytes:
    """Return bytes of which no two chunks are alike."""
    return hashlib.shake_128(f"{size} {seed}".encode()).digest(size)


def source(folder: Path, files: Mapping[str, bytes]) -> dict[str, Path]:
    """Write files into a folder; return their paths by name."""
    folder.mkdir(parents=True, exist_ok=True)
    for file, data in files.items():
        (folder / file).write_bytes(data)
    return {file: folder / file for file in files}


def held(folder: Path) -> dict[str, bytes]:
    """Return the bytes of a folder's files by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def refuses(url: str, keys: Keys | None, folder: Path, match: str | None = None) -> None:
    """Assert that fetching `NAME` raises TamperedError and leaves nothing in the folder."""
    with pytest.raises(TamperedError, match=match) as caught:
        Vault.open(url, keys).fetch(NAME, folder / "to")
    assert NAME in str(caught.value)
    assert not folder.exists() or not list(folder.iterdir())


def flip(data: bytes, at: int) -> bytes:
    """Return the bytes with one bit changed."""
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


class Broken(MemoryFileSystem):
    """A store in memory that fails when it is told to."""

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


def fail(what: str, part: str, error: Exception) -> None:
    """Make the store raise `error` when `what` is done with a path that ends in `part`."""

    def fails(done: str, path: str) -> None:
        if done == what and path.endswith(part):
            raise error

    Broken.fails = staticmethod(fails)


def meanwhile(what: str, part: str, act: Callable[[], object]) -> None:
    """Call `act` once, as another process would, when `what` is done with a path ending in `part`."""

    def acts(done: str, path: str) -> None:
        if done == what and path.endswith(part):
            Broken.fails = staticmethod(lambda what, path: None)
            act()

    Broken.fails = staticmethod(acts)


KILLED = """
import sys
from pathlib import Path
from agent_forge.weights.storage.artifact_store import Vault
from agent_forge.weights.storage.encryption import Keys

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
        cwd=Path(__file__).parents[2],
        capture_output=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
