"""Speed and memory of the artifact store with a key and without one.

    python -m benchmarks.weights.sealed [--mib 256] [--folder /dev/shm]

Puts a file of random bytes into a store in a folder and fetches it again, in turn with a key and
without. Printed are MiB a second of processor time, the best of nine, and the most memory that a
process takes for it beyond its imports.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from agent_forge.weights.storage.artifact_store import Vault
from agent_forge.weights.storage.encryption import Keys

TURNS = 9
KEY = Keys({"a": bytes(range(32))})


def processor(work: Callable[[], object]) -> float:
    """Return the seconds of processor time of some work."""
    began = time.process_time()
    work()
    return time.process_time() - began


def turn(folder: Path, file: Path, number: int, sealed: bool) -> tuple[float, float]:
    """Put and fetch a file; return the seconds of each."""
    vault = Vault.open(f"file://{folder}/store", KEY if sealed else None)
    name, fetched = f"{number:064x}", folder / "fetched"
    put = processor(lambda: vault.put(name, {file.name: file}))
    fetch = processor(lambda: vault.fetch(name, fetched))
    (fetched / file.name).unlink()
    fetched.rmdir()
    vault.remove(name)
    return put, fetch


def most_memory(folder: Path, file: Path, sealed: bool) -> float:
    """Return the MiB that a process of its own takes for a turn beyond its imports."""
    command = [sys.executable, "-m", "benchmarks.weights.sealed", "--folder", str(folder)]
    command += ["--turn", str(file), "sealed" if sealed else "plain"]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def peak() -> int:
    """Return the most KiB that this process has had in memory since it began."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def main() -> None:
    """Print a line with a key and one without."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--turn", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.turn:
        before = peak()
        turn(given.folder, Path(given.turn[0]), 0, given.turn[1] == "sealed")
        print((peak() - before) / 1024)
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        file = folder / "weights"
        with file.open("wb") as stream:
            for _ in range(given.mib):
                stream.write(os.urandom(2**20))
        best = {True: (9e9, 9e9), False: (9e9, 9e9)}
        for number in range(2 * TURNS):
            sealed = number % 2 == 0
            put, fetch = turn(folder, file, number, sealed)
            best[sealed] = (min(put, best[sealed][0]), min(fetch, best[sealed][1]))
        for sealed, (put, fetch) in best.items():
            print(
                f"{'with' if sealed else 'without'} a key: put {given.mib / put:,.0f} MiB/s, fetch "
                f"{given.mib / fetch:,.0f} MiB/s; {most_memory(folder, file, sealed):.0f} MiB of memory"
            )


if __name__ == "__main__":
    main()
