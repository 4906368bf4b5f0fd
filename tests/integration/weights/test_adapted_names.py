"""BASE+ADAPTER, and an adapter alone, where a command takes a model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from agent_forge.api.options import Options
from agent_forge.evomerge.mergekit import parser
from agent_forge.evomerge.tasks import merge
from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights.folders import gguf_note, made_folders
from agent_forge.weights.folders.checkpoint import digest, open_checkpoint
from agent_forge.weights.folders.sources import make_again, resolve, resolve_source
from agent_forge.weights.tensors import HEADS
from testing.models import toy_adapters, toy_models
from tests.integration.cli.test_forge import call, succeeds
from tests.integration.weights.formats import test_gguf_source_tokens as words


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FORGE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tied base in bfloat16, and an adapter of it that names it."""
    folder = tmp_path_factory.mktemp("adapted")
    base, _ = toy_models.family(folder, 0, torch.bfloat16)
    return base, toy_adapters.write(base, folder / "lora", 1)


def merged(text: str, out: Path) -> dict[str, torch.Tensor]:
    """Return the tensors that `forge merge` makes of BASE+ADAPTER."""
    document = f'models: [{{model: "{text}"}}]\nmerge_method: passthrough\n'
    merge.run(merge.prepare(parser.parse(document, "config.yml")[0], out, {}))
    return dict(open_checkpoint(out).tensors())


def test_the_model_is_that_of_forge_merge(home: Path, given: tuple[Path, Path], tmp_path: Path) -> None:
    """To the bit, in the base's dtype, with its tokenizer; made once."""
    text = f"{given[0]}+{given[1]}"
    model = resolve(text)
    assert model.name == "base+lora"
    opened = open_checkpoint(Path(model.path))
    assert opened.folder.parent == home / "artifacts/adapted"
    assert digest(opened.tensors()) == digest(merged(text, tmp_path / "out"))
    assert opened.config["dtype"] == "bfloat16"
    assert (opened.folder / "tokenizer.json").read_bytes() == (given[0] / "tokenizer.json").read_bytes()
    stamp = (opened.folder / "model.safetensors").stat().st_mtime_ns
    assert resolve(text).path == model.path
    assert (opened.folder / "model.safetensors").stat().st_mtime_ns == stamp


def test_an_adapter_alone_is_on_the_base_that_it_names(home: Path, given: tuple[Path, Path]) -> None:
    base, adapter = given
    assert resolve(str(adapter)) == resolve(f"{base}+{adapter}")
    assert resolve_source(str(adapter)).path == f"{base}+{adapter}"


def test_the_folder_is_made_again_of_the_same_files_only(
    home: Path, given: tuple[Path, Path], tmp_path: Path
) -> None:
    """As a run names it, which began before the cache was emptied."""
    adapter = tmp_path / "lora"
    shutil.copytree(given[1], adapter)
    place = Path(resolve(f"{given[0]}+{adapter}").path)
    weights = digest(open_checkpoint(place).tensors())
    shutil.rmtree(place)
    assert resolve(str(place)).name == "base_lora"
    assert digest(open_checkpoint(place).tensors()) == weights
    shutil.rmtree(place)
    shutil.rmtree(adapter)
    toy_adapters.write(given[0], adapter, 2)
    with pytest.raises(SourceError, match="has changed since"):
        make_again(place)


def test_a_change_of_a_tied_head_alone_unties(
    home: Path, given: tuple[Path, Path], tmp_path: Path
) -> None:
    adapter = toy_adapters.write(given[0], tmp_path / "e", 1, modules=("embed_tokens",))
    tensors = load_file(adapter / "adapter_model.safetensors")
    renamed = {  # peft's names of an embedding's matrices, which are transposed
        name.replace("lora_A.weight", "lora_embedding_B").replace(
            "lora_B.weight", "lora_embedding_A"
        ): tensor.T.contiguous()
        for name, tensor in tensors.items()
    }
    save_file(renamed, adapter / "adapter_model.safetensors")
    opened = open_checkpoint(Path(resolve(f"{given[0]}+{adapter}").path))
    embedding = "model.embed_tokens.weight"
    assert not opened.tied
    before = open_checkpoint(given[0]).tensors()[embedding]
    assert torch.equal(opened.tensors()[HEADS[embedding]], before)
    assert not torch.equal(opened.tensors()[embedding], before)


