"""Folders of titans_mag models: code beside the weights, merges, quantisation, other formats."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.loading import load_tokenizer
from agent_forge.weights import architectures
from agent_forge.weights.architectures.auto import AutoModelForCausalLM
from agent_forge.weights.folders import companions
from agent_forge.weights.folders.checkpoint import open_checkpoint
from agent_forge.weights.ternary import linears
from testing.models import titans_toys
from testing.models.toys import Toys
from tests.integration.cli.test_forge import call, succeeds

CODE = {
    "block_titans_mag.py",
    "configuration_titans_mag.py",
    "memory_titans_mag.py",
    "modeling_titans_mag.py",
    "neural_memory.py",
    "state_titans_mag.py",
}


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Toys:
    """A base and three sources, two-layer memories and two recursions: all kinds of tensors."""
    folder = tmp_path_factory.mktemp("titans")
    return titans_toys.toys(folder, memory="two-layer", recursions=2, halting=True, width=4)


def complete(folder: Path) -> None:
    """The folder holds its code, names it, and loads here without trust."""
    config = json.loads((folder / "config.json").read_text())
    assert config["auto_map"] == architectures.auto_map(config)
    assert {p.name for p in folder.glob("*.py")} == CODE
    for name, content in architectures.code(config).items():
        assert (folder / name).read_bytes() == content
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False)
    assert type(model).__module__.startswith("agent_forge.weights.")
    assert "`trust_remote_code`" in (folder / "README.md").read_text("utf-8")


def merged(folder: Path, method: str, toys: Toys) -> Path:
    """The folder of `forge merge` of all three sources."""
    models = [{"model": str(s), "parameters": {"weight": 0.4}} for s in toys.sources]
    document = {"merge_method": method, "models": models, "dtype": "float32"}
    if method != "linear":
        document["base_model"] = str(toys.base)
    (folder / "merge.yaml").write_text(json.dumps(document), "utf-8")
    succeeds(folder / "home", "merge", str(folder / "merge.yaml"), str(folder / "out"))
    return folder / "out"


@pytest.mark.parametrize("method", ["linear", "ties", "dare_ties", "della", "model_stock"])
def test_merges_see_every_tensor(method: str, toys: Toys, tmp_path: Path) -> None:
    out = merged(tmp_path, method, toys)
    complete(out)
    stored = [load_file(s / "model.safetensors") for s in toys.sources]
    made = load_file(out / "model.safetensors")
    assert made.keys() == stored[0].keys()
    assert {n for n in made if ".memory." in n}
    for name, tensor in made.items():
        assert torch.equal(tensor, stored[0][name]) == (not tensor.any()), name  # zeros stay
        if method == "linear":
            mean = sum(one[name].double() for one in stored) / 3
            torch.testing.assert_close(tensor.double(), mean, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_other_programs_load_a_folder_that_they_trust(toys: Toys, tmp_path: Path) -> None:
    """A process without this package gives the same logits; without trust it refuses."""
    out = merged(tmp_path, "linear", toys)
    code = """
import sys, json, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
assert not any("wt" == p for p in sys.path)
try:
    AutoModelForCausalLM.from_pretrained(sys.argv[1], trust_remote_code=False)
except ValueError as error:
    assert "trust_remote_code" in str(error), error
