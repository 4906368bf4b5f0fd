"""Time and memory of a whole run: three models of 25M parameters, 50 generations.

    python -m benchmarks.evomerge.headline [--models FOLDER] [--generations 50] [--home FOLDER]

The run is one that users start: `forge evo` in a process of its own, default settings, no `--data`.
`--models` is a folder with the base and all other models, for example of
`forge cognate --preset 25m`. Without it the models are random weights with siblings 3 % away, which
cost the same to merge and to measure. The stop at convergence is off, so that all generations are
run. Memory is the highest resident size of the process, imports included. With `--home` an
interrupted benchmark goes on; its time is then that of the log, pauses included, and the result
says so. The result also shows how the time is divided among kinds of tasks.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from agent_forge.events import Envelope
from agent_forge.evomerge.reports import report
from agent_forge.evomerge.run.state import RunState
from agent_forge.runs.history.repository import load
from agent_forge.runs.home import Home
from agent_forge.runs.streams import stream
from benchmarks.common import folders, machine
from benchmarks.evomerge.demo_seeds import runs, unfinished

FORGE = Path(sys.prefix) / "bin" / "forge"
#: Limits that are asked for: minutes by the clock, GiB.
MINUTES, GIB = 15, 2


def models(where: Path) -> tuple[Path, list[Path]]:
    """Return the base and the sources of a folder; write random models first if it is empty."""
    if not (where / "base").exists():
        where.mkdir(parents=True, exist_ok=True)
        folders(where)
    others = sorted(p.parent for p in where.glob("*/config.json") if p.parent.name != "base")
    return where / "base", others


def evolve(home: Path, where: Path, generations: int) -> tuple[float | None, float]:
    """Run `forge evo`, or the rest of an interrupted run; return (seconds by the clock, peak GiB).

    The seconds are None if the run had begun earlier: this process's seconds are only a part.
    """
    base, sources = models(where)
    config = home / "headline.toml"
    home.mkdir(parents=True, exist_ok=True)
    config.write_text("convergence_patience = 0\n", "utf-8")
    run = unfinished(home)
    asked = (
        ["--resume", run]
        if run
        else [
            "--base-models",
            ",".join(map(str, sources)),
            "--base-model",
            str(base),
            "--gens",
            str(generations),
            "--config",
            str(config),
        ]
    )
    command = [str(FORGE), "evo", *asked, "--output-dir", str(home / "champion")]
    began = time.perf_counter()
    process = subprocess.Popen(command, env={**os.environ, "FORGE_HOME": str(home)})
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"forge evo ended with {process.returncode}")
    wall = None if run else time.perf_counter() - began
    return wall, used.ru_maxrss * 1024 / 2**30


def told(home: Path, wall: float | None, peak: float) -> list[str]:
    """Return the lines of the result of the newest run of a home."""
    store = Home(home).open_store()
    try:
        name = runs(home)[-1]
        state, rows = load(store, name), store.read(stream("evomerge", name))
    finally:
        store.close()
    return [machine(), *lines(state, rows, wall, peak)]


def lines(state: RunState, rows: Sequence[Envelope], wall: float | None, peak: float) -> list[str]:
    """Return lines of time, memory and their limits; `wall` is None if the run was interrupted."""
    assert state.started
    how = ""
    if wall is None:
        wall = report.wall_seconds(rows)
        how = "; interrupted: time is from the first event to the last, pauses included, memory since"
    spent = report.spent(state, rows)
    rest = wall - sum(spent.values())
    parts = sorted({**spent, "elsewhere": rest}.items(), key=lambda pair: -pair[1])
    items = {s: {d: p.windows for d, p in pools.items()} for s, pools in state.started.pools.items()}
    return [
        f"{len(state.generations)} generations of three models of "
        f"{state.started.base.parameters:,} parameters, evaluated in "
        f"{state.started.profile.evaluation or state.started.profile.dtype}, windows {items}",
        f"by the clock {wall / 60:.1f} min (asked for: under {MINUTES}), peak memory {peak:.2f} GiB "
        f"(asked for: under {GIB}){how}",
        *(f"  {what:24s} {seconds:8.1f} s  {seconds / wall:6.1%}" for what, seconds in parts),
    ]


def main() -> None:
    """Run it and print time, memory and shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--generations", type=int, default=50)
    parser.add_argument("--home", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        home = given.home or Path(scratch) / "home"
        where = given.models or home.with_name(home.name + "-models")
        wall, peak = evolve(home, where, given.generations)
        print("\n".join(told(home, wall, peak)))


if __name__ == "__main__":
    main()
