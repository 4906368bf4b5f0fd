"""Thoughts beside pauses and ordinary training, on text that has to be computed and on ordinary text.

    python -m benchmarks.phases.quietstar train --out RESULTS.jsonl [--model FOLDER] [--domains A,B]
    python -m benchmarks.phases.quietstar table RESULTS.jsonl

`train` carries out one run of kind quietstar for each domain and seed: a base is trained, and from it
continued training, pauses and thoughts, at equal tokens and steps, on the same windows. Without
`--model` each run is given a model of `--hidden` and `--layers` that has read `--first-tokens` of the
domain: hard tokens are those of a model that knows something. The built-in domain `chains` is sums
modulo a number, each of which follows from those before it. `--out` is appended to line by line, and
what is there already is not done again.

The unit of the test is the seed: `table` has the mean over seeds and its 95 % interval by Student's t,
beside each run's own interval over documents, which knows nothing of when a run leaves a plateau.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from agent_forge.phases.quietstar.figures import RIVALS
from agent_forge.phases.quietstar.recipes import QuietstarState, Submitted, base
from agent_forge.phases.quietstar.script import Quietstar
from agent_forge.phases.quietstar.work import Context
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import Lookup, RunRequest
from agent_forge.weights.folders.checkpoint import SHARD_BYTES, write_weights
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.training.loop import segment
from agent_forge.worker.commands import submit
from agent_forge.worker.commands import submit as commands_submit
from agent_forge.worker.tasks import runner
from benchmarks.common import machine

#: Figures that are compared over seeds.
FIGURES = ("over_continued", "over_pause", "gain", "exchanged", "genuine")
#: Seeds less one → 97.5 % point of Student's t.
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306}


def fresh(folder: Path, seed: int, hidden: int, layers: int) -> Path:
    """Write a model with new weights and a tokenizer of 320 tokens; return its folder."""
    from transformers import Qwen2ForCausalLM

    from testing.models import toy_models

    config = toy_models.config(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        intermediate_size=3 * hidden,
        max_position_embeddings=256,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return toy_models.save(Qwen2ForCausalLM(config), folder)


def trained(asked: argparse.Namespace, domain: str, seed: int, place: Path) -> Path:
    """Write a model that was trained on the domain's text; return its folder."""
    folder, kind = fresh(place / "fresh", seed, asked.hidden, asked.layers), Quietstar()
    config = {**settings(asked, domain, seed), "base_tokens": asked.first_tokens}
    planned = kind.plan(RunRequest("quietstar", config, {"model": [str(folder)]}), Lookup())
    state = QuietstarState()
    state.take(Submitted(run="first", owner="first", config=planned.config, **planned.fields))
    context = Context(state, Artifacts(place / "cache"))
    state.take(context.started())
    recipe: Any = base(state.submitted, state.started)
    first, streams = context.initial(state.started), context.text.streams
    made = segment(recipe, first, None, streams, 0, recipe.upto, device=asked.device, threads=1)
    for file in folder.glob("*.safetensors"):
        file.unlink()
    write_weights(folder, made.weights, SHARD_BYTES)
    return folder


def settings(asked: argparse.Namespace, domain: str, seed: int) -> dict[str, Any]:
    """Return the settings of one run."""
    return {
        "domains": [domain],
        "mix": {domain: 1.0},
        "seed": seed,
        "tokens": asked.tokens,
        "base_tokens": asked.base_tokens,
        "context": asked.context,
        "batch": asked.batch,
        "rate": asked.rate,
        "thought_lengths": [int(n) for n in asked.lengths.split(",")],
        "passes": asked.passes,
        "ahead": asked.ahead,
        "own": asked.own,
        "settling": asked.settling,
        "policy": asked.policy,
        "kl": asked.kl,
        "characters": asked.characters,
        "measured_tokens": asked.measured_tokens,
        "document_tokens": asked.document_tokens,
        "device": asked.device,
    }


def carried(asked: argparse.Namespace, domain: str, seed: int) -> dict[str, Any]:
    """Carry out one run; return what it found."""
    began = time.process_time()
    with tempfile.TemporaryDirectory() as place:
        home = Home(Path(place) / "home")
        given = asked.model or trained(asked, domain, seed, Path(place))
        config = settings(asked, domain, seed)
        planned = submit.plan(RunRequest("quietstar", config, {"model": [str(given)]}))
        with closing(home.open_store()) as store:
            commands_submit.submit(store, planned, "benchmark")
            state = runner.finish(runner.WorkerProcess(store, Artifacts.of(home)), "benchmark")
    told = Quietstar().view.report(state, ())
    return {"domain": domain, "seed": seed, "cpu": time.process_time() - began, **told}


