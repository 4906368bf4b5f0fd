"""Comparison of two measures of layer fitness that choose blocks for frankenmerge.

    python -m benchmarks.evomerge.layers MODELS

MODELS is a folder of `forge cognate`. For each of the four pipelines that end in frankenmerge, and
for three seeds, both measures see calibration text (train slice) and choose at most a third of the
blocks. Their choices are judged by the loss on the search and selection slices, which neither
measure has seen. `before` is the result of the earlier stages, `random` the mean over ten random
choices of as many blocks.
"""

from __future__ import annotations

import math
import statistics
import time
from pathlib import Path

from transformers import AutoTokenizer

from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data import items
from agent_forge.evaluation.data.packing import pack
from agent_forge.evaluation.measures.perplexity import score_windows
from agent_forge.evomerge.merging.builder import Builder, Weights
from agent_forge.evomerge.merging.layer_fitness import swap_gains
from agent_forge.evomerge.recipes.recipe import PIPELINES, Genes, Pipeline, Source
from agent_forge.evomerge.recipes.tensor_groups import choose
from agent_forge.runs import keys
from agent_forge.weights import block_names
from agent_forge.weights.folders.checkpoint import open_checkpoint
from benchmarks.common import options
from benchmarks.evomerge.taylor import taylor_gains

WINDOWS = 12


def main(folder: Path) -> None:
    """Print a line per pipeline and seed, then the means."""
    folders = [folder / name for name in ("base", "code", "math", "data")]
    weights = [open_checkpoint(f).tensors() for f in folders]
    ids = [Source(digest=f.name).id for f in folders]
    builder = Builder({}, dict(zip(ids, weights, strict=True)).get)
    model = ResidentModel(folders[0], "cpu", True)
    tokenizer = AutoTokenizer.from_pretrained(folders[0])
    packed = pack(items.load([folder / "items"]), tokenizer, 512)
    blocks = block_names.count(list(weights[0]))

    def judged(candidate: Weights) -> float:
        model.load(candidate)
        rates = []
        for slice_ in ("search", "selection"):
            for _, one in sorted(packed[slice_].items()):
                nll, tokens, _ = score_windows(model, one.windows[:WINDOWS])
                rates.append(math.fsum(nll) / sum(tokens))
        return statistics.fmean(rates)

    found: dict[str, list[float]] = {}
    print(f"{'pipeline':28s} seed {'before':>8s} {'swap':>8s} {'taylor':>8s} {'random':>8s}  chosen")
    for interpolation, arithmetic, selection in PIPELINES:
        if selection != "frankenmerge":
            continue
        for seed in range(3):
            own = Pipeline(
                inputs=tuple(ids[1:]),
                base=ids[0],
                seed=seed,
                genes=Genes(layers=(0,) * blocks),
                interpolation=interpolation,
                arithmetic=arithmetic,
                selection=selection,
            )
            merged = builder.build(own)
            choices, seconds = {}, {}
            for name, measure in (("swap", swap_gains), ("taylor", taylor_gains)):
                began = time.perf_counter()
                choices[name] = choose(measure(model, merged, weights[1:], packed["train"]))
                seconds[name] = time.perf_counter() - began

            def loss(choice: tuple[int, ...], own: Pipeline = own) -> float:
                genes = own.genes.model_copy(update={"layers": choice})
                return judged(builder.build(own.model_copy(update={"genes": genes})))

            rng = keys.generator("layers", seed, own.name)
            count = sum(1 for c in choices["swap"] if c)
            random = []
            for _ in range(10):
                choice = [0] * blocks
                for place in rng.permutation(blocks)[:count]:
                    choice[place] = int(rng.integers(1, 4))
                random.append(loss(tuple(choice)))
            row = {
                "before": judged(merged),
                "swap": loss(choices["swap"]),
                "taylor": loss(choices["taylor"]),
                "random": statistics.fmean(random),
            }
            for name, value in {**row, **{f"{n} s": s for n, s in seconds.items()}}.items():
                found.setdefault(name, []).append(value)
            told = " ".join(f"{value:8.4f}" for value in row.values())
            print(f"{own.name:28s} {seed:4d} {told}  {choices['swap']} {choices['taylor']}", flush=True)
            if arithmetic == "ties":
                break  # TIES is not random
    for name, values in found.items():
        print(f"mean {name:10s} {statistics.fmean(values):.4f}")
    pairs = list(zip(found["swap"], found["taylor"], strict=True))
    print(f"swap better than taylor in {sum(a < b for a, b in pairs)} of {len(pairs)}")


if __name__ == "__main__":
    parser = options(__doc__)
    parser.add_argument("models", type=Path, help="a folder of `forge cognate`")
    main(parser.parse_args().models)
