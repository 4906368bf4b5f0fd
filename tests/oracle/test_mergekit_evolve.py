"""Our words for mergekit-evolve: one genome gives the configuration that the installed one gives.

Its package is asked in its own environment, that of FORGE_MERGEKIT's `mergekit-yaml`.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_forge.evomerge.recipes import tensor_groups
from benchmarks.evomerge import incumbent
from testing.models.toys import Toys

TOOL = os.environ.get("FORGE_MERGEKIT", "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path(TOOL).is_file(), reason="FORGE_MERGEKIT names no mergekit-yaml"),
]

_THEIRS = """
import json, sys, torch
from mergekit.evo.genome import ModelGenome, ModelGenomeDefinition
given = json.load(sys.stdin)
genome = ModelGenome(ModelGenomeDefinition.model_validate(given["definition"]))
start = genome.initial_genotype()
config = genome.genotype_merge_config(torch.tensor(given["genotype"]).view(start.shape))
print(json.dumps([start.tolist(), config.model_dump(mode="json", exclude_none=True)]))
"""


def plain(config: Any) -> Any:
    """Without what says nothing: model references in their long form, null values."""
    if isinstance(config, dict):
        if set(config) == {"model"} and isinstance(config["model"], dict):
            return plain(config["model"]["path"])
        if "path" in config:
            return config["path"]
        return {k: plain(v) for k, v in config.items() if v is not None}
    if isinstance(config, list | tuple):
        return [plain(v) for v in config]
    return config


@pytest.mark.parametrize("method", incumbent.METHODS)
def test_a_genome_gives_the_same_configuration(method: str, toys: Toys) -> None:
    models, base, kinds = (
        [str(s) for s in toys.sources],
        str(toys.base),
        len(incumbent.METHODS[method]),
    )
    depths = 3
    genotype = np.random.default_rng(3).normal(0.3, 0.8, (depths, len(models), 1, kinds))
    definition = {"models": models, "base_model": base, "merge_method": method, "layer_granularity": 1}
    done = subprocess.run(
        [str(Path(TOOL).parent / "python"), "-c", _THEIRS],
        text=True,
        capture_output=True,
        input=json.dumps({"definition": definition, "genotype": genotype.ravel().tolist()}),
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    start, theirs = json.loads(done.stdout.splitlines()[-1])
    ours = incumbent.configuration(genotype, models, base, depths, method)
    assert rounded(plain(theirs)) == rounded(ours)
    flat = np.tile([1 / len(models), 1.0][:kinds], depths * len(models))
    assert np.allclose(np.ravel(start), flat)


def rounded(value: Any) -> Any:
    """Numbers to six places: theirs went through float32."""
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in sorted(value.items())}
    if isinstance(value, list | tuple):
        return [rounded(v) for v in value]
    return round(value, 6) if isinstance(value, float) else value


def test_the_configuration_as_a_recipe() -> None:
    """Weights, densities and what stands outside of the layers."""
    genotype = np.array([[[[0.4, 0.9]], [[-0.2, 0.5]]], [[[0.1, 1.7]], [[0.3, -0.25]]]])
    config = incumbent.configuration(genotype, ["a", "b"], "base", 4)
    made = incumbent.recipe(config, ("a", "b"), "base", 1)
    assert made.params[0] == {
        "weights": [0.4, 0.2],
        "drop": [pytest.approx(0.1), 0.5],
        "normalise": True,
        "vote": True,
    }
    assert made.params[3]["drop"] == [0.0, 0.75]
    names = tensor_groups.names(2)
    assert made.params[names.index("embedding")] == made.params[0]
    assert made.params[names.index("head")] == made.params[3]