def test_a_gguf_file_may_be_the_base(home: Path, tmp_path: Path) -> None:
    """And that its weights were rounded is still said."""
    names, merges = words.byte_level()
    file = words.file_of(tmp_path / "Toy-1.gguf", "gpt2", names, merges, pre="smollm")
    base = Path(resolve(str(file)).path)
    adapter = toy_adapters.write(base, tmp_path / "lora", 1)
    model = resolve(f"{file}+{adapter}")
    assert model.name == "Toy-1+lora"
    assert gguf_note.facts(Path(model.path)) == gguf_note.facts(base)
    for place in (Path(model.path), base):
        shutil.rmtree(place)
    assert make_again(Path(model.path)) == Path(model.path)
    assert made_folders.name_of(base) == "Toy-1"


def test_what_does_not_fit_is_named(home: Path, given: tuple[Path, Path], tmp_path: Path) -> None:
    base, adapter = given
    other = toy_adapters.write(base, tmp_path / "other", 1)
    file = other / "adapter_model.safetensors"
    tensors = load_file(file)
    config = json.loads((other / "adapter_config.json").read_text())

    def named(place: object) -> None:
        settings = {**config, "base_model_name_or_path": place}
        (other / "adapter_config.json").write_text(json.dumps(settings))

    def refused(text: str, why: str) -> None:
        with pytest.raises(SourceError, match=why):
            resolve(text)

    refused(f"{tmp_path}/none+{adapter}", f"base {tmp_path}/none does not exist")
    refused(f"{base}+{tmp_path}/none", f"adapter {tmp_path}/none does not exist")
    refused(f"{base}+{base}", "is no adapter: it has no adapter_config.json")
    named("/nowhere/base")
    refused(str(other), r"an adapter of /nowhere/base, which is not here: write BASE\+")
    named(None)
    refused(str(other), r"does not name its base: write BASE\+")
    named(str(other))
    refused(str(other), "which is an adapter itself")
    named("gone")
    refused(str(other), "neither a folder here.*If that base is elsewhere, write BASE")
    name = min(tensors)
    save_file({**tensors, name: tensors[name][:2].contiguous()}, file)
    refused(f"{base}+{other}", r"its matrices for .* are \[2, \d+\] and \[\d+, 4\], not \[rank,")
    save_file({n: t.repeat(1, 2) if "lora_A" in n else t for n, t in tensors.items()}, file)
    refused(f"{base}+{other}", "it belongs to another model. Its .* names the base gone")
    save_file({n.replace("layers.0", "layers.77"): t for n, t in tensors.items()}, file)
    refused(f"{base}+{other}", "fits no tensor of the model")


def test_commands_take_it(home: Path, given: tuple[Path, Path], tmp_path: Path) -> None:
    """Chat, score, an export and an extraction, which gives the adapter back."""
    text = f"{given[0]}+{given[1]}"
    said = json.loads(call(home, "chat", text, "--once", "Hi", "--json", "--max-tokens", "4").stdout)
    assert said["model"] == "base+lora"
    (tmp_path / "text.txt").write_text("Some words to measure.\n" * 40)
    scored = call(home, "score", text, str(given[1]), "--data", str(tmp_path / "text.txt"), "--json")
    first, second = json.loads(scored.stdout)
    assert first["components"] == second["components"]
    out = tmp_path / "again"
    done = call(home, "extract", str(given[0]), text, str(out), "--rank", "4", "--json")
    assert json.loads(done.stdout)["energy"] > 0.99
    done = succeeds(home, "export", text, "--format", "gguf", "--out", str(tmp_path / "x.gguf"))


def test_a_server_reads_base_and_adapter_below_its_roots_alone(
    given: tuple[Path, Path], tmp_path: Path
) -> None:
    """Also the base that an adapter names, and neither from the Hub without leave."""
    root, base = given[0].parent, given[0]
    options = Options((root,))
    assert options.model("base+lora") == f"{base}+{given[1]}"
    assert options.model("lora") == f"{base}+{given[1]}"
    shutil.copytree(base, tmp_path / "secret")
    toy_adapters.write(tmp_path / "secret", tmp_path / "lora", 1)
    inner = Options((tmp_path / "root",))
    toy_adapters.write(tmp_path / "secret", tmp_path / "root/lora", 1)
    for text in ("lora", f"lora+{tmp_path}/lora", f"{tmp_path}/secret+lora", "owner/name+lora"):
        with pytest.raises(ConfigError):
            inner.model(text)
    with pytest.raises(ConfigError, match="FORGE_API_HUB"):
        options.model("base+owner/lora")
    assert Options((root,), hub=True).model("base+owner/lora") == f"{base}+owner/lora"
