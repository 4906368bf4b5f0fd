"""The limit of open files: raised before many are opened, and named if it is met."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_forge.runs.errors import UnavailableError
from agent_forge.runs.system import process_limits


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    """Restore the limit of open files afterwards."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_soft_limit_becomes_the_hard_one(limits: tuple[int, int]) -> None:
    """A Mac begins with 256; a large model has 160 shards."""
    hard = limits[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    process_limits.allow_many()
    wanted = process_limits.MOST if hard == resource.RLIM_INFINITY else hard
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (wanted, hard)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
        OSError(errno.ENFILE, os.strerror(errno.ENFILE)),
        RuntimeError("unable to open file <x> in read-only mode: Too many open files (24)"),
        FileNotFoundError("No such file or directory: x"),
    ],
    ids=["EMFILE", "ENFILE", "torch", "safetensors"],
)
def test_too_many_open_files_are_the_machine_s_fault(tmp_path: Path, error: Exception) -> None:
    """With the command that allows more, in the words of whichever library met the limit."""
    file = tmp_path / "model.safetensors"
    file.touch()
    with pytest.raises(UnavailableError, match=r"too many open files, .*`ulimit -n") as refused:
        with process_limits.reading(file):
            raise error
    assert refused.value.exit_code == 3


def test_other_faults_of_the_machine_are_told_apart_from_the_file_s(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="cannot be read now: Input/output error"):
        with process_limits.reading(tmp_path):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
    for error in (PermissionError(errno.EACCES, "no"), FileNotFoundError("x"), RuntimeError("x")):
        with pytest.raises(type(error)), process_limits.reading(tmp_path / "gone"):
            raise error
