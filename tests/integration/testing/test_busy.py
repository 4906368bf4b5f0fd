"""Busy processes beside a command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
#: Prints the process ids of its parent's children, and its own.
LOOK = """
import os, sys
parent = os.getppid()
print(open(f"/proc/{parent}/task/{parent}/children").read(), os.getpid())
sys.exit(7)
"""


def test_every_core_is_busy_as_long_as_a_command_runs() -> None:
    """Its exit code is passed on, and nothing is left."""
    command = ["--each", "2", sys.executable, "-S", "-c", LOOK]
    done = subprocess.run(
        [sys.executable, "-m", "testing.busy", *command], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 7, done.stderr
    *children, own = map(int, done.stdout.split())
    others = set(children) - {own}
    assert len(others) == 2 * len(os.sched_getaffinity(0))
    assert not [pid for pid in others if Path(f"/proc/{pid}").exists()]
