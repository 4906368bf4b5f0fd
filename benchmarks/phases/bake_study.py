"""Bakes over sizes and seeds: ratio, drift, behaviour, position, stops, prompts in a row, adapters.

    python -m benchmarks.phases.bake_study run --out FOLDER [--sizes tiny] [--seeds 0,1,2]
        [--arms guarded,bare,joint,row,pursuit,own] [--processes 1] [--steps 60] [--ranks 2,8,32]
        [--rates 0.001,0.004,0.016] [--full-rates 0.0001,0.0003,0.001] [--device cpu]
        [--set KEY=VALUE …]
    python -m benchmarks.phases.bake_study table FOLDER

For each size a base of `forge cognate` is trained, and from it a model that follows prefixes
(`bake_texts.py`), both on `--device`; all seeds and arms bake that one. A seed draws contexts, replies
and batches. The command goes on from what is in FOLDER: a bake whose report is there is not done again,
one that was interrupted begins again. `--processes` bakes run at the same time, each with one thread; a
bake that fails is named at the end. The table is printed then:

    guarded   one prompt, both guards, with early stops
    bare      the same without guards: the paper's loss alone
    joint     two prompts baked together
    row       the same two, one after the other: the given model is the teacher of both
    pursuit   one prompt in steps / 2, and again with the result as the teacher
    own       one prompt in steps / 2, and again on replies that the result writes without it
    full      one prompt, both guards, at each of --full-rates
    lora      the same by adapters of each of --ranks, at each of --rates
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.common import machine
from benchmarks.phases import bake_texts

#: Tokens of the sequences that the model that is baked takes and was trained on.
POSITIONS = 448
#: Settings of every bake.
COMMON: dict[str, Any] = {
    "reply_tokens": 56,
    "characters": 1_000_000,
    "strengths": [0.2, 0.3, 0.5, 0.8, 1.0],
}
#: Prompts, the prompts that are kept, and settings; "steps" is a share of those asked for.
Arm = tuple[list[str], list[str], dict[str, Any]]
#: Name → arm.
ARMS: dict[str, Arm] = {
    "guarded": (["json"], ["csv"], {"stops": [0.25, 0.5, 0.75]}),
    "bare": (["json"], ["csv"], {"others_weight": 0.0, "neutral_weight": 0.0}),
    "joint": (["json", "ruby"], ["csv"], {}),
    "row": (["json", "ruby"], ["csv"], {"sequence": True}),
    "pursuit": (["json"], ["csv"], {"pursuit": 1, "steps": 0.5}),
    "own": (["json"], ["csv"], {"own_replies": 1, "steps": 0.5}),
}
#: Arms of several learning rates, one of which is chosen on the selection slice.
GRIDS = ("full", "lora")
#: Largest drift with which a learning rate is chosen if there is one.
DRIFT = 0.005
#: Columns of the table: title, figure, and how it is written.
COLUMNS = (
    ("ratio (≤ 0.05)", "ratio", "{:.4f}"),
    ("drift (≤ 0.5 %)", "drift", "{:.2%}"),
    ("passing replies", "success", "{:.1%}"),
    ("shortfall (≤ 2 points)", "shortfall", "{:+.1%}"),
    ("kept of each (≥ 0.95)", "kept", "{:.3f}"),
    ("ratio beyond 256", "far_ratio", "{:.4f}"),
    ("passing beyond 256", "far_success", "{:.1%}"),
    ("shortfall beyond 256", "far_shortfall", "{:+.1%}"),
    ("other prompts, nats", "others", "{:.5f}"),
    ("not rehearsed, nats", "unheard", "{:.5f}"),
)


def forge(home: Path, *words: object) -> None:
    """Run a command of the project with one thread. Raises CalledProcessError if it fails."""
    env = {**os.environ, "FORGE_HOME": str(home), "FORGE_THREADS": "1", "OMP_NUM_THREADS": "1"}
    start = [sys.executable, "-c", "from agent_forge.cli.main import main; main()"]
    subprocess.run([*start, *map(str, words)], env=env, check=True, stdout=subprocess.DEVNULL)


def settings(given: dict[str, Any]) -> list[str]:
    """Return settings as options of a command."""
    return [word for k, v in given.items() for word in ("--set", f"{k}={json.dumps(v)}")]


def prepared(out: Path, size: str, tokens: int | None, device: str = "cpu") -> Path:
    """Return the folder of a size's model that follows prefixes; make it if it is not there."""
    place = out / size
    if (place / "styled" / "composed").is_dir():
        return place / "styled" / "composed"
    base = {"specialist_tokens": 262_144, "device": device}
    base |= {"base_tokens": tokens} if tokens else {}
    named = ("cognate", "--preset", size, "--domains", "code,math,data")
    forge(place / "home", *named, *settings(base), "--out", place / "base")
    longer = Path(shutil.copytree(place / "base" / "base", place / "longer"))
    config = json.loads((longer / "config.json").read_text("utf-8"))
    config["max_position_embeddings"] = POSITIONS
    (longer / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    styled = {"specialist_tokens": tokens or 1_600_000, "specialist_rate": 1e-3}
    styled |= {"context": POSITIONS, "batch": 4, "device": device}
    data = f"composed={out / 'texts' / 'composed.jsonl'}"
    named = ("cognate", "--preset", size, "--base-model", longer, "--data", data)
    forge(place / "home", *named, *settings(styled), "--out", place / "styled")
    return place / "styled" / "composed"


def arms_of(asked: argparse.Namespace) -> dict[str, Arm]:
    """Return name → arm of those that are asked for; a grid has one for each rank and rate."""
    found: dict[str, Arm] = {}
    for name in asked.arms.split(","):
        if name == "full":
            for rate in map(float, asked.full_rates.split(",")):
                found[f"full-{rate:g}"] = (["json"], ["csv"], {"rate": rate})
        elif name == "lora":
            ranks, rates = asked.ranks.split(","), asked.rates.split(",")
            for rank, rate in product(map(int, ranks), map(float, rates)):
                own = {"train": "lora", "lora_rank": rank, "rate": rate}
                found[f"lora-{rank}-{rate:g}"] = (["json"], ["csv"], own)
        else:
            found[name] = ARMS[name]
    return found


def baked(
    out: Path, size: str, name: str, arm: Arm, seed: int, steps: int, own: dict[str, Any]
) -> str | None:
    """Bake one arm with one seed, unless its report is there; return its name if that fails."""
    place, texts = out / size / f"{name}-{seed}", out / "texts"
    if (place / "bake.json").exists():
        return None
    home = out / size / f"home-{name}-{seed}"
    for left in (home, place):
        shutil.rmtree(left, ignore_errors=True)
    prompts, kept, changes = arm
    asked = {**COMMON, **changes, "seed": seed, **own}
    asked["steps"] = round(steps * changes.get("steps", 1))
    words: list[object] = ["bake", out / size / "styled" / "composed"]
    for prompt in prompts:
        words += ["--prompt", texts / f"{prompt}.txt"]
    for prompt in kept:
        words += ["--keep", texts / f"{prompt}.txt"]
    words += ["--data", texts / "records.jsonl", "--out", place]
    # A home of its own: bakes beside each other wait for no other's database.
    try:
        forge(home, *words, *settings(asked))
    except subprocess.CalledProcessError:
        print(f"{size}, {name}, seed {seed}: failed", flush=True)
        return f"{size} {name}-{seed}"
    shutil.rmtree(home)
    print(f"{size}, {name}, seed {seed}: done", flush=True)
    return None


def run(asked: argparse.Namespace) -> None:
    """Do what is not done, and print the table."""
    out = Path(asked.out).absolute()
    if not (out / "texts").is_dir():
        bake_texts.main(out / "texts")
    own = {key: json.loads(text) for key, _, text in (one.partition("=") for one in asked.set)}
    sizes, arms, seeds = asked.sizes.split(","), arms_of(asked), asked.seeds.split(",")

    def bake(one: tuple[str, int, str]) -> str | None:
        size, seed, name = one
        return baked(out, size, name, arms[name], seed, asked.steps, own)

    with ThreadPoolExecutor(asked.processes) as pool:
        list(pool.map(lambda size: prepared(out, size, asked.tokens, asked.device), sizes))
        done = list(pool.map(bake, product(sizes, map(int, seeds), arms)))
    table(out)
    if failed := [name for name in done if name]:
        raise SystemExit(f"failed: {', '.join(failed)}; the same command tries them again")


def table(out: Path) -> None:
    """Print the figures of all bakes as Markdown, with intervals, then strengths and behaviour."""
    rows = [
        (file.parents[1].name, file.parent.name, json.loads(file.read_text("utf-8")))
        for file in sorted(out.glob("*/*/bake.json"))
    ]
    print(f"{machine()}; one thread a bake")
    heads = ["size", "arm, seed", *(title for title, _, _ in COLUMNS), "chosen", "seconds"]
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
    for size, name, told in rows:
        cells = [_cell(told["figures"].get(figure), how) for _, figure, how in COLUMNS]
        print("| " + " | ".join([size, name, *cells, told["chosen"], f"{told['seconds']:.0f}"]) + " |")
    for line in rates(rows):
        print(line)
    print("\nRatio and drift by strength, selection slice:")
    for size, name, told in rows:
        for way, points in told["strengths"].items():
            said = ", ".join(f"{s}: {r:.4f} {d:.2%}" for s, (r, d) in points.items())
            print(f"- {size} {name}, {way}: {said}")
    print("\nReplies that pass (without the prompt, with it, baked), and what is kept of each prompt:")
    for size, name, told in rows:
        for place, checks in told["behaviour"].items():
            for number, arms in checks.items():
                shares = (f"{arms[a]['value']:.1%}" for a in ("unprompted", "prompted", "baked"))
                print(f"- {size} {name}, prompt {number}, {place}: {', '.join(shares)}")
        for number, share in told["kept"].items():
            print(f"- {size} {name}, kept of prompt {number}: {_cell(share, '{:.3f}')}")


def rates(rows: list[tuple[str, str, dict[str, Any]]]) -> list[str]:
    """Return the learning rate of each grid, size and seed that is best on the selection slice.

    `rows` are (size, "ARM-SEED", report). The best has the smallest ratio of those whose drift is
    within the limit, of all if none is; what it has on the test slice is told beside it.
    """
    found: dict[tuple[str, str, str], dict[str, tuple[float, float]]] = {}
    told = {(size, name): report for size, name, report in rows}
    for size, name, report in rows:
        family, _, rest = name.partition("-")
        if family not in GRIDS:
            continue
        points = {float(s): tuple(p) for s, p in report["strengths"]["interpolated"].items()}
        arm, seed = name.rsplit("-", 1)
        own = f"{family}-{rest.partition('-')[0]}" if family == "lora" else family
        best = points[report["figures"]["strength"]["value"]]
        found.setdefault((size, own, seed), {})[arm] = best
    lines = ["\nLearning rate with the smallest ratio on the selection slice, and its test slice:"]
    for (size, own, seed), arms in sorted(found.items()):
        good = {arm: point for arm, point in arms.items() if point[1] <= DRIFT} or arms
        arm = min(good, key=lambda one: good[one][0])
        report = told[size, f"{arm}-{seed}"]
        figures, trained = report["figures"], report["trained"]
        ratio, drift = _cell(figures["ratio"], "{:.4f}"), _cell(figures["drift"], "{:.2%}")
        lines.append(
            f"- {size} {own}, seed {seed}: {arm.rpartition('-')[2]} of {len(arms)}; {trained:,} of "
            f"{report['parameters']:,} parameters, ratio {ratio}, drift {drift}"
        )
    return lines if found else []


def _cell(figure: dict[str, Any] | None, how: str) -> str:
    """Return a figure with its interval."""
    if figure is None:
        return ""
    low, high = figure["low"], figure["high"]
    value = how.format(figure["value"])
    return value if low is None else f"{value} [{how.format(low)}, {how.format(high)}]"


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    one = parts.add_parser("run")
    one.add_argument("--out", required=True)
    one.add_argument("--sizes", default="tiny")
    one.add_argument("--seeds", default="0,1,2")
    one.add_argument("--arms", default=",".join(ARMS))
    one.add_argument("--processes", type=int, default=1)
    one.add_argument("--ranks", default="2,8,32")
    one.add_argument("--rates", default="0.001,0.004,0.016")
    one.add_argument("--full-rates", default="0.0001,0.0003,0.001")
    one.add_argument("--steps", type=int, default=60)
    one.add_argument("--tokens", type=int, help="tokens of both trainings; none: 1.6 million styled")
    one.add_argument("--device", default="cpu", help="of both trainings; of bakes: --set device=…")
    one.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    two = parts.add_parser("table")
    two.add_argument("out")
    asked = parser.parse_args()
    run(asked) if asked.part == "run" else table(Path(asked.out))


if __name__ == "__main__":
    main()
