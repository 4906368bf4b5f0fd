"""`forge merge` on real folders: values, the same bits, crashes, vocabularies, adapters, bad input."""

# ruff: noqa: E501  a config a line

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from agent_forge.evomerge.mergekit import engine, parser
from agent_forge.evomerge.merging import method_registry
from agent_forge.evomerge.merging.execute import MemorySink, execute
from agent_forge.evomerge.merging.kernels.chunks import ChunkPool
from agent_forge.evomerge.merging.safetensors_sink import SafetensorsSink
from agent_forge.evomerge.merging.tensor_ops import MergeInputs, Read, TensorSpec, merged
from agent_forge.evomerge.tasks import merge as tasks_merge
from agent_forge.runs.errors import (
    ConfigError,
    ConflictError,
    ForgeError,
    NotFiniteError,
    SourceChangedError,
    SourceError,
)
from agent_forge.runs.event_types import ModelReference
from agent_forge.weights.folders.checkpoint import digest, open_checkpoint
from testing.models import toy_models
from testing.models.toys import Toys
from testing.worlds.runs import REPOSITORY

LINEAR = """
models:
  - {{model: {a}, parameters: {{weight: 0.5}}}}
  - {{model: {b}, parameters: {{weight: 0.3}}}}
  - {{model: {c}, parameters: {{weight: 0.2}}}}
merge_method: linear
"""
TIES = """
models:
  - {{model: {a}}}
  - {{model: {b}}}
  - {{model: {c}}}
merge_method: {method}
base_model: {base}
parameters: {{weight: 0.5, density: 0.5}}
"""


def places(toys: Toys) -> dict[str, str]:
    a, b, c = map(str, toys.sources)
    return {"a": a, "b": b, "c": c, "base": str(toys.base)}


def merge(text: str, out: Path, **options: Any) -> str:
    (document,) = parser.parse(text, "config.yml")
    return tasks_merge.run(tasks_merge.prepare(document, out, {}), **options)


def tensors(folder: Path | str) -> dict[str, torch.Tensor]:
    return dict(open_checkpoint(Path(folder)).tensors())


# ---- values --------------------------------------------------------------------------------


def test_linear_is_the_weighted_mean_and_loads(toys: Toys, tmp_path: Path) -> None:
    found = merge(LINEAR.format(**places(toys)), tmp_path / "out")
    made, (a, b, c) = tensors(tmp_path / "out"), map(tensors, toys.sources)
    for name in made:
        assert torch.allclose(made[name], 0.5 * a[name] + 0.3 * b[name] + 0.2 * c[name], atol=1e-6)
    assert found == digest(made)
    model: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    ids = torch.tensor([tokenizer.encode("a = 1")])
    assert model.generate(ids, max_new_tokens=3, do_sample=False).shape[1] == ids.shape[1] + 3
    told = json.loads((tmp_path / "out" / "evomerge_merge.json").read_text())
    assert told["digest"] == found


def test_a_config_names_models_of_the_log(toys: Toys, tmp_path: Path) -> None:
    """`RUN/champion` stands where a folder does; a name that the log does not know is no folder."""

    class Log:
        """A log with two models."""

        known: ClassVar = dict(zip(("first/champion", "mine"), toys.sources, strict=False))

        def __call__(self, text: str) -> ModelReference | None:
            """Return the model of that name."""
            found = self.known.get(text)
            return found and ModelReference(name=text, path=str(found))

        def hidden_by(self, text: str, folder: Path) -> None:
            """Hear of a folder that hides a model: there is none."""
            raise AssertionError(text)

    config = (
        "merge_method: linear\nmodels:\n"
        "  - {model: first/champion, parameters: {weight: 1}}\n"
        "  - {model: mine, parameters: {weight: 1}}\n"
    )
    (document,) = parser.parse(config, "config.yml")
    named = tasks_merge.prepare(document, tmp_path / "named", {}, Log())
    places = config.replace("first/champion", str(toys.sources[0]))
    folders = merge(places.replace("mine", str(toys.sources[1])), tmp_path / "folders")
    assert tasks_merge.run(named) == folders


def test_slerp_takes_the_base_first(toys: Toys, tmp_path: Path) -> None:
    """T = 0 is the base, wherever it stands in the list; t = 1 the other."""
    text = "models: [{{model: {a}}}, {{model: {b}}}]\nmerge_method: slerp\nbase_model: {b}\n"
    text += "parameters: {{t: {t}}}\n"
    for t, wanted in ((0.0, toys.sources[1]), (1.0, toys.sources[0])):
        merge(text.format(**places(toys), t=t), tmp_path / "out")
        made, end = tensors(tmp_path / "out"), tensors(wanted)
        assert all(torch.equal(made[n], end[n]) for n in made)


def test_parameters_by_depth_and_filter_reach_their_tensors(toys: Toys, tmp_path: Path) -> None:
    """Layers 0, 1, 2 are at t = 0, ½, 1; the embedding has a value of its own."""
    text = """
models:
  - model: {a}
    parameters:
      weight: [{{filter: embedding, value: 0.0}}, {{filter: mlp, value: [1.0, 0.0]}}, {{value: 1.0}}]
  - model: {b}
    parameters:
      weight: [{{filter: embedding, value: 1.0}}, {{filter: mlp, value: [0.0, 1.0]}}, {{value: 0.0}}]
merge_method: linear
"""
    merge(text.format(**places(toys)), tmp_path / "out")
    made, a, b = tensors(tmp_path / "out"), tensors(toys.sources[0]), tensors(toys.sources[1])
    embed, mlp = "model.embed_tokens.weight", "model.layers.{}.mlp.up_proj.weight"
    assert torch.equal(made[embed], b[embed])
    assert torch.equal(made["model.norm.weight"], a["model.norm.weight"])
    assert torch.equal(made[mlp.format(0)], a[mlp.format(0)])
    assert torch.equal(made[mlp.format(2)], b[mlp.format(2)])
    mean = (a[mlp.format(1)] + b[mlp.format(1)]) / 2
    assert torch.allclose(made[mlp.format(1)], mean, atol=1e-7)


