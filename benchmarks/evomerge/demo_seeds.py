"""Results of the demo's own commands for several seeds, to see if its verdict depends on the seed.

    python -m benchmarks.evomerge.demo_seeds --out FOLDER [--seeds 0-9]

Each seed trains its own base and specialists and searches with the same number. It runs the
commands of `examples/demo.sh` in a folder of its own. A finished seed is skipped. An interrupted
seed goes on (trained models are kept, the run is resumed), and its minutes are not counted. Results
are lines of FOLDER/results.jsonl, and the table is printed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from agent_forge.evomerge.reports import report
from agent_forge.runs.history.repository import load
from agent_forge.runs.home import Home
from agent_forge.runs.streams import run_of, stream

REPOSITORY = Path(__file__).resolve().parents[2]


def seeds(text: str) -> list[int]:
    """Return the numbers of `0-9`, `3` or `0,4,7`."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def demo(folder: Path, seed: int) -> None:
    """Run the demo for a seed, or the rest of an interrupted one. Raises CalledProcessError."""
    here = folder / "demo"
    env = {**os.environ, "DEMO": str(here), "SEED": str(seed), "VENV": str(Path(sys.prefix))}
    run = unfinished(here / "home")
    if not (here / "models" / "cognate.json").exists():
        shutil.rmtree(here / "models", ignore_errors=True)  # half written
    if run is None:
        command = ["sh", "examples/demo.sh"]
    else:
        command = [str(Path(sys.prefix) / "bin" / "forge"), "evo", "--resume", run]
        env["FORGE_HOME"] = str(here / "home")
    with (folder / "log.txt").open("a", encoding="utf-8") as log:
        subprocess.run(command, cwd=REPOSITORY, env=env, check=True, stdout=log, stderr=log)


def runs(home: Path) -> list[str]:
    """Return the names of the runs of a home, in the order in which they were submitted."""
    if not (home / "forge.db").exists():
        return []
    store = Home(home).open_store()
    try:
        return [run_of(row.stream) for row in store.streams("evomerge/")]
    finally:
        store.close()


def unfinished(home: Path) -> str | None:
    """Return the run that was interrupted, if there is one."""
    for name in runs(home):
        store = Home(home).open_store()
        try:
            if not load(store, name).ended:
                return name
        finally:
            store.close()
    return None


def result(home: Path, seed: int) -> dict[str, Any]:
    """Return the results of the seed's newest run, from its log."""
    name = runs(home)[-1]
    store = Home(home).open_store()
    try:
        state, rows = load(store, name), store.read(stream("evomerge", name))
    finally:
        store.close()
    assert state.started
    found = report.rivals(state)
    return {
        "seed": seed,
        "run": name,
        "champion": state.champion,
        "rivals": found,
        "verdict": report.verdict(state),
        "evaluation": state.started.profile.evaluation,
        "generations": len(state.generations),
        "task_seconds": report.spent(state, rows),
    }


def table(results: list[dict[str, Any]]) -> list[str]:
    """Return a line per seed, and in how many the champion beats the base and every source."""
    lines = ["| seed | " + " | ".join(r["name"] for r in results[0]["rivals"]) + " | beats all |"]
    lines.append("|" + "---|" * (len(results[0]["rivals"]) + 2))
    for one in sorted(results, key=lambda r: r["seed"]):
        cells = [f"{r['lead']:+.4f} [{r['low']:+.4f}, {r['high']:+.4f}]" for r in one["rivals"]]
        said = "yes" if one["verdict"]["beats_sources_and_base"] else "no"
        lines.append(f"| {one['seed']} | {' | '.join(cells)} | {said} |")
    won = sum(one["verdict"]["beats_sources_and_base"] for one in results)
    how = ", ".join({one["evaluation"] or "float32" for one in results})
    lines.append(
        f"\nThe champion beats the base and every source in {won} of {len(results)} seeds. "
        f"{_minutes(results)}; evaluated in {how}."
    )
    return lines


def _minutes(results: list[dict[str, Any]]) -> str:
    """Say how long a seed takes, measured by the seeds that were not interrupted."""
    whole = [one for one in results if not one.get("interrupted")]
    if not whole:
        return "Every seed was interrupted: no minutes"
    clock = [one["wall_seconds"] / 60 for one in whole]
    spent = [one["processor_seconds"] / 60 for one in whole]
    return (
        f"Minutes by the clock {min(clock):.1f} to {max(clock):.1f}, of processor time "
        f"{min(spent):.1f} to {max(spent):.1f}, of {len(whole)} seeds that were not interrupted"
    )


def measured(folder: Path, seed: int) -> dict[str, Any]:
    """Return the results of a seed, and how long it takes if it was not begun earlier."""
    begun = folder.exists()
    folder.mkdir(exist_ok=True)
    before, began = _processor(), time.monotonic()
    demo(folder, seed)
    found = {**result(folder / "demo" / "home", seed), "interrupted": begun}
    if not begun:
        found |= {"wall_seconds": time.monotonic() - began, "processor_seconds": _processor() - before}
    return found


def main() -> None:
    """Run the seeds that are not finished, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=seeds, default=list(range(10)))
    given = parser.parse_args()
    file: Path = given.out / "results.jsonl"
    given.out.mkdir(parents=True, exist_ok=True)
    file.touch()
    results = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    for seed in given.seeds:
        if seed in {one["seed"] for one in results}:
            continue
        folder = (given.out / str(seed)).absolute()
        print(f"seed {seed}: {folder}/log.txt", file=sys.stderr, flush=True)
        found = measured(folder, seed)
        results.append(found)
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(found) + "\n")
        print(f"seed {seed}: {found['verdict']}", file=sys.stderr, flush=True)
    print("\n".join(table([one for one in results if one["seed"] in given.seeds])))


def _processor() -> float:
    """Return the seconds of processor time of children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
