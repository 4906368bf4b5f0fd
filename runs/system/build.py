"""The version of the program and the commit that it was built from.

`setup.py` writes the commit into a package that it builds; a checkout asks git.
"""

from __future__ import annotations

import json
import subprocess
from importlib import metadata
from pathlib import Path

#: Written by `setup.py`, beside this module, into built packages only.
FILE = "build.json"
_ROOT = Path(__file__).resolve().parents[2]


def version() -> str:
    """Return the version of the installed program."""
    return metadata.version("agent-forge")


def commit() -> str | None:
    """Return the commit's hash, with "+changes" if a checkout differs from it; None if not known."""
    try:
        return json.loads(Path(__file__).with_name(FILE).read_text("utf-8"))["commit"]
    except (OSError, ValueError, KeyError):
        return of_checkout(_ROOT)


def of_checkout(folder: Path) -> str | None:
    """Return the hash as `commit` does, of the checkout with this root folder; None without one."""
    if not (folder / ".git").exists():
        return None
    commit_hash = _git(folder, "rev-parse", "--short=12", "HEAD")
    if commit_hash is None:
        return None
    return f"{commit_hash}+changes" if _git(folder, "status", "--porcelain", "-uno") else commit_hash


def _git(folder: Path, *words: str) -> str | None:
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def sentence() -> str:
    """Return version and commit, as `forge --version` prints them."""
    commit_hash = commit()
    return version() + (f" (commit {commit_hash})" if commit_hash else "")