def test_slices_stack_layers(toys: Toys, tmp_path: Path) -> None:
    """Layers 0–1 of a, then 1–2 of b: four layers, embedding of a, norm of b."""
    text = """
slices:
  - sources: [{{model: {a}, layer_range: [0, 2]}}]
  - sources: [{{model: {b}, layer_range: [1, 3]}}]
merge_method: passthrough
"""
    merge(text.format(**places(toys)), tmp_path / "out")
    made, a, b = tensors(tmp_path / "out"), tensors(toys.sources[0]), tensors(toys.sources[1])
    name = "model.layers.{}.self_attn.q_proj.weight"
    for at, (model, layer) in enumerate([(a, 0), (a, 1), (b, 1), (b, 2)]):
        assert torch.equal(made[name.format(at)], model[name.format(layer)])
    assert torch.equal(made["model.embed_tokens.weight"], a["model.embed_tokens.weight"])
    assert torch.equal(made["model.norm.weight"], b["model.norm.weight"])
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["num_hidden_layers"], len(config["layer_types"])) == (4, 4)
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "out").config.num_hidden_layers == 4


def test_a_data_flow_path_of_one_model_is_that_model(toys: Toys, tmp_path: Path) -> None:
    """Without scaling bit for bit; scaling every layer's input folds into what blocks add."""
    text = """
slices:
  - sources: [{{model: {a}, layer_range: [0, 1]}}]
  - sources: [{{model: {a}, layer_range: [1, 3]}}]
    parameters: {{input_scale: {scale}}}
merge_method: dataflow
"""
    merge(text.format(**places(toys), scale=1.0), tmp_path / "out")
    made, a = tensors(tmp_path / "out"), tensors(toys.sources[0])
    assert all(torch.equal(made[n], a[n]) for n in a)
    merge(text.format(**places(toys), scale=2.0), tmp_path / "scaled")
    assert_scaled_path(toys.sources[0], tmp_path / "scaled", 2.0)


def assert_scaled_path(source: Path, folder: Path, scale: float) -> None:
    """The folder computes what the source does when layer 1's input is scaled by hand."""
    ids = torch.arange(2, 12).unsqueeze(0)
    model: Any = AutoModelForCausalLM.from_pretrained(source)
    model.model.layers[1].register_forward_pre_hook(lambda _, args: (args[0] * scale, *args[1:]))
    by_hand = model(ids).logits
    folded = AutoModelForCausalLM.from_pretrained(folder)(ids).logits
    assert torch.allclose(folded, by_hand, atol=1e-3)  # a norm's epsilon is seen by tiny models
    assert not torch.allclose(
        folded, AutoModelForCausalLM.from_pretrained(source)(ids).logits, atol=5e-3
    )


def test_a_pipeline_is_what_a_run_builds(toys: Toys, tmp_path: Path) -> None:
    """The same stages, out of core: the same bits as a run's builder in memory."""
    from agent_forge.evomerge.merging.builder import Builder
    from agent_forge.evomerge.recipes.recipe import Genes, Pipeline, Source

    text = TIES.format(**places(toys), method="slerp-ties-dfs").replace("weight: 0.5, ", "")
    found = merge(text, tmp_path / "out")
    folders = [toys.base, *toys.sources]
    stored = {Source(digest=str(i)).id: tensors(f) for i, f in enumerate(folders)}
    base, *sources = stored
    recipe = Pipeline(
        inputs=tuple(sources),
        base=base,
        interpolation="slerp",
        arithmetic="ties",
        selection="dfs",
        genes=Genes(density=0.5),
        seed=0,
    )
    assert digest(Builder({}, stored.get).build(recipe)) == found


METHODS = [
    "task_arithmetic",
    "ties",
    "dare_linear",
    "dare_ties",
    "della_linear",
    "della",
    "breadcrumbs",
    "breadcrumbs_ties",
    "sce",
    "model_stock",
    "dfs",
    "linear-dare-dfs",
    "slerp-ties-dfs",
]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_the_same_bits_for_threads_and_shards(toys: Toys, tmp_path: Path, method: str) -> None:
    """A merge depends on its config and its sources alone."""
    text = TIES.format(**places(toys), method=method)
    found = {
        merge(text, tmp_path / f"{threads}-{shard}", threads=threads, shard_bytes=shard)
        for threads in (1, 2)
        for shard in (10_000, 10**9)
    }
    assert len(found) == 1
    assert found == {digest(tensors(tmp_path / "2-10000"))}
    assert len(list((tmp_path / "1-10000").glob("model-*.safetensors"))) > 2
    base, made = tensors(toys.base), tensors(tmp_path / "1-10000")
    assert any(not torch.equal(made[n], base[n]) for n in made)


# ---- crashes -------------------------------------------------------------------------------


def forge(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from agent_forge.cli.main import main; main()", *words]
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONWARNINGS": "ignore", **env},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "place",
    [
        pytest.param("merge-tensor-written:1", marks=pytest.mark.soak),
        "merge-tensor-written:9",
        pytest.param("merge-journal-noted:1", marks=pytest.mark.soak),
        "merge-journal-noted:4",
        pytest.param("merge-weights-written:1", marks=pytest.mark.soak),
        pytest.param("merge-settled:1", marks=pytest.mark.soak),
    ],
)
def test_a_kill_leaves_no_folder_and_the_same_command_goes_on(
    toys: Toys, tmp_path: Path, place: str
) -> None:
    config = tmp_path / "ties.yml"
    config.write_text(TIES.format(**places(toys), method="ties"))
    quiet = merge(config.read_text(), tmp_path / "quiet")
    words = ("merge", str(config), str(tmp_path / "out"))
    small = {"FORGE_MERGE_SYNC_BYTES": "10000"}
    dead = forge(*words, FORGE_FAILPOINTS=f"kill:{place}", **small)
    assert dead.returncode == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    assert (tmp_path / ".out.merging").exists()
    done = forge(*words, "--json", **small)
    assert json.loads(done.stdout)["merges"][0]["digest"] == quiet
    assert digest(tensors(tmp_path / "out")) == quiet
    assert not (tmp_path / ".out.merging").exists()


