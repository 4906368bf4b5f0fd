"""Architecture titans-mag: what memory and recursion are worth, at equal parameters, data and time.

    python -m benchmarks.phases.titans recall      memory against none, by distance in windows
    python -m benchmarks.phases.titans steps       T = 2 against T = 1 on chains of look-ups
    python -m benchmarks.phases.titans text        bits per byte against the plain decoder

`text` also takes `--device cuda:0`; its seconds are the processor's there, too.
Every training is repeated for each seed; a line of JSON a training, a table at the end.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.training_text import kept_text
from agent_forge.phases.cognate import figures, recipes, work
from agent_forge.phases.cognate.recipes import Submitted
from agent_forge.phases.cognate.settings import TITANS, CognateConfig
from agent_forge.studies import training_plan
from agent_forge.studies.events import Observe
from agent_forge.weights import operations
from agent_forge.weights.architectures.auto import AutoModelForCausalLM
from agent_forge.weights.architectures.auto_config import AutoConfig
from agent_forge.weights.recipes import Algorithm, Train, Transform
from agent_forge.weights.storage.inputs import Supply
from agent_forge.weights.training import complete
from agent_forge.weights.training.loop import Training, pinned

WINDOW, PAIRS, SYMBOLS = 32, 4, 16
#: Keys, values, filler, "asked" and "hops": ids of tokens.
KEYS, VALUES, FILLER, ASK = 0, SYMBOLS, 2 * SYMBOLS, 3 * SYMBOLS
VOCABULARY = 3 * SYMBOLS + 8
SHORTEST, LONGEST = 4, 8 * WINDOW
#: Fillers of the test: inside of a window, and 2, 4, 6, 8 windows.
DISTANCES = (8, 2 * WINDOW, 4 * WINDOW, 6 * WINDOW, 8 * WINDOW)

Batch = tuple[torch.Tensor, torch.Tensor]
Task = Callable[[int, int, np.random.Generator], Batch]


def config(**changes: Any) -> dict[str, Any]:
    """Return the settings of the models of `recall` and `steps`."""
    settings = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "max_position_embeddings": 2 * LONGEST,
        "sliding_window": WINDOW,
        "memory_chunk": WINDOW,
    }
    return {**settings, **changes}


def build(settings: Mapping[str, Any], seed: int) -> Any:
    """Return a model with newly drawn weights."""
    torch.manual_seed(seed)
    made: Any = AutoModelForCausalLM.from_config(
        AutoConfig.for_model("titans_mag", **settings), dtype=torch.float32
    )
    return made.train()


def parameters(settings: Mapping[str, Any]) -> int:
    """Return the number of parameters of a model."""
    return sum(p.numel() for p in build(settings, 0).parameters())


def widened(settings: Mapping[str, Any], wanted: int) -> dict[str, Any]:
    """Return the settings with the MLP as wide as `wanted` parameters need, at least."""
    each = 3 * settings["hidden_size"] * settings["num_hidden_layers"]
    more = max(0, math.ceil((wanted - parameters(settings)) / each))
    return {**settings, "intermediate_size": settings["intermediate_size"] + more}


def recall(rows: int, filler: int, draw: np.random.Generator) -> Batch:
    """Return pairs of key and value, filler, and the keys asked in another order, with their values."""
    keys = np.stack([draw.permutation(SYMBOLS)[:PAIRS] for _ in range(rows)])
    values = draw.integers(0, SYMBOLS, (rows, PAIRS))
    order = np.stack([draw.permutation(PAIRS) for _ in range(rows)])
    told = np.stack([KEYS + keys, VALUES + values], 2).reshape(rows, -1)
    asked_keys, asked = (np.take_along_axis(one, order, 1) for one in (keys, values))
    asking = np.stack([KEYS + asked_keys, VALUES + asked], 2).reshape(rows, -1)
    noise = draw.integers(FILLER, FILLER + SYMBOLS, (rows, filler))
    begin = np.full((rows, 1), ASK)
    ids = torch.from_numpy(np.concatenate([told, noise, begin, asking], 1))
    wanted = torch.zeros_like(ids, dtype=torch.bool)
    wanted[:, -2 * PAIRS + 1 :: 2] = True
    return ids, wanted


def chain(rows: int, hops: Sequence[int], draw: np.random.Generator) -> Batch:
    """Return a random permutation of eight symbols as pairs, and what follows some after `hops` steps.

    Each question has a symbol of its own and says how many steps.
    """
    count, asked = 8, len(hops)
    following = np.stack([draw.permutation(count) for _ in range(rows)])
    order = np.stack([draw.permutation(count) for _ in range(rows)])
    told = np.stack([KEYS + order, VALUES + np.take_along_axis(following, order, 1)], 2)
    start = np.stack([draw.permutation(count)[:asked] for _ in range(rows)])
    at = start
    for step in range(max(hops)):
        moved = np.take_along_axis(following, at, 1)
        at = np.where(np.asarray(hops) > step, moved, at)
    how = np.broadcast_to(ASK + np.asarray(hops), (rows, asked))
    questions = np.stack([how, KEYS + start, VALUES + at], 2).reshape(rows, -1)
    ids = torch.from_numpy(np.concatenate([told.reshape(rows, -1), questions], 1))
    wanted = torch.zeros_like(ids, dtype=torch.bool)
    wanted[:, 2 * count + 2 :: 3] = True
    return ids, wanted


def right(model: Any, batch: Batch) -> float:
    """Return the share of wanted tokens that are the most likely ones."""
    ids, wanted = batch
    with torch.no_grad():
        best = model.eval()(ids, use_cache=False).logits[:, :-1].argmax(-1)
    model.train()
    return float((best == ids[:, 1:])[wanted[:, 1:]].float().mean())


def train(
    model: Any, batches: Iterator[Batch], steps: int, rate: float, seconds: float | None = None
) -> tuple[float, int]:
    """Train on the wanted tokens; return the processor's seconds and the steps.

    With `seconds`, train until the processor has spent them, at a rate that follows this time.
    """
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01, betas=(0.9, 0.98))
    began, done = time.process_time(), 0
    while True:
        spent = time.process_time() - began
        share = done / steps if seconds is None else spent / seconds
        if share >= 1:
            return spent, done
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1.0, done / 50 + 0.02) * (0.1 + 0.9 * (1 - share))
        ids, wanted = next(batches)
        logits = model(ids, use_cache=False).logits[:, :-1]
        loss = F.cross_entropy(logits[wanted[:, 1:]], ids[:, 1:][wanted[:, 1:]])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        done += 1


def recall_batches(seed: int, steps: int, rows: int = 32) -> Iterator[Batch]:
    """Yield batches whose filler is log-uniform from 4 to a length that grows to 8 windows."""
    draw = np.random.default_rng([seed, 1])
    for step in range(10**9):
        most = SHORTEST + (LONGEST - SHORTEST) * min(1.0, (step + 1) / (0.6 * steps))
        filler = int(math.exp(draw.uniform(math.log(SHORTEST), math.log(max(most, 8)))))
        yield recall(rows, filler, draw)


def run_recall(seeds: Sequence[int], steps: int, only: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Train every arm on recall; measure by distance."""
    linear = config()
    count = parameters(linear)
    arms = {
        "linear": linear,
        "none": widened(config(memory="none"), count),
        "full attention": widened(config(memory="none", sliding_window=1024), count),
        "two-layer": config(memory="two-layer", memory_width=32, memory_step=0.1),
        "product": config(gate="product"),
    }
    found = []
    for seed in seeds:
        for name, settings in arms.items():
            if only and name not in only:
                continue
            model = build(settings, seed)
            spent, _ = train(model, recall_batches(seed, steps), steps, 3e-3)
            test = np.random.default_rng([seed, 2])
            share = {str(d): right(model, recall(256, d, test)) for d in DISTANCES}
            row = {"arm": name, "seed": seed, "parameters": parameters(settings)}
            found.append({**row, "seconds": round(spent, 1), **share})
            print(json.dumps(found[-1]), flush=True)
    return found