else:
    raise SystemExit("loaded without trust")
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], trust_remote_code=True)
ids = torch.arange(2, 30)[None]
print(json.dumps(model(ids).logits[0, -1].tolist()))
print(model.generate(ids, max_new_tokens=5, do_sample=False)[0, -5:].tolist())
assert "weights" not in sys.modules
"""
    environment = {"HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, str(out)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**environment, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    model = AutoModelForCausalLM.from_pretrained(out, trust_remote_code=False).eval()
    ids = torch.arange(2, 30)[None]
    with torch.no_grad():
        own = model(ids).logits[0, -1]
    torch.testing.assert_close(torch.tensor(json.loads(lines[0])), own, rtol=1e-4, atol=1e-5)
    how = {"max_new_tokens": 5, "do_sample": False}
    assert json.loads(lines[1]) == model.generate(ids, **how)[0, -5:].tolist()


def test_code_of_a_folder_is_never_taken_along(toys: Toys, tmp_path: Path) -> None:
    """A foreign `auto_map` is replaced by ours, the files by the package's own; a warning names it."""
    config = json.loads((toys.base / "config.json").read_text())
    assert companions.naming_code(toys.base) == []
    foreign = {**config, "auto_map": {"AutoModelForCausalLM": "evil.Evil"}}
    folder = tmp_path / "foreign"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(foreign), "utf-8")
    (folder / "modeling_titans_mag.py").write_text("raise SystemExit", "utf-8")
    assert companions.naming_code(folder) == ["config.json"]
    assert companions.cleaned(foreign)["auto_map"] == architectures.auto_map(config)
    (tmp_path / "out").mkdir()
    companions.write(folder, tmp_path / "out")
    written = (tmp_path / "out" / "modeling_titans_mag.py").read_bytes()
    assert written == architectures.code(config)["modeling_titans_mag.py"] != b"raise SystemExit"


def test_other_architectures_have_no_code() -> None:
    assert architectures.code({"model_type": "qwen2"}) == {}
    told = {"model_type": "qwen2", "auto_map": {"AutoConfig": "x.Y"}}
    assert companions.cleaned(told) == {"model_type": "qwen2"}


def test_settings_that_would_run_for_ever_are_refused(toys: Toys, tmp_path: Path) -> None:
    """Before anything is built: config files come from anywhere."""
    from agent_forge.runs.errors import SourceError
    from agent_forge.weights.folders import model_config

    config = json.loads((toys.base / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "recursions": 10**9}), "utf-8")
    with pytest.raises(SourceError, match="recursions is from 1 to 64"):
        model_config.load(tmp_path)


def test_evaluation_reads_answers_and_continues(toys: Toys) -> None:
    """A prompt and its continuations, padded batches and replies give what single passes give."""
    model = ResidentModel(toys.base, "cpu", True)
    model.load(open_checkpoint(toys.base).tensors())
    tokenizer = load_tokenizer(str(toys.base))
    ids = [torch.arange(3, 3 + n).numpy() for n in (9, 20, 13)]
    alone = [model.losses([one])[0][0] for one in ids]
    for one, (losses, _) in zip(alone, model.losses(ids, 16), strict=True):
        torch.testing.assert_close(torch.tensor(losses), torch.tensor(one), rtol=1e-4, atol=1e-5)
    found = model.continuations([(one[:5], one[5:]) for one in ids])
    for one, losses in zip(alone, found, strict=True):
        torch.testing.assert_close(torch.tensor(losses), torch.tensor(one[4:]), rtol=1e-4, atol=1e-5)
    assert tokenizer.decode(ids[0])


def test_every_linear_layer_can_be_ternary(toys: Toys) -> None:
    """Those of the memory, too; embedding, norms, convolution and first weights stay."""
    config = json.loads((toys.base / "config.json").read_text())
    names = linears.of_config(config)
    assert len([n for n in names if "layers.0.self_attn.memory." in n]) == 4  # q, k, v, rates
    assert not [n for n in names if "convolution" in n or "initial" in n or "persistent" in n]


@pytest.mark.parametrize(
    ("format_", "words"), [(("gguf",), "GGUF"), (("compressed-tensors", "--type", "int8"), "known")]
)
def test_formats_that_have_no_form_for_it_say_so(
    format_: tuple[str, ...], words: str, toys: Toys, tmp_path: Path
) -> None:
    """Before any work: nothing is written."""
    place = tmp_path / "out"
    result = call(
        tmp_path / "home", "export", str(toys.base), "--out", str(place), "--format", *format_
    )
    assert result.exit_code != 0
    said = f"{result.output}{result.exception}"
    assert "titans_mag" in said
    assert words in said
    assert not place.exists()
