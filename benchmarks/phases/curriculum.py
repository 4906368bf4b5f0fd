"""The rule of a curriculum beside fixed orders and other rules: many trainings at once.

    python -m benchmarks.phases.curriculum run --out FOLDER [--sizes mini,tiny] [--seeds 3]
        [--processes 15] [--limit SECONDS] [--what NAME,NAME] [--tokens N] [--model FOLDER]
        [--set KEY=VALUE …] [--automata]
    python -m benchmarks.phases.curriculum table FOLDER

`run` trains each of `VARIANTS` (or those named by `--what`) for every size and seed: each is a
curriculum run of one arm, in a process of its own with one thread. `--automata` instead trains first on
elementary cellular automata of one class of rules, then on the task families, on as many tokens
(`AUTOMATA`). A size is a model with new weights and a token for each symbol, or the model of `--model`.
A finished training is FOLDER/NAME.json and is not done again; one that was stopped goes on. After
`--limit` seconds those under way are stopped. `table` prints accuracy on the test slice as means over
the seeds that all of a size's trainings have; differences with intervals (paired bootstrap over items,
seed by seed, then the mean over seeds); the share of tokens after which an arm is as accurate as
uniform mixing at its end, on the selection slice; forgetting, the most that a family has lost; and what
levels have lost that were passed once, the mean over these. Beside adaptive, differences from it have
the interval over seeds too (Student's t), and a verdict by the interval over items.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from agent_forge.phases.curriculum import figures
from agent_forge.runs.event_types import Figure
from agent_forge.studies.comparison import figure, mean
from agent_forge.studies.events import Observed
from benchmarks.common import machine
from benchmarks.phases.curriculum_jobs import SETTINGS, SIZES, Job, do

#: Name → the settings in which a training differs from the others.
VARIANTS: dict[str, dict[str, Any]] = {
    "uniform": {"arms": ["uniform"]},
    "easy_to_hard": {"arms": ["easy_to_hard"]},
    "adaptive": {"arms": ["adaptive"]},
    "chaos": {"arms": ["adaptive"], "adds": ["chaos"]},
    "dreams": {"arms": ["adaptive"], "adds": ["dreams"]},
    "self model": {"arms": ["adaptive"], "adds": ["self_model"]},
    "stages": {"arms": ["stages"]},
    "frontier": {"arms": ["adaptive"], "rule": "frontier"},
    # A level that is passed keeps the trickle; then, nothing of it is trained on again.
    "no replay": {"arms": ["adaptive"], "replay": 0.0},
    "nothing again": {"arms": ["adaptive"], "replay": 0.0, "trickle": 0.0},
    "dreams alone": {"arms": ["adaptive"], "replay": 0.0, "trickle": 0.0, "adds": ["dreams"]},
    "patience 4": {"arms": ["adaptive"], "patience": 4},
    "never opened": {"arms": ["adaptive"], "patience": 1000},
}
#: Name → rules of elementary cellular automata of a class (Wolfram 1984; Zhang et al. 2024,
#: arXiv 2410.02536, table of rules). "none" begins with the task families at once.
AUTOMATA: dict[str, list[int]] = {
    "none": [],
    "class I": [0, 8, 32],
    "class II": [4, 37, 108],
    "class III": [30, 45, 90],
    "class IV": [54, 106, 110],
}
BASE, MAIN = "uniform", "adaptive"
#: Number of seeds → Student's t of 95 % with one degree of freedom fewer.
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}
#: Success above which a level counts as passed.
PASSED = 0.9


def jobs(asked: argparse.Namespace) -> Iterator[Job]:
    """Yield what is asked for: seed after seed, the largest models first."""
    own = {key: _value(text) for key, _, text in (one.partition("=") for one in asked.set)}
    names = asked.what.split(",") if asked.what else list(AUTOMATA if asked.automata else VARIANTS)
    for seed in range(asked.seeds):
        for size in reversed(asked.sizes.split(",")):
            tokens = asked.tokens or SIZES[size][1]
            settings = {**SETTINGS, "tokens": tokens, "seed": seed, **own}
            for name in names:
                if asked.automata:
                    yield _automata(size, seed, name, settings, asked.model)
                else:
                    yield Job(
                        size, seed, name, {**settings, **VARIANTS[name]}, model=asked.model or None
                    )


def _automata(size: str, seed: int, name: str, settings: dict[str, Any], model: str | None) -> Job:
    """Return a training on the families, after one on the automata of a class."""
    then = {**settings, "arms": ["uniform"]}
    if not AUTOMATA[name]:
        return Job(size, seed, name, then, model=model or None)
    families = [f"automaton-{rule}" for rule in AUTOMATA[name]]
    # Chaotic rules are learned in jumps, which the watch over the loss takes for a divergence.
    first = {**then, "families": families, "divergence": None}
    return Job(size, seed, name, then, first, model or None)


def run(asked: argparse.Namespace) -> None:
    """Do what is not done, `--processes` at once, until the limit; print the table."""
    place, until = Path(asked.out), time.monotonic() + asked.limit
    place.mkdir(parents=True, exist_ok=True)
    waiting = [job for job in jobs(asked) if not (place / f"{job.name}.json").exists()]
    going: list[tuple[Job, subprocess.Popen[bytes]]] = []
    threads = {"FORGE_THREADS": "1", "OMP_NUM_THREADS": "1"}
    while (waiting or going) and time.monotonic() < until:
        while waiting and len(going) < asked.processes:
            job = waiting.pop(0)
            command = [sys.executable, "-m", __spec__.name, "job", str(place), json.dumps(asdict(job))]
            going.append((job, subprocess.Popen(command, env={**os.environ, **threads})))
        time.sleep(0.2)
        for job, process in going:
            if process.poll():
                print(f"{job.name} failed", flush=True)
        going = [(job, process) for job, process in going if process.poll() is None]
    for job, process in going:
        print(f"{job.name}: stopped at the limit", flush=True)
        process.terminate()
        process.wait()
    table(place)


def _value(text: str) -> Any:
    """Return a setting's value: JSON, or the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


