"""config.json of a merge: lists with an entry for each layer, heads, and what could not be loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from agent_forge.evomerge.mergekit import parser
from agent_forge.evomerge.tasks import merge as tasks_merge
from agent_forge.runs.errors import SourceError
from testing.models import families
from testing.shares import one_quick


def sliced(folders: list[Path], ranges: list[list[int]], out: Path) -> tasks_merge.PreparedMerge:
    """Prepare a stack of slices, one of each folder."""
    slices = [
        {"sources": [{"model": str(folder), "layer_range": layers}]}
        for folder, layers in zip(folders, ranges, strict=True)
    ]
    text = json.dumps({"merge_method": "passthrough", "slices": slices})
    (document,) = parser.parse(text, "config.yml")
    return tasks_merge.prepare(document, out, {})


def linear(folders: list[Path], out: Path) -> tasks_merge.PreparedMerge:
    """Prepare the mean of some models."""
    models = [{"model": str(f), "parameters": {"weight": 1.0}} for f in folders]
    text = json.dumps({"merge_method": "linear", "models": models})
    (document,) = parser.parse(text, "config.yml")
    return tasks_merge.prepare(document, out, {})


def written(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text("utf-8"))


#: Kind, settings of the two models, the list in question, its entries in the result.
LISTS = [
    (
        "smollm3",
        {"no_rope_layers": [1, 0, 1, 1]},
        {"no_rope_layers": [0, 0, 1, 0]},
        "no_rope_layers",
        [1, 0, 1, 0, 1, 0],
    ),
    (
        "gpt_neo",
        {"attention_types": [[["global", "local"], 2]]},
        {"attention_types": [[["local"], 4]]},
        "attention_layers",
        ["global", "local", "global", "local", "local", "local"],
    ),
    (
        "gemma3_text",
        {"layer_types": ["sliding_attention", "full_attention"] * 2},
        {"layer_types": ["full_attention"] * 4},
        "layer_types",
        ["sliding_attention", "full_attention", "sliding_attention"] + ["full_attention"] * 3,
    ),
]


@pytest.mark.parametrize(("kind", "first", "second", "key", "wanted"), one_quick(*LISTS))
def test_lists_of_layers_are_cut_like_the_layers(
    kind: str,
    first: dict[str, Any],
    second: dict[str, Any],
    key: str,
    wanted: list[Any],
    tmp_path: Path,
) -> None:
    """Layers 0 to 2 of one model and 1 to 3 of another: each entry comes with its layer."""
    depth = {"num_layers" if kind == "gpt_neo" else "num_hidden_layers": 4}
    folders = [
        families.save(tmp_path / name, kind, **depth, **settings)
        for name, settings in (("a", first), ("b", second))
    ]
    tasks_merge.run(sliced(folders, [[0, 3], [1, 4]], tmp_path / "out"))
    assert written(tmp_path / "out")[key] == wanted
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert list(getattr(model.config, key)) == wanted
    assert model(input_ids=torch.tensor([[1, 2, 3]])).logits.isfinite().all()


def test_numbers_of_layers_follow_the_layers(tmp_path: Path) -> None:
    """`mlp_only_layers` names layers by their numbers: they are numbered anew."""
    settings = {"num_hidden_layers": 3, "mlp_only_layers": [0, 2]}
    folder = families.save(tmp_path / "a", "qwen3_moe", **settings)
    tasks_merge.run(sliced([folder, folder], [[1, 3], [0, 1]], tmp_path / "out"))
    assert written(tmp_path / "out")["mlp_only_layers"] == [1, 2]
    AutoModelForCausalLM.from_pretrained(tmp_path / "out")


def test_layers_that_a_config_cannot_describe_end_the_merge_before_it_writes(tmp_path: Path) -> None:
    """DeepSeek's first layers are dense, and the config says only how many."""
    folder = families.save(tmp_path / "a", "deepseek_v3")
    with pytest.raises(SourceError, match=r"layers\.0\."):
        sliced([folder, folder], [[1, 2], [0, 1]], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", one_quick(*families.PACKED))
def test_mixtures_of_experts_are_merged_and_loaded(kind: str, tmp_path: Path) -> None:
    """The mean, tensor by tensor, under the names of the files; transformers packs them."""
    folders = [families.save(tmp_path / f"m{seed}", kind, seed) for seed in range(2)]
    tasks_merge.run(linear(folders, tmp_path / "out"))
    a, b, made = (families.tensors(f) for f in (*folders, tmp_path / "out"))
    assert made.keys() == a.keys()
    for name, tensor in made.items():
        assert torch.allclose(tensor, (a[name] + b[name]) / 2), name
    AutoModelForCausalLM.from_pretrained(tmp_path / "out")


def test_a_head_beside_a_tied_one_is_kept_and_said(tmp_path: Path) -> None:
    """The config of the result no longer ties, and the merge says why."""
    folders = [
        families.save(tmp_path / f"m{seed}", "llama", seed, tie_word_embeddings=True)
        for seed in range(2)
    ]
    weights = families.tensors(folders[0])
    families.store(folders[0], weights | {"lm_head.weight": torch.ones(96, 32)})
    prepared = linear(folders, tmp_path / "out")
    assert any("another head is stored" in warning for warning in prepared.warnings)
    tasks_merge.run(prepared)
    assert written(tmp_path / "out")["tie_word_embeddings"] is False
    mean = (1 + families.tensors(folders[1])["model.embed_tokens.weight"]) / 2
    assert torch.allclose(families.tensors(tmp_path / "out")["lm_head.weight"], mean)


def test_code_of_a_known_architecture_is_named(tmp_path: Path) -> None:
    """The result has neither the code nor the key: the user may want to copy both."""
    folders = [families.save(tmp_path / f"m{seed}", "llama", seed) for seed in range(2)]
    file = folders[0] / "config.json"
    config = json.loads(file.read_text("utf-8")) | {"auto_map": {"AutoModel": "modeling_my.My"}}
    file.write_text(json.dumps(config), "utf-8")
    (folders[0] / "modeling_my.py").write_text("", "utf-8")
    (warning,) = linear(folders, tmp_path / "out").warnings
    assert "auto_map" in warning
    assert "copy modeling_my.py" in warning
