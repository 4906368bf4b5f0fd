"""The log on a machine with other users: they can neither read it nor stop it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent_forge.cli.main import forge
from agent_forge.runs.home import Home

NOBODY = 65534
#: Tries as another user to read the log, and to lock what its writers lock.
STRANGER = """
import fcntl, os, sqlite3, sys
os.setgroups([]); os.setgid({uid}); os.setuid({uid})
home, told = sys.argv[1], []
for name in ("forge.db", "forge.db-journal", "forge.db-wal", "forge.db-shm"):
    for flags in (os.O_RDONLY, os.O_RDWR):
        try:
            fcntl.flock(os.open(os.path.join(home, name), flags), fcntl.LOCK_EX)
            told.append(name)
        except PermissionError:
            pass
        except FileNotFoundError:
            pass
try:
    sqlite3.connect(f"file:{{home}}/forge.db?mode=ro", uri=True).execute("select 1 from events")
    told.append("read")
except sqlite3.OperationalError:
    pass
print(" ".join(told))
"""


@pytest.fixture
def home() -> Iterator[Home]:
    """A home in a folder that everybody may enter, opened once."""
    outside = Path(tempfile.mkdtemp())
    outside.chmod(0o755)
    before = os.umask(0o022)
    try:
        found = Home(outside / "home")
        found.open_store().close()
        yield found
    finally:
        os.umask(before)
        shutil.rmtree(outside)


def doctor(home: Home) -> str:
    env = {"FORGE_HOME": str(home.folder), "FORGE_DATABASE_URL": None}
    return CliRunner(env=env).invoke(forge, ["doctor"]).output


def test_home_and_log_are_made_for_their_owner_alone(home: Home) -> None:
    """Though the umask would let others read; the log's own files too, in whatever folder."""
    assert home.folder.stat().st_mode & 0o777 == 0o700
    modes = {file.name: file.stat().st_mode & 0o777 for file in home.folder.glob("forge.db*")}
    others = {f"forge.db-{end}" for end in ("journal", "wal", "shm")}
    assert {"forge.db"} <= set(modes) <= {"forge.db"} | others, "SQLite's own files only"
    assert set(modes.values()) == {0o600}


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_another_user_can_neither_read_the_log_nor_lock_its_writers_out(home: Home, mode: int) -> None:
    """A reader's lock kept every writer out for as long as it was held; also in an open folder."""
    home.folder.chmod(mode)
    done = subprocess.run(
        [sys.executable, "-I", "-c", STRANGER.format(uid=NOBODY), str(home.folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")


def test_the_doctor_warns_where_others_may_open_the_log(home: Home) -> None:
    """Homes of earlier versions are wider, and modes are the user's to decide."""
    assert "folder and log are yours alone" in doctor(home)
    home.database.chmod(0o644)
    told = doctor(home)
    assert "other users of this machine may open forge.db:" in told
    assert f"chmod -R go= {home.folder}" in told
