"""A curriculum beside fixed orders of the same tasks, over seeds, with and without replay.

    python -m benchmarks.phases.curriculum run --model FOLDER --out RESULTS.jsonl [--seeds 0,1,2]
        [--set KEY=VALUE …] [--ablations] [--device cpu] [--home FOLDER]
    python -m benchmarks.phases.curriculum table RESULTS.jsonl

`run` carries out a curriculum run for each seed and appends its report as a line; what is there already
is not done again, and a run that was stopped goes on if `--home` keeps its log. `--ablations` adds the
arm adaptive without replay and without the cap. `table` prints accuracy on the test slice, leads with
their intervals, tokens to equal accuracy and forgetting. A model is one of `forge cognate`, such as
`--preset tiny`, or any other with a fast tokenizer.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.common import machine
from evaluation.measures.paired_bits import mean
from phases.curriculum import findings, report
from runs.home import Home
from runs.kinds.asked import Asked
from weights.storage.weight_cache import Artifacts
from worker.commands import submit, validate
from worker.tasks import runner

#: Ablation → the settings in which it differs from the run of all arms.
ABLATIONS: dict[str, dict[str, Any]] = {
    "no replay": {"replay": 0.0, "arms": ["adaptive"]},
    "no cap": {"cap": 1.0, "arms": ["adaptive"]},
}


def carried_out(home: Home, name: str, model: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Carry a run to its end, from where it is; return its report."""
    with closing(home.open_store()) as store:
        if not store.version(f"curriculum/{name}"):
            plan = validate.plan(Asked("curriculum", settings, {"model": [str(model)]}))
            validate.check(plan)
            submit.submit(store, plan, name)
        state = runner.finish(runner.Worker(store, Artifacts.of(home)), name)
    told = report.report(state).model_dump()
    told["parameters"] = state.started.model.parameters
    told["end"] = {
        arm: mean(findings.course(state, arm)[-1]) for arm in state.submitted.config.arms
    }
    return told


def run(asked: argparse.Namespace) -> None:
    """Do what is not done, and append a line for each."""
    out = Path(asked.out)
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    own = {key: _value(text) for key, _, text in (one.partition("=") for one in asked.set)}
    variants: dict[str, dict[str, Any]] = {"all arms": {}}
    variants |= ABLATIONS if asked.ablations else {}
    with tempfile.TemporaryDirectory() as place:
        home = Home(Path(asked.home or place))
        for seed in map(int, asked.seeds.split(",")):
            for variant, changes in variants.items():
                settings = {**own, "seed": seed, "device": asked.device, **changes}
                key = {"what": variant, "settings": settings, "machine": machine()}
                if any(row["what"] == variant and row["settings"] == settings for row in rows):
                    continue
                name = f"{variant.replace(' ', '-')}-{seed}"
                row = {**key, **carried_out(home, name, Path(asked.model), settings)}
                rows.append(row)
                with out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(f"{variant}, seed {seed}: {row['seconds']:.0f} s", flush=True)
    table(out)


def _value(text: str) -> Any:
    """Return a setting's value: JSON, or the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def table(out: Path) -> None:
    """Print the results as Markdown."""
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    print(
        f"{rows[0]['machine']}; {rows[0]['parameters']:,} parameters, {rows[0]['tokens']:,} tokens"
    )
    print("| run | seed | arm | accuracy | result minus arm | forgetting |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        for arm, cells in row["accuracy"].items():
            accuracy = 100 * sum(cells.values()) / len(cells)
            lead = row["leads"].get(arm)
            span = (
                f"{100 * lead['value']:+.1f} [{100 * lead['low']:+.1f}, {100 * lead['high']:+.1f}]"
                if lead
                else ""
            )
            lost = f"{100 * row['forgetting'][arm]:.1f}" if arm in row["forgetting"] else ""
            print(f"| {row['what']} | {row['seed']} | {arm} | {accuracy:.1f} | {span} | {lost} |")
    for row in rows:
        share = row["figures"].get("tokens_to_equal")
        if share:
            print(f"seed {row['seed']}: adaptive equals uniform's end after {share['value']:.0%}")


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    one = parts.add_parser("run")
    one.add_argument("--model", required=True)
    one.add_argument("--out", required=True)
    one.add_argument("--seeds", default="0,1,2")
    one.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    one.add_argument("--ablations", action="store_true")
    one.add_argument("--device", default="cpu")
    one.add_argument("--home")
    two = parts.add_parser("table")
    two.add_argument("out")
    asked = parser.parse_args()
    run(asked) if asked.part == "run" else table(Path(asked.out))


if __name__ == "__main__":
    main()
