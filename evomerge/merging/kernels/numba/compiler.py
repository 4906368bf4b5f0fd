"""How loops are compiled, and where that is kept.

numba's cache sees when a function's own file changes, not when one does that it calls. So it is
kept in a folder whose name is the digest of all of these files: beside them or, where that cannot be
written, in the user's cache.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import config
from numba.extending import intrinsic as _intrinsic

_HERE = Path(__file__).parent


@cache
def _folder() -> str | None:
    """Where compiled code is kept; None where nothing can be written."""
    files = sorted(_HERE.glob("*.py"))
    stamp = hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:16]
    user = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "agent-forge"
    for place in (_HERE / "__pycache__", user):
        if not place.is_absolute():  # nobody's home
            continue
        try:
            (place / stamp).mkdir(parents=True, exist_ok=True)
            if os.access(place / stamp, os.W_OK):
                return str(place / stamp)
        except OSError:
            continue
    return None


def is_new() -> bool:
    """Whether merging has to wait for the compiler first: on a new machine, or after an upgrade."""
    folder = _folder()
    return folder is None or not any(Path(folder).rglob("passes.merged*.nbi"))


def compiled(function: Callable[..., Any]) -> Any:
    """The function, compiled at its first call, without the interpreter's lock."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    folder = _folder()
    if folder is None:
        return njit(**options)(function)
    before, config.CACHE_DIR = config.CACHE_DIR, folder  # pyright: ignore
    try:
        return njit(cache=True, **options)(function)
    finally:
        config.CACHE_DIR = before  # pyright: ignore


def intrinsic(function: Callable[..., Any]) -> Any:
    """A function in the compiler's own language; callers leave the typing context out."""
    return _intrinsic(function)
