"""What can go wrong when a folder is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent_forge.evomerge.tasks.results.champion import check_loads
from agent_forge.runs.errors import ForgeError, UnavailableError
from agent_forge.weights.folders.checkpoint import publish
from testing.worlds.runs import REPOSITORY

_WRITER = """
import sys
from pathlib import Path
from agent_forge.weights.folders.checkpoint import publish
def fill(folder):
    for name in ("a", "b"):
        (folder / name).write_text(sys.argv[2])
for _ in range(30):
    publish(Path(sys.argv[1]), fill)
"""


@pytest.mark.slow
def test_several_writers_of_one_folder_leave_a_whole_one(tmp_path: Path) -> None:
    """Two processes that resume one run both export its champion."""
    out = tmp_path / "champion"
    command = [sys.executable, "-c", _WRITER, str(out)]
    writers = [subprocess.Popen([*command, str(n)], cwd=REPOSITORY) for n in range(2)]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert (out / "a").read_text() == (out / "b").read_text()
    assert [p.name for p in tmp_path.iterdir()] == ["champion"]


def test_a_folder_that_does_not_load_is_not_called_done(tmp_path: Path) -> None:
    """It never gets its name."""

    def fill(folder: Path) -> None:
        (folder / "config.json").write_text("{}")
        check_loads(folder)

    with pytest.raises(ForgeError, match="does not load"):
        publish(tmp_path / "champion", fill)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    """ENOSPC in the middle: one clear error, the old folder untouched."""
    publish(tmp_path / "champion", lambda folder: (folder / "x").write_text("old") and None)

    def fill(folder: Path) -> None:
        (folder / "x").write_text("new")
        raise OSError(28, "No space left on device")

    with pytest.raises(UnavailableError, match="No space left"):
        publish(tmp_path / "champion", fill)
    assert (tmp_path / "champion" / "x").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["champion"]
