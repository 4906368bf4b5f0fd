"""Ternary training beside full precision, and the speed of ternary files in llama.cpp.

    python -m benchmarks.phases.bitnet train --model FOLDER --out RESULTS.jsonl [--rates 2e-3,4e-3]
    python -m benchmarks.phases.bitnet table RESULTS.jsonl
    python -m benchmarks.phases.bitnet speed

`train` continues a model's training (one of `forge cognate`, such as `--preset tiny`) on the built-in
text: in full precision and ternary, the same windows, AdamW. The rate of each arm is the best of four
on a scan of fewer steps with a seed that does not count, by the selection slice; `--rates` leaves the
scan out. Figures are those of the test slice, the mean over domains. `--out` is appended to line by
line, and what is there already is not done again.

`speed` writes a model of random ternary weights as GGUF files of several types, and counts tokens by
seconds of processor time, in turns of one process with one thread: the least of all rounds with one
token generated, and with many; generation is the difference.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from agent_forge.evaluation.measures.perplexity import score_windows
from agent_forge.phases.bitnet import FLOAT, INT8, Bitnet, Submitted
from agent_forge.runs.kinds.asked import Lookup, RunRequest
from agent_forge.studies.comparison import CHOOSING, TEST
from agent_forge.studies.training_plan import as_float32
from agent_forge.studies.work import Context
from agent_forge.weights import operations
from agent_forge.weights.recipes import Algorithm, Train, Transform
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.tensors import Tensors, Weights
from agent_forge.weights.threads import set_threads
from agent_forge.weights.training.loop import segment
from benchmarks.common import machine

#: Rates that the scan tries, and the seed of the scan.
RATES = {"full": (5e-4, 1e-3, 2e-3, 4e-3), "ternary": (1e-3, 2e-3, 4e-3, 8e-3)}
SCAN_SEED = 100


def opened(model: Path, folder: Path, tokens: int, context: int, device: str) -> Context:
    """Return the context of a run of the model that has started."""
    kind = Bitnet()
    config = {"tokens": tokens, "context": context, "device": device}
    planned = kind.plan(RunRequest("bitnet", config, {"model": [str(model)]}), Lookup())
    set_threads(1)
    state = kind.state()
    state.take(Submitted(run="benchmark", owner="benchmark", config=planned.config, **planned.fields))
    context_ = Context(state, Artifacts(folder / "cache"))
    state.take(context_.started())
    return context_


def bits(context: Context, weights: Weights, int8: bool, on: Any) -> dict[str, float]:
    """Return domain → bits per byte on a slice."""
    model = context.loaded(Tensors(context.settings, weights), INT8 if int8 else FLOAT)
    told = {}
    for domain, data in sorted(context.held_out(on).items()):
        nll, _, _ = score_windows(model, data.windows)
        told[domain] = math.fsum(nll) / math.log(2) / sum(data.bytes)
    return told


class Trainings:
    """Trainings from the given model, and what they come to."""

    def __init__(self, context: Context) -> None:
        """Use a started context."""
        self.context = context
        self._submitted, self._started = context.state.submitted, context.state.started
        self._first = operations.apply(as_float32(self._started), {"of": context.given()})

    def rounded(self, recipe: Transform, of: Weights) -> Weights:
        """Return a model's weights, made ternary."""
        given = {"of": Tensors(self.context.settings, of)}
        return operations.apply(recipe, given, lambda: self.context.text.streams).weights

    def start(self) -> Weights:
        """Return the given model's weights."""
        return self._first.weights

    def done(self, arm: str, rate: float, seed: int, steps: int) -> tuple[Weights, float]:
        """Return the weights after a training, ternary ones packed, and its processor seconds."""
        kind, start = Bitnet(), as_float32(self._started).id
        made: Any = (
            kind.models_of(self._submitted, self._started)["full"]
            if arm == "full"
            else kind.master(self._submitted, self._started, start, None)
        )
        schedule = Algorithm(name=made.schedule.name, params={**made.schedule.params, "peak": rate})
        changes = {"seed": seed, "steps": steps, "upto": steps, "schedule": schedule}
        recipe = Train.model_validate({**made.model_dump(), **changes})
        began = time.process_time()
        streams, device = self.context.text.streams, self.context.device
        after = segment(recipe, self._first, None, streams, 0, steps, device=device, threads=1)
        seconds = time.process_time() - began
        if arm == "full":
            return after.weights, seconds
        return self.rounded(kind.rounded(self._submitted, recipe.id), after.weights), seconds


