"""`forge merge` by the methods that came after mergekit's first; defaults; a base in the list."""

# ruff: noqa: E501  a config a line

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from agent_forge.evomerge.mergekit import parser
from agent_forge.evomerge.tasks import merge as tasks_merge
from agent_forge.runs.errors import ConfigError
from agent_forge.weights.folders.checkpoint import digest
from testing.models.toys import Toys
from tests.integration.evomerge.merging.test_merging import TIES, merge, places, tensors

ONE = "models: [{{model: {a}}}]\nbase_model: {base}\n"
TWO = "models: [{{model: {a}, parameters: {{weight: 1}}}}, {{model: {b}, parameters: {{weight: 3}}}}]\n"
THREE = "models: [{{model: {a}}}, {{model: {b}}}, {{model: {c}}}]\nbase_model: {base}\n"

CONFIGS = {
    "nuslerp": TWO + "merge_method: nuslerp\n",
    "nuslerp of rows": TWO
    + "base_model: {base}\nmerge_method: nuslerp\nparameters: {{nuslerp_flatten: false}}\n",
    "nuslerp of columns": TWO
    + "base_model: {base}\nmerge_method: nuslerp\nparameters: {{nuslerp_flatten: false, nuslerp_row_wise: true}}\n",
    "multislerp": TWO
    + "merge_method: multislerp\nparameters: {{normalize_weights: true, eps: 1e-7}}\n",
    "multislerp on a base": THREE + "merge_method: multislerp\nparameters: {{weight: 0.5}}\n",
    "arcee_fusion": ONE + "merge_method: arcee_fusion\n",
    "ram": THREE + "merge_method: ram\nparameters: {{epsilon: 0.002}}\n",
    "ramplus_tl": THREE
    + "merge_method: ramplus_tl\nparameters: {{epsilon: 0.002, r: 0.3, alpha: 0.5}}\n",
    "tsv_m": THREE + "merge_method: tsv_m\nparameters: {{weight: 0.8, lambda: 0.9}}\n",
    "iso_c": THREE + "merge_method: iso_c\nparameters: {{lambda: 0.5}}\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_the_same_bits_for_threads_and_shards(toys: Toys, tmp_path: Path, name: str) -> None:
    """And no warning: every parameter is read where it stands."""
    text = CONFIGS[name].format(**places(toys))
    (document,) = parser.parse(text)
    assert tasks_merge.prepare(document, tmp_path / "out", {}).warnings == []
    found = {
        merge(text, tmp_path / f"{threads}-{shard}", threads=threads, shard_bytes=shard)
        for threads in (1, 2)
        for shard in (10_000, 10**9)
    }
    assert found == {digest(tensors(tmp_path / "2-10000"))}
    first, made = tensors(toys.sources[0]), tensors(tmp_path / "1-10000")
    assert any(not torch.equal(made[n], first[n]) for n in made)


def test_the_three_forms_of_nuslerp_differ(toys: Toys, tmp_path: Path) -> None:
    """Whole tensors, rows, columns: the words for them are mergekit's."""
    made = {}
    for said in ("true", "false, nuslerp_row_wise: false", "false, nuslerp_row_wise: true"):
        text = (
            TWO + "base_model: {base}\nmerge_method: nuslerp\nparameters: {{nuslerp_flatten: {said}}}\n"
        )
        merge(text.format(**places(toys), said=said), tmp_path / "out")
        made[said] = tensors(tmp_path / "out")
    by_tensor, by_row, by_column = made.values()
    base, a, b = (tensors(p) for p in (toys.base, *toys.sources[:2]))
    name = "model.layers.0.mlp.up_proj.weight"
    assert len({bytes(m[name].numpy().tobytes()) for m in made.values()}) == 3
    for found, rows in ((by_row, slice(None)), (by_column, None)):
        wide = [x[name].double() - base[name].double() for x in (a, b, found)]
        one = [x[0] if rows else x[:, 0] for x in wide]
        angle = torch.acos(torch.nn.functional.cosine_similarity(one[0], one[1], dim=0))
        wanted = (torch.sin(0.25 * angle) * one[0] + torch.sin(0.75 * angle) * one[1]) / angle.sin()
        assert torch.allclose(one[2], wanted, atol=1e-7)
    assert torch.equal(by_tensor["model.norm.weight"], by_row["model.norm.weight"])  # a vector


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            THREE + "merge_method: nuslerp\nparameters: {{weight: 1}}\n",
            "nuslerp takes 2 models beside the base, not 3",
        ),
        (
            "models: [{{model: {a}}}]\nmerge_method: nuslerp\nparameters: {{weight: 1}}\n",
            "nuslerp takes 2 models, not 1",
        ),
        (THREE + "merge_method: arcee_fusion\n", "arcee_fusion takes 1 models beside the base, not 3"),
        ("models: [{{model: {a}}}]\nmerge_method: ram\n", "ram needs a base_model"),
        (THREE + "merge_method: multislerp\n", "parameter weight is missing for tensor"),
    ],
)
def test_models_that_do_not_fit_are_refused(toys: Toys, tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        merge(text.format(**places(toys)), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


# ---- a base beside the list ----------------------------------------------------------------


@pytest.mark.parametrize("method", ["linear", "karcher"])
def test_a_base_beside_the_list_is_merged_in(toys: Toys, tmp_path: Path, method: str) -> None:
    """As mergekit does: one more model, after the others, with the weight that stands for all."""
    models = "models: [{{model: {a}}}, {{model: {b}}}{more}]\n"
    rest = f"merge_method: {method}\nbase_model: {{base}}\nparameters: {{{{weight: 0.4}}}}\n"
    beside = merge((models + rest).format(**places(toys), more=""), tmp_path / "beside")
    more = f", {{model: {toys.base}}}"
    assert beside == merge((models + rest).format(**places(toys), more=more), tmp_path / "listed")
    without = (models + rest).replace("base_model: {base}\n", "").format(**places(toys), more="")
    assert beside != merge(without, tmp_path / "without")


def test_a_base_beside_the_list_that_has_no_weight_is_refused(toys: Toys, tmp_path: Path) -> None:
    """It would be left out, or merged in, and nobody could tell."""
    text = TWO + "merge_method: linear\nbase_model: {base}\n"
    with pytest.raises(ConfigError, match=r"linear merges the base_model in, too\. Give it a weight"):
        merge(text.format(**places(toys)), tmp_path / "out")
    zero = TWO.replace("]\n", ", {{model: {base}, parameters: {{weight: 0}}}}]\n")
    text = zero + "merge_method: linear\nbase_model: {base}\n"
    found = merge(text.format(**places(toys)), tmp_path / "zero")
    assert found == merge((TWO + "merge_method: linear\n").format(**places(toys)), tmp_path / "no")


def test_a_base_of_slices_is_not_merged_in(toys: Toys, tmp_path: Path) -> None:
    """There all sources are written out; the base gives the config and the tokenizer."""
    text = "slices: [{{sources: [{{model: {a}, layer_range: [0, 3]}}, {{model: {b}, layer_range: [0, 3]}}]}}]\n"
    text += "merge_method: linear\nparameters: {{weight: 1}}\n"
    found = merge(text.format(**places(toys)), tmp_path / "a")
    assert merge((text + "base_model: {base}\n").format(**places(toys)), tmp_path / "b") == found


# ---- defaults ------------------------------------------------------------------------------


def test_della_is_a_mean_unless_it_is_told_not_to_be(toys: Toys, tmp_path: Path) -> None:
    """Its authors' and mergekit's default: at density 1 it is ties. della_linear is a sum."""
    text = TIES.replace("density: 0.5", "density: 1")
    found = {
        method: merge(text.format(**places(toys), method=method), tmp_path / method)
        for method in ("della", "ties", "della_linear", "task_arithmetic")
    }
    assert found["della"] == found["ties"]
    assert found["della_linear"] == found["task_arithmetic"]


def test_breadcrumbs_without_a_density_adds_task_vectors_up(toys: Toys, tmp_path: Path) -> None:
    """Everything stays, gamma or not."""
    text = TIES.replace(", density: 0.5", "")
    found = {
        merge(text.format(**places(toys), method=method), tmp_path / method)
        for method in ("breadcrumbs", "task_arithmetic")
    }
    assert len(found) == 1
