"""`BASE+ADAPTER` against peft: the merge is peft's own, or the adapter is refused by the key's name."""

from __future__ import annotations

import json
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.utils.other import EMBEDDING_LAYER_NAMES
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from agent_forge.evomerge.mergekit import parser
from agent_forge.evomerge.tasks import merge as tasks_merge
from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights.folders import adapter_folders
from agent_forge.weights.folders.checkpoint import open_checkpoint
from testing.models import toy_models
from testing.models.toys import Toys

ATTENTION = ["q_proj", "v_proj"]


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A Qwen2 with a tied head, one with a head of its own, and a GPT-2."""
    folder = tmp_path_factory.mktemp("bases")
    made = {
        "tied": toy_models.family(folder / "tied", 0)[0],
        "untied": toy_models.family(folder / "untied", 0, tie_word_embeddings=False)[0],
        "gpt2": toy_models.family(folder / "gpt2", 0, of=toy_models.gpt2)[0],
    }
    untied: Any = AutoModelForCausalLM.from_pretrained(made["tied"], tie_word_embeddings=False)
    head: Any = untied.get_output_embeddings()
    head.weight.data = untied.get_input_embeddings().weight.data.clone()
    made["as untied"] = toy_models.save(untied, folder / "as-untied")
    return made


def trained(base: Path, folder: Path, **config: Any) -> Path:
    """Write an adapter whose trainable tensors were moved at random, as a training leaves it."""
    settings = {"r": 4, "lora_alpha": 8, "target_modules": ATTENTION, "task_type": "CAUSAL_LM"}
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        torch.manual_seed(1)
        model = get_peft_model(
            AutoModelForCausalLM.from_pretrained(base), LoraConfig(**{**settings, **config})
        )
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data += 0.05 * torch.randn_like(parameter)
        model.save_pretrained(str(folder))
    return folder


def by_peft(base: Path, adapter: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of the model that peft merges."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter)
        merged: Any = model.merge_and_unload()
    return dict(merged.state_dict())


def merge(base: Path, adapter: Path, out: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of BASE+ADAPTER; those of a tied head are the embedding's."""
    text = f'models: [{{model: "{base}+{adapter}"}}]\nmerge_method: passthrough\n'
    (document,) = parser.parse(text, "config.yml")
    tasks_merge.run(tasks_merge.prepare(document, out, {}))
    found = dict(open_checkpoint(out).tensors())
    for embedding, head in (
        ("model.embed_tokens.weight", "lm_head.weight"),
        ("transformer.wte.weight", "lm_head.weight"),
    ):
        if embedding in found:
            found.setdefault(head, found[embedding])
    return found


