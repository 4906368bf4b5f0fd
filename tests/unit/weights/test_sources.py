"""From what a user types to models that fit together; every misfit is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import save_file

from agent_forge.evomerge.run.events import ModelReference
from agent_forge.runs.errors import SourceError, UnavailableError
from agent_forge.weights.folders.checkpoint import open_checkpoint
from agent_forge.weights.folders.gguf_names import not_fetched
from agent_forge.weights.folders.sources import check_distinct, open_family, resolve

HEAD = "lm_head.weight"
EMBEDDING = "model.embed_tokens.weight"
NORM = "model.norm.weight"
#: Tensors of a Qwen2 with one block of width 3.
BLOCK: dict[str, tuple[int, ...]] = {
    EMBEDDING: (4, 3),
    NORM: (3,),
    **{f"model.layers.0.{n}_layernorm.weight": (3,) for n in ("input", "post_attention")},
    **{f"model.layers.0.self_attn.{n}_proj.weight": (3, 3) for n in "qkvo"},
    **{f"model.layers.0.self_attn.{n}_proj.bias": (3,) for n in "qkv"},
    **{f"model.layers.0.mlp.{n}_proj.weight": (3, 3) for n in ("gate", "up", "down")},
}


def model(
    folder: Path,
    shapes: dict[str, tuple[int, ...]] | None = None,
    dtype: torch.dtype = torch.float32,
    **config: object,
) -> ModelReference:
    """A model folder of two tensors, or of `shapes`."""
    folder.mkdir(parents=True)
    shapes = shapes or {EMBEDDING: (4, 3), NORM: (3,)}
    settings = {
        "model_type": "qwen2",
        "rope_theta": 10000.0,
        "num_hidden_layers": 0,
        "hidden_size": 3,
        "intermediate_size": 3,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "vocab_size": shapes[EMBEDDING][0],
        "tie_word_embeddings": HEAD not in shapes,
        **config,
    }
    (folder / "config.json").write_text(json.dumps(settings), "utf-8")
    save_file({n: torch.ones(s).to(dtype) for n, s in shapes.items()}, folder / "model.safetensors")
    return ModelReference(name=folder.name, path=str(folder))


# ---- families ------------------------------------------------------------------------------


def test_models_that_fit_are_opened_without_warnings(tmp_path: Path):
    """Base first among equals; tied because nobody has a head."""
    base, a, b = (model(tmp_path / n) for n in ("base", "a", "b"))
    family = open_family([a, b], base, strict=True)
    assert family.base.folder.name == "base"
    assert [s.folder.name for s in family.sources] == ["a", "b"]
    assert family.tied
    assert family.warnings == ()


def test_one_model_or_none_is_no_merge(tmp_path: Path):
    """Said with the option that gives more."""
    a = model(tmp_path / "a")
    with pytest.raises(SourceError, match=r"only a was given.*--base-models"):
        check_distinct([a])
    with pytest.raises(SourceError, match="none was given"):
        check_distinct([])


def test_the_same_model_twice_is_refused(tmp_path: Path):
    """Its task vector would count double without anybody noticing."""
    a, b = model(tmp_path / "a"), model(tmp_path / "b")
    with pytest.raises(SourceError, match=r"/a was given twice"):
        open_family([a, b, a], None, strict=False)


def test_without_a_base_the_first_source_stands_in_with_a_warning(tmp_path: Path):
    """Not refused by --strict: it is what the documents say."""
    a, b = model(tmp_path / "a"), model(tmp_path / "b")
    family = open_family([a, b], None, strict=True)
    assert family.base.folder.name == "a"
    assert len(family.warnings) == 1
    assert "a, the first source, stands in" in family.warnings[0]


def test_shapes_that_differ_are_named_both(tmp_path: Path):
    """Before any work: the tensor and the two shapes."""
    a = model(tmp_path / "a")
    b = model(tmp_path / "b", {EMBEDDING: (5, 3), NORM: (3,)})
    with pytest.raises(SourceError) as refused:
        open_family([a, b], None, strict=False)
    message = str(refused.value)
    assert EMBEDDING in message
    assert "[4, 3]" in message
    assert "[5, 3]" in message


@pytest.mark.parametrize("swap", [False, True])
def test_a_tensor_that_one_lacks_is_named(tmp_path: Path, swap: bool):
    """Another number of layers; in whichever of the two it is."""
    a = model(tmp_path / "a")
    b = model(tmp_path / "b", BLOCK, num_hidden_layers=1)
    pair = [b, a] if swap else [a, b]
    with pytest.raises(SourceError, match=r"tensor model\.layers\.0\.\S+ is in .*/b but not in .*/a"):
        open_family(pair, None, strict=False)


def test_models_of_two_architectures_are_refused(tmp_path: Path):
    """Even where all shapes agree."""
    a, b = model(tmp_path / "a"), model(tmp_path / "b", model_type="llama")
    with pytest.raises(SourceError, match=r"a qwen2 model and .* a llama model"):
        open_family([a, b], None, strict=False)


def test_another_rope_base_warns_and_strict_refuses(tmp_path: Path):
    """The documents' own trio has this; the warning says what it means and whose value is kept."""
    base, a = model(tmp_path / "base"), model(tmp_path / "a")
    b = model(tmp_path / "b", rope_theta=1e6)
    family = open_family([a, b], base, strict=False)
    (warning,) = family.warnings
    assert warning.startswith("rope_theta is 10000.0 in base and 1000000.0 in b")
    assert "positions are encoded with another base" in warning
    assert warning.endswith("base's is kept.")
    with pytest.raises(SourceError, match=r"--strict refuses(.|\n)*rope_theta"):
        open_family([a, b], base, strict=True)


