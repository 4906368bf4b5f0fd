"""A model folder beside the model that transformers builds from it: what fits, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.runs.errors import SourceError
from agent_forge.weights.folders import model_config
from agent_forge.weights.folders.checkpoint import INDEX, open_checkpoint
from agent_forge.weights.folders.parameters import fill, fill_buffers
from testing.models import families
from testing.shares import one_quick

IDS = torch.arange(1, 13).view(1, 12)


def logits(folder: Path) -> torch.Tensor:
    """Return what transformers computes with a folder."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        return model(input_ids=IDS, use_cache=False).logits


def measured(folder: Path) -> torch.Tensor:
    """Return what a run computes with a folder."""
    opened = open_checkpoint(folder)
    model = ResidentModel(folder, "cpu", opened.tied)
    model.load(opened.tensors())
    return model.logits(IDS)


def setting(folder: Path, **more: Any) -> None:
    """Change keys of config.json; `...` removes one."""
    file = folder / "config.json"
    config = json.loads(file.read_text("utf-8")) | more
    file.write_text(json.dumps({k: v for k, v in config.items() if v is not ...}), "utf-8")


def rename(folder: Path, change: Any) -> None:
    """Store every tensor under another name."""
    families.store(folder, {change(n): t for n, t in families.tensors(folder).items()})


def add(folder: Path, **more: torch.Tensor) -> None:
    """Store further tensors."""
    families.store(folder, families.tensors(folder) | more)


@pytest.mark.parametrize(
    "kind", one_quick("mixtral", *(kind for kind in families.CONFIGS if kind != "mixtral"))
)
def test_a_folder_is_measured_as_transformers_computes_it(kind: str, tmp_path: Path) -> None:
    """Each architecture, also those whose experts are packed and those that store a buffer."""
    folder = families.save(tmp_path / kind, kind)
    opened = open_checkpoint(folder)
    assert list(opened.files) == sorted(families.tensors(folder)), "names are those of the file"
    assert opened.packed == (kind in families.PACKED)
    assert opened.warnings == ()
    assert torch.equal(measured(folder), logits(folder))


@pytest.mark.parametrize("kind", ["gemma2", "gptj"])
def test_buffers_are_those_that_transformers_computes(kind: str, tmp_path: Path) -> None:
    """Made from a module on meta, without drawing a number."""
    folder = families.save(tmp_path / kind, kind)
    real = dict(AutoModelForCausalLM.from_pretrained(folder).named_buffers())
    module = model_config.empty(folder, model_config.load(folder))
    before = torch.random.get_rng_state()
    fill_buffers(module, torch.device("cpu"))
    assert torch.equal(before, torch.random.get_rng_state())
    assert {n: b.tolist() for n, b in module.named_buffers()} == {
        n: b.tolist() for n, b in real.items()
    }


def test_gpt2_as_on_the_hub_is_the_gpt2_that_transformers_saves(tmp_path: Path) -> None:
    """Without its prefix, and with masks: one model, under one set of names."""
    saved, old = (families.save(tmp_path / n, "gpt2") for n in ("saved", "old"))
    rename(old, lambda name: name.removeprefix("transformer."))
    add(old, **{f"h.{n}.attn.bias": torch.ones(1, 1, 64, 64) for n in range(2)})
    assert list(open_checkpoint(old).files) == list(open_checkpoint(saved).files)
    assert torch.equal(measured(old), logits(saved))


def test_pythia_with_masks_and_llama_with_rotary_buffers_are_measured(tmp_path: Path) -> None:
    """Files of 2023 store what modules compute today."""
    pythia, llama = (families.save(tmp_path / kind, kind) for kind in ("gpt_neox", "llama"))
    wanted = logits(pythia), logits(llama)
    for n in range(2):
        mask = {"bias": torch.ones(1, 1, 64, 64), "masked_bias": torch.tensor(-1e9)}
        add(pythia, **{f"gpt_neox.layers.{n}.attention.{k}": v for k, v in mask.items()})
        add(llama, **{f"model.layers.{n}.self_attn.rotary_emb.inv_freq": torch.ones(4)})
    assert torch.equal(measured(pythia), wanted[0])
    assert torch.equal(measured(llama), wanted[1])
    assert not any("rotary" in name for name in open_checkpoint(llama).files)


