"""The dtype of a merge: that of the base or of the first model, unless the config has one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from agent_forge.evomerge.mergekit import parser
from agent_forge.evomerge.tasks import merge as tasks_merge
from agent_forge.weights.folders.checkpoint import digest, open_checkpoint
from testing.models import toy_models

LINEAR = """
models:
  - {{model: {a}, parameters: {{weight: 0.5}}}}
  - {{model: {b}, parameters: {{weight: 0.5}}}}
merge_method: linear
{more}
"""
ARITHMETIC = """
models:
  - {{model: {a}, parameters: {{weight: 0.5}}}}
  - {{model: {b}, parameters: {{weight: 0.5}}}}
merge_method: task_arithmetic
base_model: {base}
"""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Dtype → base and two sources in it, of the same numbers before they were rounded."""
    folder = tmp_path_factory.mktemp("models")
    found = {}
    for name, dtype in DTYPES.items():
        base, sources = toy_models.family(folder / name, 2, dtype)
        found[name] = [base, *sources]
    return found


def merged(text: str, out: Path) -> dict[str, torch.Tensor]:
    """Merge by a config; return the result's tensors, whose dtype config.json must name."""
    (document,) = parser.parse(text, "config.yml")
    found = tasks_merge.run(tasks_merge.prepare(document, out, {}))
    tensors = dict(open_checkpoint(out).tensors())
    assert found == digest(tensors)
    (dtype,) = {str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()}
    assert json.loads((out / "config.json").read_text())["dtype"] == dtype
    return tensors


@pytest.mark.parametrize(
    ("first", "second", "more", "expected"),
    [
        ("bfloat16", "bfloat16", "", "bfloat16"),
        ("float16", "float16", "", "float16"),
        ("bfloat16", "float16", "", "bfloat16"),
        ("float32", "bfloat16", "", "float32"),
        ("float16", "float32", "dtype: bfloat16", "bfloat16"),
        ("bfloat16", "bfloat16", "dtype: bfloat16\nout_dtype: float32", "float32"),
    ],
)
def test_a_merge_without_a_base_has_the_dtype_of_its_first_model_or_of_the_config(
    models, tmp_path: Path, first: str, second: str, more: str, expected: str
) -> None:
    """Computed in float32 and rounded once, whatever is mixed."""
    a, b = models[first][1], models[second][2]
    made = merged(LINEAR.format(a=a, b=b, more=more), tmp_path / "out")
    one, two = (open_checkpoint(place).tensors() for place in (a, b))
    for name, tensor in made.items():
        mean = one[name].float() * 0.5 + two[name].float() * 0.5
        assert torch.equal(tensor, mean.to(DTYPES[expected]))


@pytest.mark.parametrize("base", ["bfloat16", "float16"])
def test_a_merge_over_a_base_has_the_dtype_of_the_base(models, tmp_path: Path, base: str) -> None:
    """Models of float32 and of the other 16 bits are merged into it."""
    other = "float16" if base == "bfloat16" else "bfloat16"
    a, b, origin = models["float32"][1], models[other][2], models[base][0]
    made = merged(ARITHMETIC.format(a=a, b=b, base=origin), tmp_path / "out")
    assert {tensor.dtype for tensor in made.values()} == {DTYPES[base]}