def test_what_a_crash_left_is_checked_before_it_is_kept(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half-written tensors under a name in the journal are made again; whole ones are not."""
    from agent_forge.evomerge.merging import safetensors_sink

    text = TIES.format(**places(toys), method="ties")
    quiet = merge(text, tmp_path / "quiet")
    monkeypatch.setattr(safetensors_sink, "SYNC_BYTES", 1)
    made: list[str] = []

    def begin(sink: SafetensorsSink, name: str) -> None:
        made.append(name)
        if len(made) == 20:
            raise KeyboardInterrupt
        whole(sink, name)

    whole = SafetensorsSink.begin
    monkeypatch.setattr(SafetensorsSink, "begin", begin)
    with pytest.raises(KeyboardInterrupt):
        merge(text, tmp_path / "out")
    hidden = tmp_path / ".out.merging"
    noted = len((hidden / safetensors_sink.JOURNAL).read_text().splitlines())
    assert noted == 19
    with (hidden / "model.safetensors").open("r+b") as file:
        size = file.seek(0, 2)
        file.seek(size - 100)  # in the last tensor
        file.write(b"\xff" * 50)
    made.clear()
    assert merge(text, tmp_path / "out") == quiet
    assert len(made) == 38 - noted
    assert made[0] != "model.embed_tokens.weight"


def test_another_config_does_not_go_on_with_what_a_crash_left(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "settle", fails)
    with pytest.raises(KeyboardInterrupt):
        merge(TIES.format(**places(toys), method="ties"), tmp_path / "out")
    monkeypatch.undo()
    text = TIES.format(**places(toys), method="sce")
    assert merge(text, tmp_path / "out") == merge(text, tmp_path / "quiet")


def test_other_layers_do_not_go_on_with_what_a_crash_left(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same models, methods and shapes; other tensors of them."""
    text = "slices:\n  - sources: [{{model: {a}, layer_range: [0, 2]}}]\n  - sources: [{{model: {b}, layer_range: [{first}, {last}]}}]\nmerge_method: passthrough\n"

    def fails(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "settle", fails)
    with pytest.raises(KeyboardInterrupt):
        merge(text.format(**places(toys), first=0, last=1), tmp_path / "out")
    monkeypatch.undo()
    other = text.format(**places(toys), first=2, last=3)
    assert merge(other, tmp_path / "out") == merge(other, tmp_path / "quiet")


def test_two_merges_to_one_place_do_not_mix(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, tried = SafetensorsSink.begin, []

    def meanwhile(*given: Any) -> None:
        if not tried:
            tried.append(1)
            with pytest.raises(ConflictError, match="another merge is writing"):
                merge(TIES.format(**places(toys), method="sce"), tmp_path / "out")
        whole(*given)

    monkeypatch.setattr(SafetensorsSink, "begin", meanwhile)
    found = merge(LINEAR.format(**places(toys)), tmp_path / "out")
    assert digest(tensors(tmp_path / "out")) == found
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_what_was_there_before_is_whole_until_the_new_one_is(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill while the old folder is removed: the new one stands, and the same command works."""
    import shutil

    merge(LINEAR.format(**places(toys)), tmp_path / "out")
    real = shutil.rmtree

    def dies(path: Any, *rest: Any, **more: Any) -> None:
        if str(path).endswith(".old") and Path(path).exists():
            (Path(path) / "evomerge_merge.json").unlink()
            raise KeyboardInterrupt
        real(path, *rest, **more)

    text = TIES.format(**places(toys), method="ties")
    monkeypatch.setattr(shutil, "rmtree", dies)
    with pytest.raises(KeyboardInterrupt):
        merge(text, tmp_path / "out")
    monkeypatch.undo()
    there = digest(tensors(tmp_path / "out"))
    assert merge(text, tmp_path / "out") == there
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_place_that_is_a_source_is_refused(toys: Toys, tmp_path: Path) -> None:
    merge(LINEAR.format(**places(toys)), tmp_path / "mine")
    text = f"models: [{{model: {tmp_path / 'mine'}}}]\nmerge_method: passthrough\n"
    with pytest.raises(ConflictError, match="is, or holds, model"):
        merge(text, tmp_path / "mine")


def test_a_large_source_that_is_not_finite_ends_the_merge() -> None:
    """Every thread meets it at once: none may wait for another."""
    bad = {"w": torch.full((1200, 1024), float("nan"))}
    params = method_registry.parameters("linear", {})
    read = [Read("a", "w"), Read("b", "w")]
    op = merged("w", TensorSpec(torch.float32, (1200, 1024)), "linear", params, 0, read, None)
    with ChunkPool(2) as pool, pytest.raises(NotFiniteError, match="tensor w of a"):
        execute([[op]], MergeInputs({"a": bad, "b": bad}), [MemorySink([op])], pool, strict=True)


# ---- vocabularies --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strangers(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model with two tokens more than the base, and one with its first tokens exchanged."""
    folder = tmp_path_factory.mktemp("strangers")
    _, (more, other) = toy_models.family(folder, 2, vocab_size=322)
    tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(more)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<think>"]})
    tokenizer.add_tokens(["<tool>"])
    tokenizer.save_pretrained(more)
    file = other / "tokenizer.json"
    said = json.loads(file.read_text())
    vocab = said["model"]["vocab"]
    first, second = sorted(vocab, key=vocab.get)[40:42]
    vocab[first], vocab[second] = vocab[second], vocab[first]
    file.write_text(json.dumps(said))
    return more, other


UNION = """
models: [{{model: {base}, parameters: {{weight: 1}}}}, {{model: {more}, parameters: {{weight: 1}}}}]
merge_method: linear
base_model: {base}
tokenizer_source: {source}
"""
EMBED = "model.embed_tokens.weight"


def test_other_numbers_of_rows_need_a_policy(
    toys: Toys, strangers: tuple[Path, Path], tmp_path: Path
) -> None:
    text = UNION.format(base=toys.base, more=strangers[0], source="base")
    with pytest.raises(SourceError, match=r"say tokenizer_source: union, base or a model"):
        merge(text.replace("tokenizer_source: base\n", ""), tmp_path / "out")


def test_models_that_read_text_otherwise_need_a_policy(toys: Toys, tmp_path: Path) -> None:
    """As for a run: rows of one number would be merged though they stand for other tokens."""
    other, few = (Path(shutil.copytree(toys.base, tmp_path / name)) for name in ("other", "few"))
    for folder, count in ((other, 1 << 30), (few, 2)):
        said = json.loads((folder / "tokenizer.json").read_text())
        vocab = sorted(said["model"]["vocab"], key=said["model"]["vocab"].get)
        turned = [*reversed(vocab[:count]), *vocab[count:]]
        said["model"]["vocab"] = {token: number for number, token in enumerate(turned)}
        (folder / "tokenizer.json").write_text(json.dumps(said))
    text = UNION.replace("tokenizer_source: {source}\n", "")
    with pytest.raises(SourceError, match=r"have other tokenizers.*`tokenizer_source: union`"):
        merge(text.format(base=toys.base, more=other), tmp_path / "out")
    (document,) = parser.parse(text.format(base=toys.base, more=few))
    (warning,) = tasks_merge.prepare(document, tmp_path / "out", {}).warnings
    assert "other tokenizers: 2 of 320 numbers" in warning
    merge(UNION.format(base=toys.base, more=other, source="base"), tmp_path / "out")


def test_added_tokens_with_one_number_are_a_warning(toys: Toys, tmp_path: Path) -> None:
    """Two models padded to the same rows took the same row for tokens of their own."""
    _, (one, other) = toy_models.family(tmp_path / "family", 2, vocab_size=330)
    for folder, token in ((one, "<one>"), (other, "<other>")):
        tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(folder)
        tokenizer.add_special_tokens({"additional_special_tokens": [token]})
        tokenizer.save_pretrained(folder)
    text = UNION.format(base=one, more=other, source="union")
    (document,) = parser.parse(text.replace("tokenizer_source: union\n", ""))
    (warning,) = tasks_merge.prepare(document, tmp_path / "out", {}).warnings
    assert "have other added tokens: number 320 is '<one>' and '<other>'" in warning
    assert "`tokenizer_source: union` gives each token its own row" in warning
    (document,) = parser.parse(text)
    warnings = tasks_merge.prepare(document, tmp_path / "out", {}).warnings
    assert not any("added tokens" in w for w in warnings)


def test_union_appends_what_only_others_have(
    toys: Toys, strangers: tuple[Path, Path], tmp_path: Path
) -> None:
    """A token that the base lacks has the other's row; all else is the mean."""
    text = UNION.format(base=toys.base, more=strangers[0], source="union")
    merge(text, tmp_path / "out")
    made, base, more = (tensors(p)[EMBED] for p in (tmp_path / "out", toys.base, strangers[0]))
    assert made.shape[0] == 322
    assert torch.allclose(made[:320], (base[:320] + more[:320]) / 2, atol=1e-6)
    assert torch.equal(made[320:], more[320:])
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    plain = AutoTokenizer.from_pretrained(toys.base)
    assert tokenizer.encode("<think>x<tool>") == [320, *plain.encode("x"), 321]
    assert tokenizer.encode("def f(x): return 12") == plain.encode("def f(x): return 12")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["vocab_size"] == 322


def test_union_keeps_the_ids_of_added_tokens_outside_of_the_vocabulary(
    toys: Toys, tmp_path: Path
) -> None:
    """The layout of Qwen and Llama 3: special tokens stand behind the vocabulary, not in it."""
    _, (one, other) = toy_models.family(tmp_path / "family", 2, vocab_size=322)
    for folder, token in ((one, "<one>"), (other, "<other>")):
        tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(folder)
        tokenizer.add_special_tokens({"additional_special_tokens": [token]})
        tokenizer.save_pretrained(folder)
    file = other / "tokenizer.json"
    said = json.loads(file.read_text())
    said["model"]["vocab"]["zzz"] = 321
    file.write_text(json.dumps(said))
    text = UNION.format(base=one, more=other, source="union")
    merge(text, tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    made, a, b = (tensors(p)[EMBED] for p in (tmp_path / "out", one, other))
    assert made.shape[0] == 323
    for token, source, row in (("<one>", a, 320), ("<other>", b, 320)):
        (id_,) = tokenizer.encode(token)
        assert torch.allclose(made[id_], source[row]), token


def test_rows_are_mapped_by_token_and_not_by_index(
    toys: Toys, strangers: tuple[Path, Path], tmp_path: Path
) -> None:
    text = UNION.format(base=toys.base, more=strangers[1], source="base")
    merge(text, tmp_path / "out")
    made, base, other = (tensors(p)[EMBED] for p in (tmp_path / "out", toys.base, strangers[1]))
    assert made.shape[0] == 320
    assert torch.allclose(made[40], (base[40] + other[41]) / 2, atol=1e-6)
    assert torch.allclose(made[41], (base[41] + other[40]) / 2, atol=1e-6)


def test_padding_rules_and_a_models_tokenizer(
    toys: Toys, strangers: tuple[Path, Path], tmp_path: Path
) -> None:
    """Padded to 64: 384 rows; <tool> is zero by rule, <new> the row of another token."""
    text = (
        UNION.split("tokenizer_source")[0].format(base=toys.base, more=strangers[0])
        + f"""
tokenizer:
  source: {strangers[0]}
  pad_to_multiple_of: 64
  tokens:
    <tool>: {{source: {{kind: zero}}, force: true}}
    <new>: {{source: {{kind: model_token, model: {toys.base}, token_id: 5}}}}
"""
    )
    merge(text, tmp_path / "out")
    made, base = tensors(tmp_path / "out")[EMBED], tensors(toys.base)[EMBED]
    assert made.shape[0] == 384
    assert not made[321].any()
    assert torch.allclose(made[322], base[5])
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.encode("<new>") == [322]
    model: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert model.get_input_embeddings().weight.shape[0] == 384


def test_rows_of_padding_that_a_policy_cuts_are_said(toys: Toys, tmp_path: Path) -> None:
    """As in mergekit; with the setting that keeps them."""
    _, (one, other) = toy_models.family(tmp_path / "family", 2, vocab_size=384)
    text = UNION.format(base=one, more=other, source="base")
    (document,) = parser.parse(text)
    (warning,) = tasks_merge.prepare(document, tmp_path / "out", {}).warnings
    assert "the result has 320 rows of tokens" in warning
    assert "has 384: its rows of padding are cut" in warning
    setting = warning.split("write ")[1].removesuffix(".").replace("…", "base")
    assert setting == "tokenizer: {source: base, pad_to_multiple_of: 128}"
    (document,) = parser.parse(text.replace("tokenizer_source: base", setting))
    prepared = tasks_merge.prepare(document, tmp_path / "out", {})
    assert prepared.warnings == []
    assert prepared.layout.config["vocab_size"] == 384


def test_special_ids_beyond_the_rows_are_found(toys: Toys, tmp_path: Path) -> None:
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(toys.base, broken)
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps({**config, "eos_token_id": 320}))
    text = LINEAR.format(**places(toys)).replace(str(toys.sources[0]), str(broken))
    with pytest.raises(ConfigError, match=r"eos_token_id in config.json is 320"):
        merge(text, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_chat_template_is_the_one_that_is_asked_for(toys: Toys, tmp_path: Path) -> None:
    merge(LINEAR.format(**places(toys)) + "chat_template: chatml\n", tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    said: Any = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
    assert said == "<|im_start|>user\nhi<|im_end|>\n"
    (document,) = parser.parse(LINEAR.format(**places(toys)) + "chat_template: llama3\n")
    (warning,) = tasks_merge.prepare(document, tmp_path / "named", {}).warnings
    assert "does not write <|endoftext|>, at which the result stops" in warning
    with pytest.raises(ConfigError, match=r"chat_template 'odd' is no template"):
        merge(LINEAR.format(**places(toys)) + "chat_template: odd\n", tmp_path / "other")


def test_untied_heads_are_merged_and_tied_ones_untied(tmp_path: Path) -> None:
    """One of two stores a head: the other's is its embedding."""
    tied, _ = toy_models.family(tmp_path / "tied", 0)
    untied, _ = toy_models.family(tmp_path / "untied", 0, tie_word_embeddings=False)
    text = f"models: [{{model: {tied}}}, {{model: {untied}}}]\nmerge_method: linear\nparameters: {{weight: 1}}\n"
    (document,) = parser.parse(text)
    prepared = tasks_merge.prepare(document, tmp_path / "out", {})
    assert any("all are untied" in w for w in prepared.warnings)
    tasks_merge.run(prepared)
    made, a, b = tensors(tmp_path / "out"), tensors(tied), tensors(untied)
    assert torch.allclose(made["lm_head.weight"], (a[EMBED] + b["lm_head.weight"]) / 2, atol=1e-7)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["tie_word_embeddings"] is False


# ---- adapters ------------------------------------------------------------------------------


def adapter(folder: Path, target: str = "model.layers.1.self_attn.q_proj", **config: Any) -> Path:
    folder.mkdir()
    settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], **config}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    g = torch.Generator().manual_seed(1)
    save_file(
        {
            f"base_model.model.{target}.lora_A.weight": torch.randn(2, 16, generator=g),
            f"base_model.model.{target}.lora_B.weight": torch.randn(16, 2, generator=g),
        },
        folder / "adapter_model.safetensors",
    )
    return folder


@pytest.mark.parametrize(("config", "scale"), [({}, 2.0), ({"use_rslora": True}, 4 / 2**0.5)])
def test_an_adapter_is_added_on_the_fly(
    toys: Toys, tmp_path: Path, config: dict[str, Any], scale: float
) -> None:
    """W + α/r · B A, and α/√r where it is rank-stabilised."""
    lora = adapter(tmp_path / "lora", **config)
    text = f"models: [{{model: {toys.base}+{lora}}}]\nmerge_method: passthrough\n"
    merge(text, tmp_path / "out")
    made, base = tensors(tmp_path / "out"), tensors(toys.base)
    parts = load_file(lora / "adapter_model.safetensors")
    a, b = (next(v for k, v in parts.items() if which in k) for which in ("lora_A", "lora_B"))
    name = "model.layers.1.self_attn.q_proj.weight"
    assert torch.allclose(made[name], base[name] + scale * b @ a, atol=1e-6)
    assert all(torch.equal(made[n], base[n]) for n in base if n != name)


def test_an_adapter_of_the_embedding_goes_with_its_tokens(
    toys: Toys, strangers: tuple[Path, Path], tmp_path: Path
) -> None:
    """Rows are moved after the adapter was added to them."""
    lora = adapter(tmp_path / "lora")
    g = torch.Generator().manual_seed(2)
    a, b = torch.randn(2, 16, generator=g), torch.randn(322, 2, generator=g)
    target = "base_model.model.model.embed_tokens"
    save_file(
        {f"{target}.lora_A.weight": a, f"{target}.lora_B.weight": b}, lora / "adapter_model.safetensors"
    )
    text = UNION.format(base=toys.base, more=f"{strangers[0]}+{lora}", source="union")
    merge(text, tmp_path / "out")
    made, base, more = (tensors(p)[EMBED] for p in (tmp_path / "out", toys.base, strangers[0]))
    more = more + 2.0 * b @ a
    assert torch.allclose(made[:320], (base[:320] + more[:320]) / 2, atol=1e-5)
    assert torch.allclose(made[320:], more[320:], atol=1e-5)


@pytest.mark.parametrize(
    ("config", "target", "words"),
    [
        ({"use_dora": True}, "model.layers.1.self_attn.q_proj", "use_dora is not supported"),
        ({"peft_type": "IA3"}, "model.layers.1.self_attn.q_proj", "only LoRA"),
        ({}, "model.layers.9.self_attn.q_proj", "fits no tensor of the model"),
        ({}, "model.layers.1.self_attn.k_proj", "belongs to another model"),
    ],
)
def test_an_adapter_that_cannot_be_added_is_refused(
    toys: Toys, tmp_path: Path, config: dict[str, Any], target: str, words: str
) -> None:
    lora = adapter(tmp_path / "lora", target, **config)
    text = f"models: [{{model: {toys.base}+{lora}}}]\nmerge_method: passthrough\n"
    with pytest.raises(SourceError, match=words):
        merge(text, tmp_path / "out")


BOMB = r"(((\w|\.|[a-z])+)+)+[XY]"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"alpha_pattern": {"(a": 4}}, r"alpha_pattern '\(a' is no regular expression"),
        ({"alpha_pattern": {"(a{9999}){9}": 4}}, "RE2 cannot match it"),
        ({"alpha_pattern": ["q_proj"]}, "alpha_pattern is a mapping"),
        ({"alpha_pattern": {"q_proj": "4"}}, "alpha_pattern 'q_proj' is '4', not a finite number"),
        ({"lora_alpha": [4]}, r"lora_alpha is \[4\], not a finite number"),
        ({"lora_alpha": 10**400}, "lora_alpha is 1000000000.* not a finite number"),
    ],
)
def test_an_odd_adapter_is_named_in_time(
    toys: Toys, tmp_path: Path, config: dict[str, Any], words: str
) -> None:
    """Before anything is written."""
    lora = adapter(tmp_path / "lora", **config)
    text = f"models: [{{model: {toys.base}+{lora}}}]\nmerge_method: passthrough\n"
    with pytest.raises(SourceError, match=words):
        merge(text, tmp_path / "out")