def train(asked: argparse.Namespace) -> None:
    """Do what is not done, and append a line for each."""
    out = Path(asked.out)
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    for domain in asked.domains.split(","):
        for seed in map(int, asked.seeds.split(",")):
            if any((row["domain"], row["seed"]) == (domain, seed) for row in rows):
                continue
            row = carried(asked, domain, seed)
            with out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)
    table(out)


def table(out: Path) -> None:
    """Print the results as Markdown: each run, and the means over seeds."""
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    arms = list(Quietstar.arms)
    print(machine())
    print(f"| domain | seed | {' | '.join(arms)} | gain | its interval over documents | CPU s |")
    print("|---" * (5 + len(arms)) + "|")
    for row in rows:
        hard = [f"{row['arms'][arm]['hard'][row['domain']]:.4f}" for arm in arms]
        gain = row["figures"]["gain"]
        span = f"{gain['low']:+.4f} to {gain['high']:+.4f}"
        cells = [row["domain"], row["seed"], *hard, f"{gain['value']:+.4f}", span]
        print("| " + " | ".join(map(str, [*cells, f"{row['cpu']:.0f}"])) + " |")
    print()
    print(f"| domain | seeds | {' | '.join(FIGURES)} | verdict |")
    print("|---" * (3 + len(FIGURES)) + "|")
    for domain in dict.fromkeys(row["domain"] for row in rows):
        some = [row for row in rows if row["domain"] == domain]
        spans = {name: over_seeds([r["figures"][name]["value"] for r in some]) for name in FIGURES}
        cells = [f"{mean:+.4f} ± {half:.4f}" for mean, half in spans.values()]
        print(f"| {domain} | {len(some)} | {' | '.join(cells)} | {verdict(spans)} |")
    print()
    found = [row["figures"]["weight"]["value"] for row in rows]
    print(f"share of the thought in the mixture: {min(found):.3g} to {max(found):.3g}")
    for name in ("step_seconds", "cost"):
        for arm in rows[0][name]:
            found = [row[name][arm] for row in rows]
            print(f"{name} of {arm}: {min(found):.3g} to {max(found):.3g}")


def over_seeds(values: list[float]) -> tuple[float, float]:
    """Return the mean over seeds and half of its 95 % interval; infinite for a single seed."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, math.inf
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
    return mean, STUDENT[len(values) - 1] * spread / math.sqrt(len(values))


def verdict(spans: dict[str, tuple[float, float]]) -> str:
    """Return in words what the seeds say of thoughts."""
    low = {name: mean - half for name, (mean, half) in spans.items()}
    high = {name: mean + half for name, (mean, half) in spans.items()}
    if low["gain"] > 0:
        return "thoughts help" if low["genuine"] >= 0 else "a gain, but not of the thoughts"
    worse = [arm for arm in RIVALS if high[f"over_{arm}"] < 0]
    return f"worse than {' and '.join(worse)}" if worse else "no gain"


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    training = verbs.add_parser("train")
    training.add_argument("--out", required=True)
    training.add_argument("--model")
    training.add_argument("--domains", default="chains,code")
    training.add_argument("--seeds", default="0,1,2")
    for name, kind, value in (
        ("hidden", int, 64),
        ("layers", int, 3),
        ("first-tokens", int, 400_000),
        ("tokens", int, 32_768),
        ("base-tokens", int, 16_384),
        ("context", int, 64),
        ("batch", int, 8),
        ("rate", float, 2e-3),
        ("lengths", str, "4"),
        ("passes", int, 2),
        ("ahead", int, 2),
        ("own", float, 1.0),
        ("settling", float, 0.5),
        ("policy", float, 1.0),
        ("kl", float, 0.1),
        ("characters", int, 2_000_000),
        ("measured-tokens", int, 6_000),
        ("document-tokens", int, 256),
        ("device", str, "cpu"),
    ):
        training.add_argument(f"--{name}", type=kind, default=value)
    verbs.add_parser("table").add_argument("out")
    asked = parser.parse_args()
    if asked.verb == "train":
        train(asked)
    else:
        table(Path(asked.out))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