def test_settings_that_do_not_bear_on_the_function_are_no_warning(tmp_path: Path):
    """A name, a version, a dtype."""
    a = model(tmp_path / "a", _name_or_path="x", transformers_version="4.1")
    b = model(tmp_path / "b", _name_or_path="y", transformers_version="5.1")
    assert len(open_family([a, b], None, strict=False).warnings) == 1  # the stand-in's


def test_one_rope_base_in_two_spellings_is_no_difference(tmp_path: Path):
    """Transformers 4 writes rope_theta, 5 writes rope_parameters; --strict must not refuse that."""
    base, a, b = model(tmp_path / "base"), model(tmp_path / "a"), model(tmp_path / "b")
    file = tmp_path / "b" / "config.json"
    config = json.loads(file.read_text("utf-8"))
    del config["rope_theta"]
    config["rope_parameters"] = {"rope_theta": 10000.0, "rope_type": "default"}
    file.write_text(json.dumps(config), "utf-8")
    assert open_family([a, b], base, strict=True).warnings == ()


def test_tied_and_untied_heads_are_untied_with_a_warning(tmp_path: Path):
    """The tied model's head has its embedding's shape; the family is untied."""
    a = model(tmp_path / "a", {EMBEDDING: (4, 3), NORM: (3,), HEAD: (4, 3)})
    b = model(tmp_path / "b")
    family = open_family([a, b], a, strict=False)
    assert not family.tied
    assert "all untied" in family.warnings[0]
    with pytest.raises(SourceError, match="--strict"):
        open_family([a, b], a, strict=True)


def test_a_head_of_another_size_than_the_other_s_embedding_is_named(tmp_path: Path):
    """The model that config.json describes has a row for each token in both."""
    a = model(tmp_path / "a", {EMBEDDING: (4, 3), NORM: (3,), HEAD: (6, 3)})
    b = model(tmp_path / "b")
    with pytest.raises(SourceError, match=r"lm_head\.weight has the shape \[6, 3\].* \[4, 3\]"):
        open_family([a, b], None, strict=False)


def test_a_dtype_that_cannot_be_read_is_named(tmp_path: Path):
    """8-bit floats have no arithmetic here, and integers in place of weights are codes."""
    a, b = model(tmp_path / "a"), model(tmp_path / "b", dtype=torch.float8_e4m3fn)
    with pytest.raises(SourceError, match=r"/b is quantised .* is F8_E4M3"):
        open_family([a, b], None, strict=False)
    c, d = model(tmp_path / "c", dtype=torch.int32), model(tmp_path / "d", dtype=torch.bfloat16)
    with pytest.raises(SourceError, match=r"/c is quantised .*torch\.int32"):
        open_family([c, d], None, strict=False)


