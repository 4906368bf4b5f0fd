"""Compiler of the loops, and the folder that caches compiled code.

numba's cache notices a change of a function's own file, but not of the functions that it calls. So
the cache is a folder whose name is the digest of all these files: beside them or, if that cannot be
written, in the user's cache.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

from numba import njit
from numba.core import config
from numba.extending import intrinsic as _intrinsic

_HERE = Path(__file__).parent


@cache
def _folder() -> str | None:
    """Make the folder of compiled code; return its path, a string, or None if none can be written."""
    files = sorted(_HERE.glob("*.py"))
    stamp = hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:16]
    user = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "agent-forge"
    for place in (_HERE / "__pycache__", user):
        if not place.is_absolute():  # the home folder is unknown
            continue
        try:
            (place / stamp).mkdir(parents=True, exist_ok=True)
            if os.access(place / stamp, os.W_OK):
                return str(place / stamp)
        except OSError:
            continue
    return None


def is_new() -> bool:
    """Return True if a merge must first wait for the compiler: a new machine, or an upgrade."""
    folder = _folder()
    return folder is None or not any(Path(folder).rglob("passes.merged*.nbi"))


def compiled(function: Callable) -> Callable:
    """Return the function, compiled at its first call, without the interpreter's lock."""
    options = {"nogil": True, "error_model": "numpy"}
    folder = _folder()
    if folder is None:
        return njit(**options)(function)
    before, config.CACHE_DIR = config.CACHE_DIR, folder  # pyright: ignore
    try:
        return njit(cache=True, **options)(function)
    finally:
        config.CACHE_DIR = before  # pyright: ignore


def intrinsic(function: Callable) -> Callable:
    """Return a function in the compiler's own language. Callers leave the typing context out."""
    return _intrinsic(function)