# ---- quantised ----------------------------------------------------------------------------


def codes(folder: Path, ends: dict[str, torch.dtype], keep: bool = False) -> None:
    """Store codes beside, or in place of, the matrices of all projections."""
    weights = families.tensors(folder)
    for name in [n for n in weights if n.endswith("proj.weight")]:
        stem = name.removesuffix("weight")
        matrix = weights[name] if keep else weights.pop(name)
        for end, dtype in ends.items():
            shape = matrix.shape if end == "weight" else (1, matrix.shape[0])
            weights[stem + end] = torch.ones(shape).to(dtype)
    families.store(folder, weights)


GPTQ = {"qweight": torch.int32, "qzeros": torch.int32, "scales": torch.float16}
BITS8 = {"weight": torch.int8, "SCB": torch.float32}
BITS4 = {"weight.absmax": torch.float32, "weight.quant_state.bitsandbytes__nf4": torch.uint8}
TERNARY = {"weight": torch.uint8, "weight_scale": torch.bfloat16}
EIGHTS = {"weight": torch.float8_e4m3fn, "weight_scale_inv": torch.float32}
SCHEMES = {
    "gptq": (GPTQ, {"quant_method": "gptq", "bits": 4}, "gptq, 4 bits"),
    "awq": (GPTQ, {"quant_method": "awq", "bits": 4}, "awq, 4 bits"),
    "bnb8": (BITS8, {"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes, 8 bits"),
    "bnb4": (BITS4, {"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes, 4 bits"),
    "bitnet": (TERNARY, {"quant_method": "bitnet"}, "bitnet"),
    "fp8": (EIGHTS, {"quant_method": "fp8"}, "fp8"),
}


@pytest.mark.parametrize("lost", [False, True], ids=["said", "lost"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_quantised_model_is_refused_with_the_remedy(scheme: str, lost: bool, tmp_path: Path) -> None:
    """Its codes would be averaged as if they were weights; also if the config no longer says so."""
    folder = families.save(tmp_path / scheme, "llama")
    ends, settings, words = SCHEMES[scheme]
    codes(folder, ends, keep=scheme == "bnb4")
    if not lost:
        setting(folder, quantization_config=settings)
    with pytest.raises(SourceError, match=r"is quantised \(.*codes.*dequantise it first") as refused:
        open_checkpoint(folder)
    assert lost or words in str(refused.value)


def test_integers_in_place_of_weights_are_codes(tmp_path: Path) -> None:
    """Nothing but their dtype tells."""
    folder = families.save(tmp_path / "model", "llama")
    codes(folder, {"weight": torch.int8})
    with pytest.raises(SourceError, match=r"is quantised .*torch\.int8"):
        open_checkpoint(folder)


# ---- two readings -------------------------------------------------------------------------


def test_an_index_beside_a_single_file_of_its_own_is_refused(tmp_path: Path) -> None:
    """Transformers reads one, other programs the other: nobody can say which is meant."""
    folder = families.save(tmp_path / "model", "llama")
    weights = families.tensors(folder)
    part = folder / "model-00001-of-00001.safetensors"
    (folder / "model.safetensors").rename(part)
    index = {"metadata": {}, "weight_map": dict.fromkeys(weights, part.name)}
    (folder / INDEX).write_text(json.dumps(index), "utf-8")
    assert open_checkpoint(folder).parameters
    families.store(folder, weights)
    with pytest.raises(SourceError, match=rf"both model\.safetensors and {INDEX}.*Remove the one"):
        open_checkpoint(folder)
    part.unlink()
    index["weight_map"] = dict.fromkeys(weights, "model.safetensors")
    (folder / INDEX).write_text(json.dumps(index), "utf-8")
    assert open_checkpoint(folder).parameters, "an index of the single file is one reading"


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    """The last one would win."""
    folder = families.save(tmp_path / "model", "llama")
    weights = families.tensors(folder)
    names = ["a.safetensors", "b.safetensors"]
    for name in names:
        families.save_file(weights, folder / name)
    (folder / "model.safetensors").unlink()
    places = {tensor: names[n % 2] for n, tensor in enumerate(sorted(weights))}
    (folder / INDEX).write_text(json.dumps({"weight_map": places}), "utf-8")
    with pytest.raises(SourceError, match=r"is in a\.safetensors and in b\.safetensors"):
        open_checkpoint(folder)


def test_a_tied_head_that_is_stored_too_is_the_embedding(tmp_path: Path) -> None:
    """Equal values: one model, with one set of names."""
    folder = families.save(tmp_path / "model", "llama", tie_word_embeddings=True)
    before = open_checkpoint(folder)
    add(folder, **{"lm_head.weight": families.tensors(folder)["model.embed_tokens.weight"]})
    opened = open_checkpoint(folder)
    assert opened.tied
    assert (opened.files.keys(), opened.warnings) == (before.files.keys(), ())
    assert torch.equal(measured(folder), logits(folder))


def test_another_head_than_the_tied_one_is_kept_with_a_warning(tmp_path: Path) -> None:
    """As transformers does: it uses both."""
    folder = families.save(tmp_path / "model", "llama", tie_word_embeddings=True)
    add(folder, **{"lm_head.weight": torch.ones(96, 32)})
    opened = open_checkpoint(folder)
    assert not opened.tied
    assert opened.config["tie_word_embeddings"] is False
    assert "another head is stored (lm_head.weight)" in opened.warnings[0]
    assert torch.equal(measured(folder), logits(folder))


def test_a_tied_model_that_stores_its_head_alone_has_an_embedding(tmp_path: Path) -> None:
    """Transformers ties them whichever is there."""
    folder = families.save(tmp_path / "model", "llama", tie_word_embeddings=True)
    wanted = logits(folder)
    embedding, head = "model.embed_tokens.weight", "lm_head.weight"
    rename(folder, lambda name: head if name == embedding else name)
    assert embedding in open_checkpoint(folder).files
    assert torch.equal(measured(folder), wanted)


def test_an_untied_model_without_a_head_is_refused(tmp_path: Path) -> None:
    """Transformers draws one at random; the key that says so is named."""
    folder = families.save(tmp_path / "model", "llama", tie_word_embeddings=True)
    setting(folder, tie_word_embeddings=False)
    with pytest.raises(SourceError, match="tie_word_embeddings: false, but no head"):
        open_checkpoint(folder)


# ---- other models -------------------------------------------------------------------------


def test_code_of_a_repository_is_refused_by_name(tmp_path: Path) -> None:
    """No class of transformers could be built: said with the key, and without a link to a path."""
    folder = families.save(tmp_path / "model", "llama")
    setting(folder, model_type="mymodel", auto_map={"AutoModelForCausalLM": "modeling_my.My"})
    with pytest.raises(SourceError, match=r"'mymodel' model.*auto_map.*never run") as refused:
        open_checkpoint(folder)
    assert "hf.co" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_hidden_layers": 1}, r"tensor model\.layers\.1\.\S+, .* has no place"),
        ({"intermediate_size": 32}, r"has the shape \[32, 48\], .* describes \[32, 32\]"),
        ({"attention_bias": True}, r"lacks the tensor model\.layers\.0\.self_attn\.k_proj\.bias"),
    ],
)
def test_tensors_that_the_config_does_not_describe_are_named(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    """Too many, of another shape, missing."""
    folder = families.save(tmp_path / "model", "llama")
    setting(folder, **change)
    with pytest.raises(SourceError, match=words):
        open_checkpoint(folder)


def test_what_is_packed_is_computed_for_tensors_without_values_too(tmp_path: Path) -> None:
    """Shapes alone: that is how a folder is confronted before anything is read."""
    folder = families.save(tmp_path / "model", "mixtral")
    module = model_config.empty(folder, model_config.load(folder))
    given = {n: t.to("meta") for n, t in families.tensors(folder).items()}
    filled = fill(module, given)
    shapes = {name: tuple(t.shape) for name, t in module.state_dict().items()}
    assert {name: tuple(t.shape) for name, t in filled.tensors.items()} == shapes
    assert not filled.missing