# ---- resolving -----------------------------------------------------------------------------

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A local Hub cache with one model in it, and no network."""
    folder = tmp_path / "hub"
    repository = folder / "models--Qwen--Qwen2-1.5B-Instruct"
    model(repository / "snapshots" / COMMIT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT, "utf-8")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return folder


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Qwen/Qwen2-1.5B-Instruct", "Qwen2-1.5B-Instruct"),
        ("qwen2", "qwen2"),
        (f"Qwen/Qwen2-1.5B-Instruct@{COMMIT}", "Qwen2-1.5B-Instruct"),
        ("Qwen/Qwen2-1.5B-Instruct@main", "Qwen2-1.5B-Instruct"),
    ],
)
@pytest.mark.usefixtures("cache")
def test_a_hub_id_is_pinned_to_its_commit(text: str, name: str):
    """An id, an alias, a commit or a branch: what is recorded is the commit."""
    found = resolve(text)
    assert (found.name, found.revision, found.hub_id) == (name, COMMIT, "Qwen/Qwen2-1.5B-Instruct")
    assert (Path(found.path) / "config.json").is_file()


@pytest.mark.parametrize("text", ["nobody/nothing", f"Qwen/Qwen2-1.5B-Instruct@{'f' * 40}"])
@pytest.mark.usefixtures("cache")
def test_a_hub_id_that_is_not_here_is_unavailable_offline(text: str):
    """Exit code 3, with what to check; never a traceback of a network library."""
    with pytest.raises(
        UnavailableError,
        match=r"no folder here, and as a model of the Hub it is not in the local cache",
    ) as found:
        resolve(text)
    assert found.value.exit_code == 3


@pytest.mark.usefixtures("cache")
def test_users_add_aliases_of_their_own():
    """With a revision, if they want."""
    found = resolve("mine", {"mine": f"Qwen/Qwen2-1.5B-Instruct@{COMMIT}"})
    assert (found.name, found.hub_id) == ("mine", "Qwen/Qwen2-1.5B-Instruct")


def test_a_local_folder_wins_over_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Absolute, relative or named like an alias: what is here is meant."""
    model(tmp_path / "qwen2")
    monkeypatch.chdir(tmp_path)
    for text in ("qwen2", "./qwen2", str(tmp_path / "qwen2")):
        found = resolve(text)
        assert found == ModelReference(name="qwen2", path=str(tmp_path / "qwen2"))


class Log:
    """The names of a log with one run, and what its user is told."""

    def __init__(self, folder: Path) -> None:
        self.found = ModelReference(name="champion", path=str(folder))
        self.hidden: list[tuple[str, Path]] = []

    def __call__(self, text: str) -> ModelReference | None:
        """Return the run's result."""
        return self.found if text in ("Qwen/champion", "first:champion") else None

    def hidden_by(self, text: str, folder: Path) -> None:
        """Keep what was told."""
        self.hidden.append((text, folder))


@pytest.mark.usefixtures("cache")
def test_a_run_of_the_log_is_meant_before_the_hub_and_a_folder_before_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """`RUN/champion` looks like a path and like a Hub id; a folder that hides a run is told."""
    log = Log(tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    assert resolve("Qwen/champion", named=log) == log.found
    assert resolve("Qwen/Qwen2-1.5B-Instruct", named=log).revision == COMMIT
    assert resolve("mine", {"mine": "first:champion"}, log) == log.found
    place = model(tmp_path / "Qwen" / "champion")
    assert resolve("Qwen/champion", named=log) == place
    assert resolve("./Qwen/champion", named=log) == place
    assert log.hidden == [("Qwen/champion", Path(place.path))]
    assert resolve("mine", {"mine": place.path}, log) == ModelReference(name="mine", path=place.path)


@pytest.mark.parametrize("text", ["./gone", "/gone/model", "~/gone-model"])
def test_what_looks_like_a_path_is_not_sought_on_the_hub(text: str):
    """A typo in a path must not become a download; opening it says that it does not exist."""
    found = resolve(text)
    assert found.hub_id is None
    with pytest.raises(SourceError, match="does not exist"):
        open_checkpoint(Path(found.path))


@pytest.mark.parametrize("text", ["gone", "a/b/c"])
def test_what_is_nothing_is_named_with_the_aliases(text: str):
    """Neither a path nor an id nor an alias: all three are explained."""
    with pytest.raises(SourceError, match=r"neither a folder here.*deepseek, nemotron, qwen2"):
        resolve(text)


def test_an_empty_name_is_no_model():
    """`--base-models a,,b` must not merge whatever folder the user stands in."""
    with pytest.raises(SourceError):
        resolve("")


def test_a_plus_in_the_name_of_a_folder_is_no_adapter(tmp_path: Path) -> None:
    """The missing part of BASE+ADAPTER is named."""
    base = model(tmp_path / "base")
    plus = model(tmp_path / "c++" / "a+b")
    assert resolve(plus.path) == plus
    for text, missing in {
        f"{tmp_path}/gone+{tmp_path}/x": f"{tmp_path}/gone",
        f"{base.path}+{tmp_path}/lora": f"{tmp_path}/lora",
    }.items():
        with pytest.raises(SourceError, match=f"{missing} does not exist"):
            resolve(text)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("Got: ConnectError: [Errno -2] Name or service not known\n\nmore", "ConnectError: "),
        ("Repository Not Found for url: https://hub/x.\nMore.", "Repository Not Found for url: "),
        ("\n\n401 Client Error.", "401 Client Error"),
        ("", "ValueError"),
    ],
)
def test_a_model_that_the_hub_does_not_give_is_told_in_sentences(said: str, reason: str) -> None:
    told = str(not_fetched("model a/b", ValueError(said)))
    assert told.startswith(f"model a/b is not in the local cache and cannot be fetched: {reason}")
    assert told.endswith(". Check the name, the network and HF_TOKEN.")
    assert ".." not in told
    assert "Got:" not in told
