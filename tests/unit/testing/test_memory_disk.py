"""Temporary folders are in memory only if there is room and programs may run there."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from testing import memory_disk

GIB = 1 << 30


@pytest.mark.parametrize(
    ("memory", "place", "flags", "used"),
    [
        (16 * GIB, 16 * GIB, 0, True),
        (7 * GIB, 16 * GIB, 0, False),
        (16 * GIB, 64 << 20, 0, False),
        (16 * GIB, 16 * GIB, os.ST_NOEXEC, False),
    ],
)
def test_a_folder_in_memory_needs_room_in_both_and_programs_that_may_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: int, place: int, flags: int, used: bool
) -> None:
    """A container gives 64 MB and runs nothing there: its tests use the disk."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(f"MemTotal: 1 kB\nMemAvailable: {memory // 1024} kB\n")
    disk = SimpleNamespace(f_bavail=place // 4096, f_frsize=4096, f_flag=flags)
    monkeypatch.setattr(memory_disk.os, "statvfs", lambda _: disk)
    assert memory_disk.folder(tmp_path, meminfo) == (tmp_path if used else None)


def test_a_system_without_such_a_folder_uses_its_disk(tmp_path: Path) -> None:
    """Not every system has `/dev/shm`."""
    assert memory_disk.folder(tmp_path / "missing") is None