# ---- table -------------------------------------------------------------------------------------

Rows = Mapping[int, Mapping[str, dict[str, Any]]]


def table(place: Path) -> None:
    """Print what is finished as Markdown, a table for each size."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for file in sorted(place.glob("*.json")):
        row = json.loads(file.read_text("utf-8"))
        job = row["job"]
        found.setdefault(job["size"], {}).setdefault(job["seed"], {})[job["what"]] = row
    for size, seeds in found.items():
        names = list(dict.fromkeys(name for rows in seeds.values() for name in rows))
        whole = {seed: rows for seed, rows in sorted(seeds.items()) if set(rows) == set(names)}
        if missing := sorted(set(seeds) - set(whole)):
            print(f"{size}: of the seeds {missing} there are not all trainings; they are left out")
        if whole:
            _print(size, whole, _order(names))


def _order(names: Sequence[str]) -> list[str]:
    return [name for name in (*VARIANTS, *AUTOMATA) if name in names]


def _print(size: str, seeds: Rows, names: Sequence[str]) -> None:
    """Print the table of a size."""
    one = next(iter(seeds.values()))[names[0]]
    base = next((name for name in (BASE, "none") if name in names), "")
    print(
        f"\n{size}: {one['parameters']:,} parameters, {one['tokens']:,} tokens, seeds {[*seeds]}; "
        f"{machine()}\n"
    )
    families = sorted({cell.partition("/")[0] for cell in one["test"]["values"]})
    others = [name for name in (base, "easy_to_hard", "adaptive") if name in names]
    head = ["arm", *families, "mean, %", *(f"minus {other}, points" for other in others)]
    head += ["over seeds, points", "verdict"] if MAIN in names else []
    head += [
        f"tokens to {base or BASE}'s end",
        "forgetting, points",
        "lost of passed, points",
        "seconds",
    ]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for name in names:
        rows = [some[name] for some in seeds.values()]
        tests = [figures.families(Observed.model_validate(row["test"])) for row in rows]
        accuracy = [f"{100 * np.mean([test[family] for test in tests]):.1f}" for family in families]
        whole = np.mean([mean(Observed.model_validate(row["test"])) for row in rows])
        leads = [_told(_lead(seeds, name, other)) if name != other else "" for other in others]
        if MAIN in names:
            leads += ["", ""] if name == MAIN else [_over_seeds(seeds, name), _verdict(seeds, name)]
        told = ", ".join(
            "never" if share is None else f"{share:.2f}"
            for row, some in zip(rows, seeds.values(), strict=True)
            if base
            for share in (_equal(row["course"], some[base]["course"]),)
        )
        lost = ", ".join(f"{100 * row['forgetting']:.1f}" for row in rows)
        passed = ", ".join(_lost(row.get("along", [])) for row in rows)
        seconds = f"{np.mean([row['seconds'] for row in rows]):.0f}"
        values = [name, *accuracy, f"{100 * whole:.1f}", *leads, told, lost, passed, seconds]
        print(f"| {' | '.join(values)} |")


def _lead(seeds: Rows, ours: str, theirs: str) -> Figure:
    """Return the mean difference, with the interval of its bootstrap over items."""
    points, drawn, count = [], [], 0
    for seed, rows in seeds.items():
        seen = {name: Observed.model_validate(rows[name]["test"]) for name in (ours, theirs)}
        resampled = figures.drawn(seen, seed)
        points.append(mean(seen[ours]) - mean(seen[theirs]))
        drawn.append(resampled[ours] - resampled[theirs])
        count += sum(map(len, seen[ours].items.values()))
    return figure(float(np.mean(points)), np.mean(drawn, axis=0), count)


def _told(one: Figure) -> str:
    """Return a difference in points with its interval."""
    assert one.low is not None
    assert one.high is not None
    return f"{100 * one.value:+.1f} ({100 * one.low:+.1f} to {100 * one.high:+.1f})"


def _over_seeds(seeds: Rows, name: str) -> str:
    """Return each seed's difference from adaptive, and the interval of their mean (Student's t)."""
    points = [
        100 * (mean(Observed.model_validate(rows[name]["test"])) - mean(own))
        for rows in seeds.values()
        for own in (Observed.model_validate(rows[MAIN]["test"]),)
    ]
    told = ", ".join(f"{point:+.1f}" for point in points)
    if len(points) not in STUDENT:
        return told
    half = STUDENT[len(points)] * float(np.std(points, ddof=1)) / len(points) ** 0.5
    middle = float(np.mean(points))
    return f"{told} ({middle - half:+.1f} to {middle + half:+.1f})"


def _verdict(seeds: Rows, name: str) -> str:
    """Return what the difference from adaptive says, by the interval over items."""
    return figures.verdict(_lead(seeds, name, MAIN))


def _lost(along: Sequence[Mapping[str, float]]) -> str:
    """Return what the levels that were passed at a time have lost since, on average, in points."""
    lost = [
        next(one[cell] for one in along if one[cell] > PASSED) - along[-1][cell]
        for cell in (along[-1] if along else ())
        if any(one[cell] > PASSED for one in along)
    ]
    return f"{100 * float(np.mean(lost)):.1f} of {len(lost)}" if lost else "none"


def _equal(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Return the share of tokens after which a course reaches the other's end; None: it does not."""
    reached = [number for number, one in enumerate(ours) if one >= theirs[-1]]
    return reached[0] / (len(ours) - 1) if reached else None


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    one = parts.add_parser("run")
    one.add_argument("--out", required=True)
    one.add_argument("--sizes", default="mini,tiny")
    one.add_argument("--seeds", type=int, default=3)
    one.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    one.add_argument("--limit", type=float, default=float("inf"))
    one.add_argument("--what", default="")
    one.add_argument("--tokens", type=int)
    one.add_argument("--model", default="")
    one.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    one.add_argument("--automata", action="store_true")
    two = parts.add_parser("job")
    two.add_argument("out")
    two.add_argument("job", type=json.loads)
    three = parts.add_parser("table")
    three.add_argument("out")
    asked = parser.parse_args()
    match asked.part:
        case "run":
            run(asked)
        case "job":
            do(Job(**asked.job), Path(asked.out))
        case _:
            table(Path(asked.out))


if __name__ == "__main__":
    main()