@pytest.mark.parametrize("text", ["[]", "[" * 100_000, '{"lora_alpha": '])
def test_an_adapter_s_config_is_read_within_bounds(toys: Toys, tmp_path: Path, text: str) -> None:
    """It is as foreign as a model's."""
    lora = adapter(tmp_path / "lora")
    (lora / "adapter_config.json").write_text(text)
    config = f"models: [{{model: {toys.base}+{lora}}}]\nmerge_method: passthrough\n"
    with pytest.raises(SourceError, match=r"adapter_config\.json"):
        merge(config, tmp_path / "out")


@pytest.mark.parametrize(
    ("pattern", "alpha"),
    [
        ("q_proj", 8),
        ("self_attn.q_proj", 8),
        ("model.layers.1.self_attn.q_proj", 8),
        (r"layers\.[01]\..*q_proj", 8),
        ("layers.0.self_attn.q_proj", 4),
        ("proj", 4),
        ("k_proj", 4),
        ("((([a-z_.0-9]+)+)+)+X", 4),
    ],
)
def test_a_pattern_means_the_modules_that_peft_says(
    toys: Toys, tmp_path: Path, pattern: str, alpha: int
) -> None:
    """By its end, or as an expression of its end."""
    lora = adapter(tmp_path / "lora", alpha_pattern={pattern: 8})
    merge(f"models: [{{model: {toys.base}+{lora}}}]\nmerge_method: passthrough\n", tmp_path / "out")
    name = "model.layers.1.self_attn.q_proj.weight"
    lora_tensors = load_file(lora / "adapter_model.safetensors")
    a, b = (
        lora_tensors[f"base_model.model.model.layers.1.self_attn.q_proj.lora_{x}.weight"] for x in "AB"
    )
    change = tensors(tmp_path / "out")[name] - tensors(toys.base)[name]
    assert torch.allclose(change, alpha / 2 * (b @ a), atol=1e-5)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("[{{filter: [a], value: 1}}]", "has the keys filter, a text, and value"),
        ("1" + "0" * 400, "parameter weight"),
    ],
)
def test_an_odd_parameter_is_named(toys: Toys, tmp_path: Path, setting: str, words: str) -> None:
    """With file, line and key."""
    text = f"models: [{{model: {toys.base}, parameters: {{weight: {setting.format()}}}}}]\nmerge_method: linear\n"
    with pytest.raises(ConfigError, match=words):
        merge(text, tmp_path / "out")


