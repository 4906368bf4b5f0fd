"""`forge doctor`: checks this machine's packages, device, disk and database."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from agent_forge.cli.options import emit, home, json_option
from agent_forge.runs.system.process_limits import said

PACKAGES = ("torch", "transformers", "safetensors", "tokenizers", "numpy", "pydantic", "sqlmodel")
NEEDED_BYTES = 2_000_000_000

Finding = tuple[str, str, str]  # level (ok, warning, error), what, detail


@click.command("doctor")
@json_option
def doctor_command(as_json: bool) -> None:
    """Check this machine: packages, disk, database, device. Exit code 3 where something is wrong.

    \b
    Example:
      forge doctor
    """
    findings = [*_packages(), *_device(), *_home(), *_database()]
    if as_json:
        emit([{"level": level, "what": what, "detail": detail} for level, what, detail in findings])
    else:
        for level, what, detail in findings:
            click.echo(f"{level:8s}{what:18s}{detail}")
    if any(level == "error" for level, _, _ in findings):
        sys.exit(3)


def _packages() -> Iterator[Finding]:
    yield "ok", "python", sys.version.split()[0]
    for name in PACKAGES:
        try:
            yield "ok", name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield "error", name, "not installed: install the project again, with -c constraints.txt"


def _device() -> Iterator[Finding]:
    import torch

    yield "ok", "threads", f"{torch.get_num_threads()} ({os.cpu_count()} cores)"
    sleep, why = said()
    if sleep:
        yield "ok", "waiting threads", f"they sleep ({why})"
    else:
        yield (
            "warning",
            "waiting threads",
            (
                f"they may spin ({why}): on a busy machine everything takes many times as long. "
                "Unset it, or OMP_WAIT_POLICY=PASSIVE"
            ),
        )
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            yield "ok", f"cuda:{index}", torch.cuda.get_device_name(index)
    else:
        yield "ok", "cuda", "none: everything runs on the CPU"


def _home() -> Iterator[Finding]:
    """Yield (level, what, detail): if the home takes writes, who may open it, its disk space."""
    from agent_forge.runs.home import Home

    home = Home.default()
    folder = home.folder
    try:
        home.make()
        trial = folder / f".doctor-{os.getpid()}"
        with trial.open("w") as file:
            file.write("x")
            file.flush()
            os.fsync(file.fileno())
        trial.rename(trial.with_suffix(".done"))
        trial.with_suffix(".done").unlink()
        yield "ok", "home", f"{folder} (FORGE_HOME)"
    except OSError as error:
        yield "error", "home", f"{folder}: {error.strerror}. Set FORGE_HOME to another folder"
        return
    yield from _modes(folder, home.database)
    free = shutil.disk_usage(folder).free
    level = "ok" if free > NEEDED_BYTES else "warning"
    yield level, "free disk", f"{free / 1e9:.1f} GB"


def _modes(folder: Path, database: Path) -> Iterator[Finding]:
    """Yield one (level, "access", detail): a warning if other users can open the home's files."""
    files = [Path(f"{database}{end}") for end in ("", "-journal", "-wal", "-shm")]
    wide = [path for path in (folder, *files) if path.exists() and path.stat().st_mode & 0o077]
    if wide:
        names = " ".join(path.name for path in wide)
        detail = (
            f"other users of this machine may open {names}: they can read the log, and stop it by a "
            f"lock. If that is not meant: chmod -R go= {folder}"
        )
        yield "warning", "access", detail
    else:
        yield "ok", "access", "folder and log are yours alone"


def _database() -> Iterator[Finding]:
    from agent_forge.events import StoreUnavailableError
    from agent_forge.events.databases.sqlite import WAL_SAFE, journal_mode
    from agent_forge.runs.errors import ForgeError

    version = sqlite3.sqlite_version
    if journal_mode() == "wal":
        yield "ok", "sqlite", f"{version}, write-ahead log"
    else:
        safe = ".".join(map(str, WAL_SAFE))
        yield "ok", "sqlite", f"{version}, rollback journal (the WAL is safe from {safe} on)"
    try:
        store = home().open_store()
        yield "ok", "log", f"{len(store.streams())} runs in {store.database.name}"
        store.close()
    except (ForgeError, StoreUnavailableError) as error:
        yield "error", "log", str(error)
