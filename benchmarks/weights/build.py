"""Time to build a 25M candidate with each pipeline, from sources in memory.

    python -m benchmarks.weights.build [--large]

The choice of layers, which runs the model, is not included. The yardstick is one linear merge in
plain torch (`sum(w * x)`) of the same three models. Also timed are all eight pipelines together in
one pass over the sources, and a linear merge alone, on a quiet machine and beside a busy process;
with --large also a linear merge of three 0.5B models in bfloat16.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from agent_forge.evomerge.merging.builder import Builder
from agent_forge.evomerge.recipes.recipe import PIPELINES, Genes, Merge, Mutate, Noise, Pipeline, Source
from benchmarks.common import best, machine, options, weights
from benchmarks.weights.merge import SIZES, shapes


@contextmanager
def busy() -> Iterator[None]:
    """Run another process that computes all the time."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """Print a line per pipeline, and lines of the other builds."""
    models = weights(4)
    ids = [Source(digest=str(i)).id for i in range(4)]
    known = {id_: Source(digest=str(i)) for i, id_ in enumerate(ids)}
    stored = dict(zip(ids, models, strict=True))
    builder = Builder(known, stored.get)
    third = 1 / 3

    def plain() -> None:
        for name in models[0]:
            sum(third * m[name] for m in models[1:])

    unit = best(plain)
    print(f"{machine()}; plain torch mean of three: {unit:.3f} s")
    recipes, alone = [], []
    for number, (interpolation, arithmetic, selection) in enumerate(PIPELINES):
        layers = (0, 0, 0, 1, 0, 0, 2, 0, 0, 3, 0, 1) if selection == "frankenmerge" else None
        recipe = Pipeline(
            inputs=tuple(ids[1:]),
            base=ids[0],
            seed=1,
            genes=Genes(layers=layers),
            interpolation=interpolation,
            arithmetic=arithmetic,
            selection=selection,
        )
        seconds = best(lambda r=recipe: builder.build(r), 5)
        recipes.append(recipe)
        alone.append(seconds)
        print(
            f"{number} {recipe.name:28s} {seconds:.3f} s  {seconds / unit:6.1f} x plain  "
            f"{'ok' if seconds < 0.25 else 'OVER 0.25 s'}"
        )
    together = best(lambda: builder.build_many(recipes), 3)
    mean = sum(alone) / len(alone)
    print(f"  eight together               {together:.3f} s  {together / mean:6.1f} x one (most 4)")
    linear = Merge(method="linear", inputs=tuple(ids[1:]), base=None)
    quiet = best(lambda: builder.build(linear))
    with busy():
        beside = best(lambda: builder.build(linear))
    print(f"  linear {quiet:.3f} s, beside a busy process {beside:.3f} s (most 0.05)")
    noise = Noise(rate=0.01, sigma=0.2, relative_to="task_vector", seed=1)
    mutant = Mutate(parent=ids[1], base=ids[0], noise=noise)
    print(f"  weight noise                 {best(lambda: builder.build(mutant), 3):.3f} s")


def large() -> None:
    """Print the line of a linear merge of three 0.5B models."""
    models = []
    for seed in range(3):
        torch.manual_seed(seed)
        models.append(
            {
                name: torch.empty(shape, dtype=torch.bfloat16).normal_(std=0.02)
                for name, shape in shapes(*SIZES["0.5b"]).items()
            }
        )
    known = {Source(digest=str(i)).id: Source(digest=str(i)) for i in range(3)}
    builder = Builder(known, dict(zip(known, models, strict=True)).get)
    linear = Merge(method="linear", inputs=tuple(known), base=None)
    quiet = best(lambda: builder.build(linear), 3)
    with busy():
        beside = best(lambda: builder.build(linear), 3)
    print(f"  0.5B: linear {quiet:.3f} s, beside a busy process {beside:.3f} s (most 0.4)")


if __name__ == "__main__":
    parser = options(__doc__)
    parser.add_argument("--large", action="store_true", help="also three 0.5B models")
    asked = parser.parse_args()
    main()
    if asked.large:
        large()