# ---- bad input -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("models: [{{model: {a}}}]\nmerge_method: ties\n", "needs a base_model"),
        (
            "models: [{{model: {a}}}]\nmerge_method: ties\nbase_model: {base}\n",
            "parameter weight is missing for tensor",
        ),
        (
            "models: [{{model: {a}}}]\nmerge_method: model_stock\nbase_model: {base}\n",
            "takes 2 or more models beside the base, not 1",
        ),
        (
            "models: [{{model: {a}}}, {{model: {b}}}]\nmerge_method: passthrough\n",
            "takes 1 models, not 2",
        ),
        (
            "models: [{{model: {a}}}]\nmerge_method: slerp\nbase_model: {base}\nparameters: {{t: much}}\n",
            "line 4: parameter t: it is a number",
        ),
        (
            "models: [{{model: {a}}}]\nmerge_method: ties\nbase_model: {base}\nparameters: {{weight: 1, density: 2}}\n",
            "share from 0 to 1",
        ),
        (
            "slices: [{{sources: [{{model: {a}, layer_range: [0, 9]}}]}}]\nmerge_method: passthrough\n",
            "has 3 layers",
        ),
        (
            "slices: [{{sources: [{{model: {a}, layer_range: [0, 1]}}]}}]\nmerge_method: dataflow\nparameters: {{input_scale: 0}}\n",
            "input_scale is above zero",
        ),
        ("models: [{{model: {a}/nothing}}]\nmerge_method: passthrough\n", "does not exist"),
        ("models: [{{model: {a}}}]\nmerge_method: passthrough\ndtype: int4\n", "dtype"),
        (
            "models: [{{model: {a}}}]\nmerge_method: passthrough\nchat_template: vicuna\n",
            "chat_template",
        ),
        (
            "models: [{{model: {a}}}, {{model: {b}}}]\nmerge_method: linear-dare-frankenmerge\nbase_model: {base}\nparameters: {{layers: [0, 1]}}\n",
            "needs 3 layer entries",
        ),
        (
            "models: [{{model: {a}}}, {{model: {b}}}]\nmerge_method: linear-dare-frankenmerge\nbase_model: {base}\nparameters: {{layers: [0, -1, 0]}}\n",
            "name an input beyond",
        ),
    ],
)
def test_a_config_that_cannot_work_is_refused_before_anything_is_written(
    toys: Toys, tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(ForgeError, match=words):
        merge(text.format(**places(toys)), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_weight_of_zero_in_all_is_refused_before_anything_is_written(
    toys: Toys, tmp_path: Path
) -> None:
    text = "models: [{{model: {a}, parameters: {{weight: 1}}}}, {{model: {b}, parameters: {{weight: -1}}}}]\nmerge_method: linear\n"
    with pytest.raises(ConfigError, match=r"add up to 0"):
        merge(text.format(**places(toys)), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_source_that_is_not_finite_is_named(toys: Toys, tmp_path: Path, bad: float) -> None:
    """Also by methods that would not keep the value."""
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(toys.sources[1], broken)
    weights = load_file(broken / "model.safetensors")
    weights["model.norm.weight"][2] = bad
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    text = TIES.format(**places(toys), method="ties").replace(str(toys.sources[1]), str(broken))
    with pytest.raises(NotFiniteError, match=r"tensor model.norm.weight of .*broken holds NaN or Inf"):
        merge(text, tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["broken"]


def test_a_result_beyond_the_dtype_is_named(toys: Toys, tmp_path: Path) -> None:
    text = "models: [{{model: {a}}}]\nmerge_method: passthrough\ndtype: float16\nparameters: {{scale: 1e9}}\n"
    with pytest.raises(NotFiniteError, match=r"left the range of float16"):
        merge(text.format(**places(toys)), tmp_path / "out")


def test_a_source_that_changes_meanwhile_gives_no_folder(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(toys.sources[0], copy)
    whole = SafetensorsSink.begin

    def touching(*given: Any) -> None:
        os.utime(copy / "model.safetensors", (1, 1))
        whole(*given)

    monkeypatch.setattr(SafetensorsSink, "begin", touching)
    with pytest.raises(SourceChangedError, match=r"copy has changed while it was read"):
        merge(LINEAR.format(**{**places(toys), "a": str(copy)}), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_full_disk_gives_no_folder(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(ForgeError, match=r"out cannot be written.*No space left.*goes on"):
        merge(LINEAR.format(**places(toys)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_disk_with_room_for_some_shards_gets_it_back(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was computed then, so nothing is lost; and no descriptor stays open."""
    import errno

    real, taken = os.posix_fallocate, []

    def some(descriptor: int, offset: int, size: int) -> None:
        if len(taken) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken.append(descriptor)
        real(descriptor, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", some)
    with pytest.raises(ForgeError, match=r"No space left"):
        merge(LINEAR.format(**places(toys)), tmp_path / "out", shard_bytes=20_000)
    assert not list(tmp_path.rglob("*.safetensors"))
    for descriptor in taken:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_a_folder_with_other_things_is_not_replaced(toys: Toys, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    with pytest.raises(ConflictError):
        merge(LINEAR.format(**places(toys)), tmp_path / "out")
    assert (tmp_path / "out" / "thesis.txt").read_text() == "mine"


@pytest.mark.slow
def test_the_command_merges_several_documents_that_use_each_other(toys: Toys, tmp_path: Path) -> None:
    first = LINEAR.format(**places(toys)) + "name: mean\n"
    second = "models: [{model: mean}]\nmerge_method: passthrough\nparameters: {scale: 2.0}\nname: twice\ncolour: red\n"
    config = tmp_path / "two.yml"
    config.write_text(first + "---\n" + second)
    done = forge("merge", str(config), str(tmp_path / "out"), "--check")
    assert done.returncode == 0, done.stderr
    assert "the key colour is not known" in done.stderr
    mean, twice = tensors(tmp_path / "out" / "mean"), tensors(tmp_path / "out" / "twice")
    assert all(torch.equal(twice[n], 2 * mean[n]) for n in mean)
    strict = forge("merge", str(config), str(tmp_path / "other"), "--strict")
    assert strict.returncode == 2


@pytest.mark.slow
def test_a_dry_run_looks_at_every_document_that_it_can(toys: Toys, tmp_path: Path) -> None:
    """One that builds on another has to wait for it; one after that has not."""
    where = places(toys)
    first = "name: first\n" + LINEAR.format(**where)
    second = f"name: second\nmodels: [{{model: first}}, {{model: {where['a']}}}]\nmerge_method: linear\nparameters: {{weight: 1}}\n"
    third = "name: third\n" + LINEAR.format(**where).replace("weight: 0.5", "wait: 0.5")
    config = tmp_path / "c.yml"
    config.write_text("---\n".join([first, second, third]))
    done = forge("merge", str(config), str(tmp_path / "out"), "--dry-run")
    assert done.returncode == 2
    assert "second: builds on first, so not looked at yet" in done.stdout
    assert "weight" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_config_may_be_json(toys: Toys, tmp_path: Path) -> None:
    config = tmp_path / "c.json"
    models_ = [{"model": str(s), "parameters": {"weight": 1}} for s in toys.sources]
    config.write_text(json.dumps({"models": models_, "merge_method": "linear"}))
    done = forge("merge", str(config), str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "model.safetensors").is_file()


@pytest.mark.slow
def test_a_dry_run_writes_nothing_and_bad_options_are_named(toys: Toys, tmp_path: Path) -> None:
    config = tmp_path / "c.yml"
    config.write_text(LINEAR.format(**places(toys)))
    done = forge("merge", str(config), str(tmp_path / "out"), "--dry-run")
    assert done.returncode == 0
    assert "38 tensors from 3 models; fine" in done.stdout
    assert not (tmp_path / "out").exists()
    for options, words in (
        (["--shard-size", "2"], "--shard-size '2' is no size"),
        (["--device", "tpu"], "device 'tpu' is not known"),
    ):
        bad = forge("merge", str(config), str(tmp_path / "out"), *options)
        assert (bad.returncode, words in bad.stderr) == (2, True), bad.stderr


PROCESSOR = (
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
    "tekken.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "additional_chat_templates/tool_use.jinja",
)


def test_files_that_belong_to_the_model_are_taken_along(toys: Toys, tmp_path: Path) -> None:
    """Without its processor a model of images cannot be used; files of other programs stay."""
    base = Path(shutil.copytree(toys.base, tmp_path / "base"))
    (base / "additional_chat_templates").mkdir()
    for name in (*PROCESSOR, "optimizer.json"):
        (base / name).write_text('{"size": 1}')
    text = UNION.format(base=base, more=toys.sources[0], source="base")
    merge(text, tmp_path / "out")
    for name in PROCESSOR:
        assert (tmp_path / "out" / name).read_text() == '{"size": 1}', name
    assert not (tmp_path / "out" / "optimizer.json").exists()
    (base / "additional_chat_templates" / "x.jinja").symlink_to(toys.base / "config.json")
    with pytest.raises(SourceError, match=r"x\.jinja is a link to"):
        merge(text, tmp_path / "other")


def test_slices_cut_the_decoder_of_a_model_of_images(tmp_path: Path) -> None:
    """Its encoder has blocks, too: all stay, as the config says, and the text's number is right."""
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    text = {
        "vocab_size": 320,
        "hidden_size": 16,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 32,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]},
    }
    vision = {"depth": 5, "embed_dim": 16, "hidden_size": 16, "num_heads": 2, "mlp_ratio": 2}
    config = Qwen2VLConfig(text_config=text, vision_config=vision, image_token_id=3)

    def of() -> Any:
        return Qwen2VLForConditionalGeneration(config)

    base, (other,) = toy_models.family(tmp_path / "family", 1, of=of)
    slices = "merge_method: passthrough\nslices:\n"
    for model, layers in ((base, [0, 2]), (other, [1, 2]), (other, [2, 3])):
        slices += f"- sources: [{{model: {model}, layer_range: {layers}}}]\n"
    merge(slices, tmp_path / "out")
    made: Any = Qwen2VLForConditionalGeneration.from_pretrained(tmp_path / "out")
    assert made.config.text_config.num_hidden_layers == 4
    assert made.config.vision_config.depth == 5
    found, left, right = tensors(tmp_path / "out"), tensors(base), tensors(other)
    seen = [name for name in left if "visual" in name]
    assert len({name.split(".blocks.")[1][0] for name in seen if ".blocks." in name}) == 5
    assert all(torch.equal(found[name], left[name]) for name in seen)
    block = next(name for name in found if ".layers.3." in name)
    assert torch.equal(found[block], right[block.replace(".layers.3.", ".layers.2.")])


def test_a_merge_takes_no_file_from_outside_and_names_no_code(toys: Toys, tmp_path: Path) -> None:
    """A link could bring any file of the machine into the result, `auto_map` a stranger's code."""
    given = places(toys)
    given["a"] = str(shutil.copytree(given["a"], tmp_path / "a"))
    config = json.loads((tmp_path / "a" / "config.json").read_text("utf-8"))
    evil = {**config, "auto_map": {"AutoModelForCausalLM": "evil/repo--modeling.Evil"}}
    (tmp_path / "a" / "config.json").write_text(json.dumps(evil), "utf-8")
    merge(LINEAR.format(**given), tmp_path / "out")
    assert "auto_map" not in (tmp_path / "out" / "config.json").read_text("utf-8")
    (tmp_path / "secret").write_text("password", "utf-8")
    (tmp_path / "a" / "merges.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(SourceError, match=r"merges\.txt is a link"):
        merge(LINEAR.format(**given), tmp_path / "out2")