EMBED, HEAD = EMBEDDING_LAYER_NAMES
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("tied", {}),
    "rank-stabilised, patterns": (
        "tied",
        {
            "use_rslora": True,
            "rank_pattern": {"layers.1.self_attn.q_proj": 2},
            "alpha_pattern": {"v_proj": 3},
        },
    ),
    "eva": ("tied", {"init_lora_weights": "eva"}),
    "orthogonal": ("tied", {"init_lora_weights": "orthogonal"}),
    "mica": ("tied", {"init_lora_weights": "mica"}),
    "biases of the changed layers": ("untied", {"bias": "lora_only"}),
    "all biases": ("untied", {"bias": "all"}),
    "a bias in B": ("untied", {"lora_bias": True}),
    "embedding": ("untied", {"target_modules": [*ATTENTION, EMBED]}),
    "head": ("untied", {"target_modules": [*ATTENTION, HEAD]}),
    "embedding and head": ("untied", {"target_modules": [EMBED, HEAD]}),
    "whole modules": ("untied", {"modules_to_save": [EMBED, HEAD, "norm"]}),
    "whole modules of a tied model": ("tied", {"modules_to_save": [EMBED, HEAD]}),
    "whole embedding of a tied model": ("tied", {"modules_to_save": [EMBED]}),
    "whole embedding kept tied": ("tied", {"modules_to_save": [EMBED], "ensure_weight_tying": True}),
    "tokens": ("untied", {"trainable_token_indices": [7, 3]}),
    "tokens of both": ("untied", {"trainable_token_indices": {EMBED: [7, 3], HEAD: [5]}}),
    "tokens of a tied model": ("tied", {"trainable_token_indices": [7, 3]}),
    "transposed matrices": ("gpt2", {"target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True}),
    "square transposed matrices, said wrongly": ("gpt2", {"target_modules": ["c_proj"]}),
}


def assert_equal(made: dict[str, torch.Tensor], reference: dict[str, torch.Tensor]) -> None:
    for name, tensor in made.items():
        torch.testing.assert_close(tensor, reference[name], atol=1e-6, rtol=1e-5, msg=name)


@pytest.mark.parametrize("case", CASES)
def test_the_merge_is_peft_s(bases: dict[str, Path], tmp_path: Path, case: str) -> None:
    """Every way in which a LoRA adapter may change a model, to float32's rounding."""
    kind, config = CASES[case]
    adapter = trained(bases[kind], tmp_path / "adapter", **config)
    made = merge(bases[kind], adapter, tmp_path / "out")
    before = dict(open_checkpoint(bases[kind]).tensors())
    assert any(not torch.equal(made[name], before[name]) for name in before)
    assert_equal(made, by_peft(bases[kind], adapter))


@pytest.mark.parametrize(
    "config",
    [
        {"target_modules": [EMBED, *ATTENTION]},
        {"target_modules": [HEAD]},
        {"target_modules": [EMBED, HEAD]},
        {"trainable_token_indices": {EMBED: [7, 3], HEAD: [5]}},
    ],
)
def test_a_tied_embedding_or_head_with_a_change_of_its_own_is_untied(
    bases: dict[str, Path], tmp_path: Path, config: dict[str, Any]
) -> None:
    """That is the model that was trained; peft adds the change to both, and warns: untie first."""
    adapter = trained(bases["tied"], tmp_path / "adapter", **config)
    made = merge(bases["tied"], adapter, tmp_path / "out")
    assert_equal(made, by_peft(bases["as untied"], adapter))
    settings = json.loads((tmp_path / "out" / "config.json").read_text())
    assert settings["tie_word_embeddings"] is False


def test_an_embedding_that_was_trained_with_its_head_stays_tied(
    bases: dict[str, Path], tmp_path: Path
) -> None:
    """`ensure_weight_tying`: the head's change is the embedding's, stored twice or once."""
    config = {"target_modules": [EMBED], "ensure_weight_tying": True}
    adapter = trained(bases["tied"], tmp_path / "adapter", **config)
    made = merge(bases["tied"], adapter, tmp_path / "out")
    assert "lm_head.weight" not in open_checkpoint(tmp_path / "out").tensors()
    weights = load_file(adapter / "adapter_model.safetensors")
    a, b = (weights[f"base_model.model.model.{EMBED}.lora_embedding_{x}"] for x in "AB")
    before = open_checkpoint(bases["tied"]).tensors()[f"model.{EMBED}.weight"]
    torch.testing.assert_close(made[f"model.{EMBED}.weight"], before + 2 * (b @ a).T)


@pytest.mark.parametrize("start", ["pissa", "pissa_niter_4", "olora"])
def test_an_adapter_that_began_by_changing_the_base_is_refused(
    toys: Toys, tmp_path: Path, start: str
) -> None:
    """Added to the base as it is, it would give another model (`init_lora_weights`)."""
    adapter = trained(toys.base, tmp_path / "adapter", init_lora_weights=start)
    with pytest.raises(SourceError, match=rf"init_lora_weights is '{start}'.*path_initial_model"):
        merge(toys.base, adapter, tmp_path / "out")


def changed(adapter: Path, **config: Any) -> Path:
    """Change keys of an adapter's config."""
    file = adapter / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **config}))
    return adapter


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"init_lora_weights": "corda"}, "init_lora_weights is 'corda'"),
        ({"init_lora_weights": "loftq"}, "init_lora_weights is 'loftq'"),
        ({"init_lora_weights": "lora_ga"}, "init_lora_weights is 'lora_ga'"),
        ({"use_dora": True}, "use_dora is not supported.*merge it with peft"),
        ({"layer_replication": [[0, 2], [1, 3]]}, "layer_replication is not.*by slices of"),
        ({"alora_invocation_tokens": [1]}, "alora_invocation_tokens is not supported"),
        ({"target_parameters": ["experts.down_proj"]}, "target_parameters is not supported"),
        ({"megatron_config": {"a": 1}}, "megatron_config is {'a': 1}, a setting that is not known"),
        ({"a_key_of_2027": 3}, "a_key_of_2027 is 3, a setting that is not known"),
    ],
)
def test_a_key_that_gives_the_tensors_another_meaning_is_refused(
    toys: Toys, tmp_path: Path, config: dict[str, Any], words: str
) -> None:
    """Only keys that are known to be harmless pass."""
    adapter = changed(trained(toys.base, tmp_path / "adapter"), **config)
    with pytest.raises(SourceError, match=words):
        merge(toys.base, adapter, tmp_path / "out")


