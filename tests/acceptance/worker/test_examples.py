"""Configs as mergekit's users have them, by Hub ids, unchanged: from a Hub cache that is on this disk.

The models behind the names are tiny, with as many layers as the real ones.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from huggingface_hub import constants
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from agent_forge.cli.main import forge
from testing.models import toy_models

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAMES = {
    40: ("psmathur/orca_mini_v3_13b", "garage-bAInd/Platypus2-13B", "WizardLM/WizardLM-13B-V1.2"),
    32: ("mistralai/Mistral-7B-Instruct-v0.2", "BioMistral/BioMistral-7B", "mistralai/Mistral-7B-v0.1"),
}

#: Weighted mean, gradient by depth and filter, task vectors with a key that means nothing here, stacked
#: layers, and documents that build on each other.
EXAMPLES = {
    "linear": """
models:
  - model: psmathur/orca_mini_v3_13b
    parameters:
      weight: 1.0
  - model: WizardLM/WizardLM-13B-V1.2
    parameters:
      weight: 0.3
  - model: garage-bAInd/Platypus2-13B
    parameters:
      weight: 0.5
merge_method: linear
dtype: float16
""",
    "gradient-slerp": """
slices:
  - sources:
      - model: psmathur/orca_mini_v3_13b
        layer_range: [0, 40]
      - model: garage-bAInd/Platypus2-13B
        layer_range: [0, 40]
merge_method: slerp
base_model: psmathur/orca_mini_v3_13b
parameters:
  t:
    - filter: self_attn
      value: [0, 0.5, 0.3, 0.7, 1]
    - filter: mlp
      value: [1, 0.5, 0.7, 0.3, 0]
    - value: 0.5 # fallback for rest of tensors
dtype: float16
""",
    "bio-merge": """
models:
  - model: mistralai/Mistral-7B-Instruct-v0.2
    parameters:
      density: 0.5
      weight: 0.5
  - model: BioMistral/BioMistral-7B
    parameters:
      density: 0.5
      weight: 0.5
merge_method: ties
base_model: mistralai/Mistral-7B-v0.1
parameters:
  normalize: false
  int8_mask: true
dtype: float16
""",
    "44layer": """
slices:
  - sources:
    - model: psmathur/orca_mini_v3_13b
      layer_range: [0, 24]
  - sources:
    - model: garage-bAInd/Platypus2-13B
      layer_range: [20, 40]
merge_method: passthrough
dtype: float16
""",
    "documents": """
name: gradient-slerp
slices:
  - sources:
      - model: psmathur/orca_mini_v3_13b
        layer_range: [0, 40]
      - model: garage-bAInd/Platypus2-13B
        layer_range: [0, 40]
merge_method: slerp
base_model: psmathur/orca_mini_v3_13b
parameters:
  t: 0.5
dtype: float16
---
name: final
models:
  - model: gradient-slerp
    parameters:
      density: [1, 0.7, 0.1] # density gradient
      weight: 1.0
  - model: WizardLM/WizardLM-13B-V1.2
    parameters:
      density: 0.33
      weight:
        - filter: mlp
          value: 0.5
        - value: 0
merge_method: ties
base_model: psmathur/orca_mini_v3_13b
parameters:
  normalize: true
  int8_mask: true
dtype: float16
""",
}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub")
    for layers, names in NAMES.items():
        base, sources = toy_models.family(
            tmp_path_factory.mktemp("family"), 2, torch.float16, num_hidden_layers=layers
        )
        for name, made in zip(names, [*sources, base], strict=True):
            repository = folder / f"models--{name.replace('/', '--')}"
            (repository / "snapshots").mkdir(parents=True)
            made.rename(repository / "snapshots" / COMMIT)
            (repository / "refs").mkdir()
            (repository / "refs" / "main").write_text(COMMIT, "utf-8")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("linear", marks=pytest.mark.smoke), *list(EXAMPLES)[1:]])
def test_an_example_runs_unchanged(
    hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The result loads and generates; what a key does not do here is said."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(hub))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    config, out = tmp_path / f"{name}.yml", tmp_path / "out"
    config.write_text(EXAMPLES[name], "utf-8")
    ran = CliRunner().invoke(forge, ["merge", str(config), str(out)])
    assert ran.exit_code == 0, ran.output
    assert ("int8_mask" in ran.output) == ("int8_mask" in EXAMPLES[name])
    folder = out / "final" if name == "documents" else out
    tensors = load_file(folder / "model.safetensors")
    assert {t.dtype for t in tensors.values()} == {torch.float16}
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.config.num_hidden_layers == {"44layer": 44, "bio-merge": 32}.get(name, 40)
    tokens = AutoTokenizer.from_pretrained(folder)("1 + 1 =", return_tensors="pt").input_ids
    made = model.generate(tokens, max_new_tokens=4, do_sample=False)
    assert made.shape[1] == tokens.shape[1] + 4