HOPS = (1, 2, 3, 4)


def chain_batches(seed: int, steps: int, rows: int = 32) -> Iterator[Batch]:
    """Yield batches of four questions a row: of one hop first, of up to four after half of `steps`."""
    draw = np.random.default_rng([seed, 3])
    for step in range(10**9):
        most = min(len(HOPS), 1 + step * len(HOPS) * 2 // steps)
        yield chain(rows, [int(one) for one in draw.integers(1, most + 1, len(HOPS))], draw)


def run_steps(seeds: Sequence[int], steps: int, only: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Train T = 1 and T = 2 at equal data, and T = 1 in the time that T = 2 took."""
    found = []
    once, twice = config(), config(recursions=2)
    for seed in seeds:
        limit: float | None = None
        for name, settings in (
            ("T = 2", twice),
            ("T = 2, halting", {**twice, "halting": True}),
            ("T = 1, equal data", once),
            ("T = 1, equal time", once),
        ):
            if only and name not in only:
                continue
            model = build(settings, seed)
            given = limit if name.endswith("time") else None
            spent, done = train(model, chain_batches(seed, steps), steps, 3e-3, given)
            limit = limit or spent
            test = np.random.default_rng([seed, 4])
            share = {str(h): right(model, chain(512, [h] * len(HOPS), test)) for h in HOPS}
            row = {"arm": name, "seed": seed, "steps": done, "seconds": round(spent, 1)}
            found.append({**row, "parameters": parameters(settings), **share})
            print(json.dumps(found[-1]), flush=True)
    return found


def table(rows: list[dict[str, Any]]) -> None:
    """Print each arm's mean and range over the seeds."""
    for arm in dict.fromkeys(row["arm"] for row in rows):
        mine = [row for row in rows if row["arm"] == arm]
        cells = []
        for key in mine[0]:
            if key in ("arm", "seed"):
                continue
            values = [float(row[key]) for row in mine]
            mean = sum(values) / len(values)
            cells.append(f"{key}: {mean:.4g} ({min(values):.4g} to {max(values):.4g})")
        print(f"{arm:20s} " + " | ".join(cells))


#: Arm of `text` → what its model is, all with about as many parameters and the same rows of 320 tokens.
TEXT_ARMS: Mapping[str, dict[str, Any]] = {
    "plain decoder": {"architecture": "qwen2"},
    "window and linear memory": {"architecture": "titans-mag"},
    "window only": {"architecture": "titans-mag", "memory": "none"},
}


def text_start(arm: str, seed: int) -> Transform:
    """Return the first weights of an arm: as many parameters as titans-mag's tiny, at least."""
    config = CognateConfig.model_validate({"preset": "tiny", "seed": seed, **TEXT_ARMS[arm]})
    wanted = TITANS["tiny"].parameters
    size = config.size.model_copy(update={"context": TITANS["tiny"].context})
    missing = wanted - size.parameters
    more = max(0, math.ceil(missing / (3 * size.hidden * size.layers)))
    size = size.model_copy(update={"intermediate": size.intermediate + more})
    operation, shape = size.initialisation()
    return operations.complete(Transform(operation=operation, params=shape, seed=seed))


def text_recipe(start: Transform, made: kept_text.TextFolder, steps: int) -> Train:
    """Return the training of a base on the mix of titans-mag's presets, as cognate's plan has it."""
    size = TITANS["tiny"]
    told = Train(
        objective=recipes.OBJECTIVE,
        start=start.id,
        data=size.base_mix,
        data_digests={domain: made.digests[domain] for domain in size.base_mix},
        batch=size.batch,
        context=size.context,
        optimiser=recipes.OPTIMISERS["muon"],
        schedule=Algorithm(name="cosine@1", params={"peak": size.base_rate, "warmup": size.warmup}),
        clip=training_plan.CLIP,
        seed=start.seed,
        purpose=recipes.BASE,
        steps=steps,
        upto=steps,
    )
    return complete(told)


def run_text(
    seeds: Sequence[int], steps: int, only: Sequence[str] = (), device: str = "cpu"
) -> list[dict[str, Any]]:
    """Train every arm on the same tokens of text; measure bits per byte by domain."""
    found = []
    for seed in seeds:
        settings = {"preset": "tiny", "seed": seed, "architecture": "titans-mag"}
        settings["domains"] = tuple(TITANS["tiny"].base_mix)
        given = Submitted(run="b", owner="", config=CognateConfig.model_validate(settings))
        with tempfile.TemporaryDirectory() as folder, pinned(1):
            made = kept_text.make(
                Supply(Path(folder), None), partial(work.fill, submitted=given, donor=None, changes={})
            )
            held_out = made.held_out(TITANS["tiny"].context, figures.SLICE)
            for arm in TEXT_ARMS:
                if only and arm not in only:
                    continue
                start = text_start(arm, seed)
                model = operations.apply(start, {})
                recipe = text_recipe(start, made, steps)
                training = Training(recipe, model, None, made.streams, {}, device)
                began = time.process_time()
                weights = training.run(0, steps).weights
                spent = time.process_time() - began
                task = Observe(recipe.id, figures.QUALITY, figures.SLICE)
                resident = ResidentModel.from_module(training.module.eval())
                bits = work.quality(task, resident, weights, held_out).values
                row = {"arm": arm, "seed": seed, "steps": steps, "seconds": round(spent, 1)}
                row["parameters"] = sum(t.numel() for t in weights.values())
                found.append({**row, **{name: round(value, 4) for name, value in bits.items()}})
                print(json.dumps(found[-1]), flush=True)
    return found


PARTS = {"text": (run_text, 200), "recall": (run_recall, 600), "steps": (run_steps, 1500)}


def main() -> None:
    """Run the parts that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--seeds", type=int, nargs="*", default=(0, 1, 2))
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--arms", nargs="*", default=(), help="the arms to train; none: all")
    parser.add_argument("--device", default="cpu", help="of `text`: cpu or cuda:N")
    given = parser.parse_args()
    torch.set_num_threads(1)
    run, steps = PARTS[given.part]
    if given.part == "text":
        run = partial(run_text, device=given.device)
    table(run(given.seeds, given.steps or steps, given.arms))


if __name__ == "__main__":
    main()