def scan(trainings: Trainings, steps: int, done: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a row for each rate of each arm, by the selection slice, that is not done."""
    for arm, rates in RATES.items():
        for rate in rates:
            key = {"what": "scan", "arm": arm, "rate": rate, "seed": SCAN_SEED, "steps": steps}
            if not any(key.items() <= row.items() for row in done):
                weights, seconds = trainings.done(arm, rate, SCAN_SEED, steps)
                found = bits(trainings.context, weights, arm != "full", CHOOSING)
                yield {**key, "bits": found, "seconds": seconds}


def best_rate(rows: list[dict[str, Any]], arm: str) -> float:
    """Return the rate of an arm with the fewest bits per byte in the scan."""
    scanned = [row for row in rows if row["what"] == "scan" and row["arm"] == arm]
    return min(scanned, key=lambda row: mean(row["bits"]))["rate"]


def mean(by_domain: Mapping[str, float]) -> float:
    """Return the mean over domains."""
    return math.fsum(by_domain.values()) / len(by_domain)


def compared(
    trainings: Trainings,
    steps: int,
    seeds: list[int],
    done: list[dict[str, Any]],
    rates: dict[str, float],
) -> Iterator[dict[str, Any]]:
    """Yield a row for each arm that is not done, by the test slice."""
    submitted, started = trainings.context.state.submitted, trainings.context.state.started
    told = {row["arm"] for row in done if row["what"] == "once"}
    ways = {"start": None, **Bitnet().untrained(submitted, started)}
    for way, recipe in ways.items():
        if way not in told:
            weights = trainings.start()
            if recipe is not None:
                weights = trainings.rounded(recipe, weights)
            found = bits(trainings.context, weights, recipe is not None, TEST)
            yield {"what": "once", "arm": way, "bits": found}
    for seed in seeds:
        for arm in RATES:
            key = {"what": "trained", "arm": arm, "seed": seed, "steps": steps}
            if not any(key.items() <= row.items() for row in done):
                rate = rates.get(arm) or best_rate(done, arm)
                weights, seconds = trainings.done(arm, rate, seed, steps)
                found = bits(trainings.context, weights, arm != "full", TEST)
                yield {**key, "rate": rate, "bits": found, "seconds": seconds}


def train(asked: argparse.Namespace) -> None:
    """Do what is not done, and append a line for each."""
    out = Path(asked.out)
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    with tempfile.TemporaryDirectory() as place:
        context = opened(Path(asked.model), Path(place), asked.tokens, asked.context, asked.device)
        trainings = Trainings(context)
        config = context.state.submitted.config
        steps = config.steps_of(context.state.started.context)
        seeds = [int(seed) for seed in asked.seeds.split(",")]
        rates = dict(zip(RATES, map(float, asked.rates.split(",")), strict=True)) if asked.rates else {}
        scanned = iter(()) if rates else scan(trainings, asked.scan_steps, rows)
        for some in (scanned, compared(trainings, steps, seeds, rows, rates)):
            for row in some:
                rows.append(row)
                with out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(json.dumps(row), flush=True)
    table(out)


def table(out: Path) -> None:
    """Print the results as Markdown."""
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    domains = sorted(rows[0]["bits"])
    print(machine())
    print(f"| arm | seed | steps | rate | {' | '.join(domains)} | mean | CPU s |")
    print("|---" * (6 + len(domains)) + "|")
    for row in rows:
        cells = [row["arm"], row.get("seed", ""), row.get("steps", ""), row.get("rate", "")]
        cells += [f"{row['bits'][d]:.4f}" for d in domains]
        cells += [f"{mean(row['bits']):.4f}", f"{row['seconds']:.0f}" if "seconds" in row else ""]
        print("| " + " | ".join(map(str, cells)) + " |")
    trained = [row for row in rows if row["what"] == "trained"]
    for seed in sorted({row["seed"] for row in trained}):
        one = {row["arm"]: mean(row["bits"]) for row in trained if row["seed"] == seed}
        start = mean(next(row["bits"] for row in rows if row["arm"] == "start"))
        if len(one) == len(RATES):
            excess, over = one["ternary"] / one["full"] - 1, one["ternary"] / start - 1
            print(f"seed {seed}: ternary {excess:+.2%} of full, {over:+.2%} of the start")


# ---- speed -----------------------------------------------------------------------------------

#: Sizes of the model whose speed is measured.
SHAPE = {
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 7,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "tie_word_embeddings": True,
    "max_position_embeddings": 512,
    "initializer_range": 0.02,
    "vocab_size": 8192,
}
TYPES = ("F32", "F16", "Q8_0", "TQ2_0", "TQ1_0")
PROMPT, GENERATED = 128, 64


def speed(rounds: int) -> None:
    """Print tokens a processor second of a prompt and of generation, by type, and bytes of files."""
    from agent_forge.evaluation.loading import load_tokenizer
    from agent_forge.weights.folders.checkpoint import open_checkpoint
    from agent_forge.weights.formats import byte_bpe, gguf_file
    from benchmarks.common import folders
    from testing.models import ternary
    from testing.services.llama_cpp import LlamaCpp

    set_threads(1)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model = ternary.write(folders(folder, 1)[0], folder / "ternary", **SHAPE)
        checkpoint, sizes, readers = open_checkpoint(model), {}, {}
        tokens = byte_bpe.of(load_tokenizer(str(model)), checkpoint.config["vocab_size"])
        for type_ in TYPES:
            file = folder / f"{type_}.gguf"
            sizes[type_] = gguf_file.write(checkpoint, tokens, file, type_, "random").bytes
            readers[type_] = LlamaCpp(file, context=512)
        least: dict[tuple[int, str], float] = {}
        for turn in range(rounds):
            for type_, reader in readers.items():
                for count in (1, 1 + GENERATED):
                    # Another first token each time: nothing of an earlier prompt can be used again.
                    ids = [(turn * 977 + count + 31 * i) % 8000 + 1 for i in range(PROMPT)]
                    seconds = _seconds(reader, ids, count)
                    least[count, type_] = min(least.get((count, type_), seconds), seconds)
    best: dict[tuple[str, str], float] = {}
    for type_ in TYPES:
        prompt, whole = (least[count, type_] for count in (1, 1 + GENERATED))
        best["prompt", type_] = PROMPT / prompt
        best["generate", type_] = GENERATED / (whole - prompt)
    print(f"{machine()}; {checkpoint.parameters:,} parameters, least of {rounds} rounds")
    print("| type | bytes | of F32 | prompt tokens/CPU s | generated tokens/CPU s | × F32 | × F16 |")
    print("|---|---|---|---|---|---|---|")
    for type_ in TYPES:
        made = best["generate", type_]
        others = (made / best["generate", other] for other in ("F32", "F16"))
        cells = (sizes[type_], f"{sizes['F32'] / sizes[type_]:.2f}x smaller")
        rates = (f"{best['prompt', type_]:,.0f}", f"{made:,.0f}", *(f"{o:.2f}" for o in others))
        print("| " + " | ".join(map(str, (type_, *cells, *rates))) + " |")


def _seconds(reader: Any, ids: list[int], count: int) -> float:
    """Return the processor seconds of llama.cpp while a prompt is continued by `count` tokens."""
    began = reader.seconds
    reader.greedy(ids, count)
    return reader.seconds - began


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    training = verbs.add_parser("train")
    training.add_argument("--model", required=True)
    training.add_argument("--out", required=True)
    training.add_argument("--seeds", default="0,1,2")
    training.add_argument("--rates", help="of full precision and ternary; no scan is made then")
    training.add_argument("--tokens", type=int, default=1_024_000)
    training.add_argument("--context", type=int, default=128)
    training.add_argument("--scan-steps", type=int, default=100)
    training.add_argument("--device", default="cpu")
    verbs.add_parser("table").add_argument("out")
    verbs.add_parser("speed").add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    if asked.verb == "train":
        train(asked)
    elif asked.verb == "table":
        table(Path(asked.out))
    else:
        speed(asked.rounds)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
