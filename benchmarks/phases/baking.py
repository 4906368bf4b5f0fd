"""Tools baked into a tiny model: success of the given model, of the prompted one, and of the baked one.

    python -m benchmarks.phases.baking --out RESULTS.jsonl [--seeds 0,1,2] [--families table,retrieval]
        [--pretraining 700] [--set KEY=VALUE …]

For each seed a model of 2 layers is trained that calls tools under a prompt and guesses without it, on
tasks of another seed; then a baking run is carried out, and its report is appended as a line. What is
there already is not done again. The table of all lines is printed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from agent_forge.phases.tool_baking.script import Baking
from agent_forge.phases.tool_baking.settings import OTHERS
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands import submit
from agent_forge.worker.tasks import runner
from benchmarks.common import machine
from testing.models import able_toy

PROMPT = "Tools!\n"
#: Settings of the runs: a model of a minute, on tasks of one level.
SETTINGS: dict[str, Any] = {
    "levels": 1,
    "tool_prompt": PROMPT,
    "form": "tags",
    "train_items": 48,
    "selection_items": 16,
    "test_items": 48,
    "iterations": 5,
    "reply_tokens": 40,
    "calls": 1,
    "batch": 16,
    "context": 32,
    "neutral_tokens": 16,
    "steps": 30,
    "rate": 1e-3,
    "characters": 500_000,
}


def carried_out(model: Path, folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Carry out a run of a model; return its report."""
    home = Home(folder / "home")
    plan = submit.plan(RunRequest("baking", settings, {"model": [str(model)]}))
    submit.check(plan)
    with closing(home.open_store()) as store:
        name = submit.submit(store, plan, "tools")
        state = runner.finish(runner.WorkerProcess(store, Artifacts.of(home)), name)
    return Baking().view.report(state, ())


def run(asked: argparse.Namespace) -> None:
    """Do the seeds that are not done, and append a line for each."""
    out = Path(asked.out)
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    own = {key: json.loads(text) for key, _, text in (one.partition("=") for one in asked.set)}
    families = asked.families.split(",")
    for seed in map(int, asked.seeds.split(",")):
        settings = {**SETTINGS, "families": families, **own, "seed": seed}
        key = {"settings": settings, "pretraining": asked.pretraining}
        if any({name: row[name] for name in key} == key for row in rows):
            continue
        with tempfile.TemporaryDirectory() as place:
            began, folder = time.monotonic(), Path(place)
            model = able_toy.train(
                *(folder / "model", PROMPT, families, asked.pretraining, seed),
                positions=160,
                others=OTHERS,
            )
            trained = time.monotonic() - began
            told = carried_out(model, folder, settings)
        rows.append({**key, "machine": machine(), "pretraining_seconds": trained, **told})
        with out.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        print(f"seed {seed}: {trained:.0f} s and {told['seconds']:.0f} s", flush=True)
    table(rows)


def table(rows: list[dict[str, Any]]) -> None:
    """Print the results as Markdown, in percent."""
    print(f"{rows[0]['machine']}; {rows[0]['parameters']:,} parameters")
    print("| seed | given | prompted | baked | gain, points | ratio | drift | kept | iterations |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        figures = row["figures"]
        own, gain = figures["success"]["value"], figures["gain"]
        span = f"{100 * gain['value']:+.1f} ({100 * gain['low']:+.1f} to {100 * gain['high']:+.1f})"
        ratio = f"{figures['ratio']['value']:.3f}" if "ratio" in figures else ""
        print(
            f"| {row['settings']['seed']} | {100 * (own - gain['value']):.1f} "
            f"| {100 * figures['prompted']['value']:.1f} | {100 * own:.1f} | {span} | {ratio} "
            f"| {100 * figures['drift']['value']:.2f} % "
            f"| {100 * figures['retention']['value']:.1f} % | {len(row['iterations'])} |"
        )
    for row in rows:
        for line in row["switches"]:
            print(f"seed {row['settings']['seed']}: {line}")


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--families", default="table")
    parser.add_argument("--pretraining", type=int, default=700)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
