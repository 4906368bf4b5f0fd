"""Most memory that a command and the processes that it starts have together, and their time.

    python -m benchmarks.memory forge pipeline run examples/speedrun.toml --output-dir speedrun

Twice a second the memory of all of them is added up (PSS: what several share is divided among them).
Beside the most is printed what a process has that has only imported torch and transformers.
The exit code is the command's.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

#: Seconds between two looks.
PERIOD = 0.5
IMPORTS = """
import torch, torch._dynamo, transformers
from transformers import AutoModelForCausalLM, LlamaForCausalLM
print("ready", flush=True)
input()
"""


def family(first: int) -> list[int]:
    """Return the process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(place.name))
    found = [first]
    for process in found:  # grows while it is read
        found.extend(children.get(process, ()))
    return found


def _sum(first: int, file: str, start: str) -> float:
    """Return the MiB on lines that begin with `start` of /proc/PID/`file`, over all descendants."""
    total = 0
    for process in family(first):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{process}/{file}").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith(start))
    return total / 1024


def _held(first: int) -> float:
    """Return the MiB of a process and all that descend from it, shared pages divided (PSS)."""
    return _sum(first, "smaps_rollup", "Pss:")


def anonymous(first: int) -> float:
    """Return the MiB of private memory (RssAnon) of a process and all that descend from it."""
    return _sum(first, "status", "RssAnon:")


def imports(held: Callable[[int], float]) -> float:
    """Return the MiB, as `held` measures a process, of a new one with the imports of every run."""
    command = [sys.executable, "-c", IMPORTS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            return held(process.pid)
        finally:
            process.kill()


def _processor() -> float:
    """Return the seconds of processor time of all processes that have been waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Run the command that is given, and print the most that it had."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="a program with its arguments")
    command = parser.parse_args().command
    if not command or shutil.which(command[0]) is None:
        parser.error(f"no program {command[0]} is found" if command else "give a command")
    alone = imports(_held)
    most, began, before = 0.0, time.monotonic(), _processor()
    with subprocess.Popen(command) as process:
        while process.poll() is None:
            most = max(most, _held(process.pid))
            time.sleep(PERIOD)
    minutes = (time.monotonic() - began) / 60
    print(
        f"at most {most:,.0f} MiB in {minutes:.1f} minutes, {_processor() - before:,.0f} s of "
        f"processor time; imports alone {alone:,.0f} MiB",
        file=sys.stderr,
    )
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