def test_a_key_without_a_bearing_passes(toys: Toys, tmp_path: Path) -> None:
    """Other programs write keys of their own, most of them empty."""
    adapter = trained(toys.base, tmp_path / "adapter")
    plain = merge(toys.base, adapter, tmp_path / "plain")
    changed(adapter, a_key_of_2027=None, another={}, auto_mapping={"unsloth_fixed": True})
    assert_equal(merge(toys.base, adapter, tmp_path / "out"), plain)


def test_every_setting_of_peft_is_sorted() -> None:
    """A key that a later peft brings is refused; here its developers hear of it."""
    sorted_ = adapter_folders.READ | adapter_folders.HARMLESS | adapter_folders.OTHERWISE.keys()
    left = {field.name for field in fields(LoraConfig)} - sorted_
    assert left == {"megatron_config", "velora_config", "monteclora_config"}


def test_a_bias_for_a_layer_without_one_is_named(toys: Toys, tmp_path: Path) -> None:
    """No weights of that layer could hold it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapter = trained(toys.base, tmp_path / "x", target_modules=["o_proj"], lora_bias=True)
    with pytest.raises(SourceError, match=r"a bias \(lora_bias\) of a layer that has none"):
        merge(toys.base, adapter, tmp_path / "out")


def test_an_embedding_of_more_tokens_is_named(toys: Toys, tmp_path: Path) -> None:
    """The base had tokens added before the training: its rows are in no file that was given."""
    more, _ = toy_models.family(tmp_path / "more", 0, vocab_size=330)
    for number, config in enumerate(({"modules_to_save": [EMBED]}, {"trainable_token_indices": [329]})):
        adapter = trained(more, tmp_path / f"adapter{number}", **config)
        with pytest.raises(SourceError, match="trained on a model with more tokens"):
            merge(toys.base, adapter, tmp_path / "out")


def test_tokens_that_are_not_those_of_the_rows_are_named(toys: Toys, tmp_path: Path) -> None:
    adapter = trained(toys.base, tmp_path / "adapter", trainable_token_indices=[3, 7])
    for indices in ([3], [3, 3], [3, -1], "37", {"wte": [3, 7]}, [3.0, 7]):
        changed(adapter, trainable_token_indices=indices)
        with pytest.raises(SourceError, match="does not name the 2 tokens of model"):
            merge(toys.base, adapter, tmp_path / "out")


# ---- folders -------------------------------------------------------------------------------


def test_the_folder_of_an_adapter_is_no_model(toys: Toys, tmp_path: Path) -> None:
    """It names its base, and how both are written."""
    adapter = trained(toys.base, tmp_path / "adapter")
    for more in ({}, {"config.json": "{}"}):
        for name, text in more.items():
            (adapter / name).write_text(text)
        with pytest.raises(SourceError) as refused:
            open_checkpoint(adapter)
        words = str(refused.value)
        assert words.startswith(f"model {adapter} is an adapter, not a model: ")
        assert f"write its base before it, {toys.base}+{adapter}" in words


def test_pickled_weights_of_an_adapter_get_the_command_that_converts_them(
    toys: Toys, tmp_path: Path
) -> None:
    """As model folders do; the command is run here."""
    adapter = trained(toys.base, tmp_path / "adapter")
    plain = merge(toys.base, adapter, tmp_path / "plain")
    torch.save(load_file(adapter / "adapter_model.safetensors"), adapter / "adapter_model.bin")
    (adapter / "adapter_model.safetensors").unlink()
    with pytest.raises(SourceError, match="only pickled weights") as refused:
        merge(toys.base, adapter, tmp_path / "out")
    program = str(refused.value).split('python -c "')[1].removesuffix('"')
    exec(compile(program, "advice", "exec"), {})
    assert_equal(merge(toys.base, adapter, tmp_path / "out"), plain)
    (adapter / "adapter_model.safetensors").unlink()
    (adapter / "adapter_model.bin").unlink()
    with pytest.raises(ConfigError, match=r"has no adapter_model\.safetensors"):
        merge(toys.base, adapter, tmp_path / "out")
