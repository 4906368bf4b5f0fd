"""File operations below a vault, at any URL that fsspec knows; all errors become ForgeErrors."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

from agent_forge.runs.errors import ConfigError, ForgeError, UnavailableError
from agent_forge.runs.system.redaction import Address
from agent_forge.weights.storage.encryption import CHUNK

_T = TypeVar("_T")


class GoneError(UnavailableError):
    """A requested file or folder that is not in the store."""


class StoredFiles:
    """The file operations of a vault; all errors of the file system's library become ForgeErrors."""

    def __init__(self, fs: Any, root: str, address: Address) -> None:
        self._fs = fs
        self._root = root.rstrip("/")
        self._address = address
        self._is_local = getattr(fs, "local_file", False)

    def size(self, place: str) -> int | None:
        """Return a file's size in bytes; None if there is no such file."""
        info: dict[str, Any] = {"type": "none"}
        with contextlib.suppress(GoneError), self._doing("look for", place) as path:
            self._fs.invalidate_cache()
            info = self._fs.info(path)
        return info["size"] if info["type"] == "file" else None

    def read(self, place: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return the stored bytes from `start` to `end`, by default all. Raises GoneError."""
        with self._doing("read", place) as path:
            return self._fs.cat_file(path, start=start, end=end)

    def list(self, place: str) -> list[str]:
        """Return the names of the entries of a folder, sorted; [] if there is no folder."""
        entries = []
        with contextlib.suppress(GoneError), self._doing("list", place) as path:
            self._fs.invalidate_cache()
            entries = self._fs.ls(path, detail=False)
        return sorted({str(path).rstrip("/").rpartition("/")[2] for path in entries})

    def write(self, place: str, pieces: Iterable[bytes]) -> None:
        """Write the pieces to a file that does not exist yet; sync it on a local disk."""
        with self._doing("write", place) as path:
            opening = partial(self._fs.open, path, "wb", block_size=8 * CHUNK)
            with self._below(path, opening) as file:
                for piece in pieces:
                    file.write(piece)
                if self._is_local:
                    file.flush()
                    os.fsync(file.fileno())

    def move(self, old: str, new: str) -> None:
        """Replace the file `new` by `old` in one step: by a rename, or by an object store's copy."""
        move = os.replace if self._is_local else self._fs.mv  # a local mv may copy, byte by byte
        with self._doing("write", new) as path:
            self._below(path, lambda: move(f"{self._root}/{old}", path))

    def _below(self, path: str, act: Callable[[], _T]) -> _T:
        """Return `act()`; in stores with folders, make the path's if missing, and call `act` again."""
        try:
            return act()
        except FileNotFoundError:
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            return act()

    def drop(self, place: str) -> None:
        """Remove a file, or a folder with its content; do nothing if it is missing."""
        with contextlib.suppress(GoneError), self._doing("remove", place) as path:
            self._fs.rm(path, recursive=True)

    @contextlib.contextmanager
    def _doing(self, what: str, place: str) -> Iterator[str]:
        """Yield the full path of a place; turn errors of the `with` block into ForgeErrors."""
        path = f"{self._root}/{place}"
        failed = f"vault {self._address.shown} cannot {what} {place}"
        try:
            yield path
        except ForgeError:
            raise
        except FileNotFoundError as error:
            raise GoneError(f"{failed}: it is not there. Check the vault's URL.") from error
        except Exception as error:  # the libraries of stores have no base class in common
            why = self._address.masked(str(error)) or type(error).__name__
            remedy = "Check free space, permissions and the network, then try again"
            raise UnavailableError(f"{failed}: {why}. {remedy}; what is stored is whole.") from error


def connected(url: str) -> StoredFiles:
    """Return the StoredFiles of a URL; errors never show its user and password.

    Raises ConfigError, UnavailableError.
    """
    protocol, _, rest = url.partition("://")
    address = Address(url)
    shown = address.shown
    names_a_folder = rest.strip("/") and (rest[0] == "/" or protocol != "file")
    if not protocol or not names_a_folder or "::" in url or set("*?[") & set(rest):
        remedy = "Give the URL of a folder, as file:///dir or s3://bucket/prefix, without :: * ? ["
        raise ConfigError(f"{shown} cannot be a vault. {remedy}")
    try:
        from fsspec.core import url_to_fs

        return StoredFiles(*url_to_fs(url, use_listings_cache=False), address)
    except (ImportError, ValueError) as error:
        remedy = "Install the package that is named, or correct the URL."
        why = address.masked(str(error))
        raise ConfigError(f"vault {shown} cannot be used: {why}. {remedy}") from error
    except Exception as error:
        why = address.masked(str(error))
        raise UnavailableError(f"vault {shown} cannot be reached: {why}. Try later.") from error
