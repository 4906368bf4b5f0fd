"""Run a command with the system calls that a unit's SystemCallFilter leaves: the rest fail with EPERM.

    python -m testing.system_calls UNIT COMMAND…

systemd itself is not needed for it, only its list of sets (`systemd-analyze`) and the numbers of calls.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from agent_forge.evaluation.sandbox import jail

NUMBERS = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
#: The sandbox gives up root with these; a service is not root.
OF_ROOT = {"setgroups", "setresgid", "setresuid"}


def available() -> bool:
    """Return True if sets and numbers are on this machine."""
    return shutil.which("systemd-analyze") is not None and NUMBERS.exists()


def members(name: str) -> set[str]:
    """Return the calls of a set such as @system-service, those of the sets in it included."""
    command = ["systemd-analyze", "syscall-filter", "--no-pager", name]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    words = [line.strip() for line in lines[1:] if line.strip() and "#" not in line]
    found = {word for word in words if not word.startswith("@")}
    return found.union(*(members(word) for word in words if word.startswith("@")))


def left(unit: Path) -> dict[str, int]:
    """Return the calls that a unit may make, with their numbers."""
    told = re.findall(r"^SystemCallFilter=(~?)(@\S+)$", unit.read_text(), re.MULTILINE)
    calls: set[str] = set()
    for sign, name in told:
        calls = calls - members(name) if sign else calls | members(name)
    text = NUMBERS.read_text()
    numbers = {m[1]: int(m[2]) for m in re.finditer(r"#define __NR_(\w+) (\d+)", text)}
    calls |= {"execve"} | (OF_ROOT if os.getuid() == 0 else set())
    return {name: number for name, number in numbers.items() if name in calls}


if __name__ == "__main__":
    arch, _ = jail.ARCHITECTURES["x86_64"]
    jail.ARCHITECTURES["x86_64"] = (arch, left(Path(sys.argv[1])))
    jail.GUARDED = ()
    jail.apply()
    os.execvp(sys.argv[2], sys.argv[2:])
