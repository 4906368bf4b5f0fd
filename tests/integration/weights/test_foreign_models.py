"""Model folders that others made badly, or on purpose: an error each that names the file, in time."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from agent_forge.evaluation.loading import load_tokenizer
from agent_forge.runs.errors import DataError, SourceError
from agent_forge.runs.kinds.asked import Lookup, RunRequest
from agent_forge.runs.system import bounded_files
from agent_forge.weights.folders import model_config
from agent_forge.weights.folders.checkpoint import SHARD_BYTES, open_checkpoint, write_weights
from agent_forge.weights.folders.sources import resolve
from agent_forge.worker.commands import submit as plans
from testing.models.toys import Toys

DEEP = "[" * 100_000 + "]" * 100_000
#: What C's reader of JSON takes and Python's own recursion does not.
HALF_DEEP = '{"a": ' + "[" * 900 + "]" * 900 + "}"
Change = Callable[[Path], Any]


def put(name: str, text: str) -> Change:
    """Write a file."""
    return lambda folder: (folder / name).write_text(text, "utf-8")


def say(name: str, *where: str, **said: Any) -> Change:
    """Change keys of a JSON file, at the top or inside of an object."""

    def change(folder: Path) -> None:
        whole = json.loads((folder / name).read_text("utf-8"))
        inner = whole
        for key in where:
            inner = inner[key]
        inner.update(said)
        (folder / name).write_text(json.dumps(whole), "utf-8")

    return change


def config(**said: Any) -> Change:
    """Change config.json."""
    return say("config.json", **said)


def tokenizer_config(**said: Any) -> Change:
    """Change tokenizer_config.json."""
    return say("tokenizer_config.json", **said)


SPLIT = {"type": "Split", "pattern": {"Regex": "(("}, "behavior": "Isolated", "invert": False}

ODD: dict[str, tuple[Change, str]] = {
    "an index of deep JSON": (put("model.safetensors.index.json", DEEP), "index.json is nested"),
    "a config of deep JSON": (put("config.json", DEEP), "config.json is nested deeper"),
    "a config of half deep JSON": (put("config.json", HALF_DEEP), "config.json is nested deeper"),
    "a billion layers": (config(num_hidden_layers=10**9), "weights hold 3 blocks"),
    "layers as text": (config(num_hidden_layers="three"), "num_hidden_layers is 'three'"),
    "layers of no sign": (config(num_hidden_layers=-1), "num_hidden_layers is -1"),
    "positions as text": (config(max_position_embeddings="x"), "max_position_embeddings is 'x'"),
    "a trillion tokens": (config(vocab_size=10**12), "vocab_size is 1000000000000"),
    "a wide model": (config(hidden_size=10**9), "no tensor has a side longer than 320"),
    "no heads": (config(num_attention_heads=0), "config.json describes no model"),
    "an odd text_config": (config(text_config=[1]), "text_config is [1], not an object"),
    "an odd number in it": (config(text_config={"n_layer": "x"}), "text_config.n_layer is 'x'"),
    "an odd per_layer_config": (config(per_layer_config=[1]), "config.json is no configuration"),
    "odd layer types": (config(layer_types=["zz"] * 3), "config.json is no configuration"),
    "an odd rope": (config(rope_parameters=[1]), "rope_parameters is [1]"),
    "an odd kind of rope": (config(rope_parameters={"rope_type": ["x"]}), "describes no model"),
    "an unknown activation": (config(hidden_act="zzz"), "config.json describes no model"),
    "a list for a kind": (config(model_type=["qwen2"]), "model_type is ['qwen2']"),
    "a kind that breaks a terminal": (config(model_type="\x1b]0;x\x07"), r"model_type is '\x1b]0;x"),
    "an epsilon as text": (config(rms_norm_eps="a"), "rms_norm_eps"),
    "a list of settings": (put("tokenizer_config.json", "[1]"), "not hold an object of settings"),
    "deep settings": (put("tokenizer_config.json", DEEP), "tokenizer_config.json is nested"),
    "a list for a class": (tokenizer_config(tokenizer_class=["a"]), "tokenizer_class is ['a']"),
    "a length as text": (tokenizer_config(model_max_length="abc"), "model_max_length is 'abc'"),
    "an odd template": (tokenizer_config(chat_template=[1]), "no usable tokenizer"),
    "odd added tokens": (tokenizer_config(added_tokens_decoder={"x": 1}), "no usable tokenizer"),
    "odd special tokens": (put("special_tokens_map.json", "[[1]]"), "not hold an object"),
    "a number for a tokenizer": (put("tokenizer.json", "7"), "tokenizer.json does not hold"),
    "a deep tokenizer": (put("tokenizer.json", DEEP), "tokenizer.json is nested deeper"),
    "an empty tokenizer": (put("tokenizer.json", ""), "tokenizer.json cannot be read as JSON"),
    "a regex that is none": (say("tokenizer.json", pre_tokenizer=SPLIT), "no usable tokenizer"),
    "an id below zero": (say("tokenizer.json", "model", "vocab", a=-1), "token 'a' has the id -1"),
    "an id of no row": (say("tokenizer.json", "model", "vocab", a=10**12), "has the id 1000000000000"),
    "an id as text": (say("tokenizer.json", "model", "vocab", a="7"), "has the id '7'"),
    "an added token that is none": (say("tokenizer.json", added_tokens=[7]), "has 7, which is no"),
}


@pytest.fixture
def folder(toys: Toys, tmp_path: Path) -> Path:
    """A copy of the base."""
    return Path(shutil.copytree(toys.base, tmp_path / "odd"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ODD)
def test_an_odd_model_is_named_before_anything_is_built(toys: Toys, folder: Path, name: str):
    """One folder in a thousand is like this: the user must learn which file to mend."""
    change, words = ODD[name]
    change(folder)
    given = [str(source) for source in toys.sources]
    asked = RunRequest("evomerge", {}, {"sources": given, "base": [str(folder)]}, [str(toys.data)])
    with pytest.raises(SourceError) as raised:
        plans.check(plans.plan(asked, Lookup(elsewhere=True)))
    assert words in str(raised.value)
    assert str(folder) in str(raised.value)


@pytest.mark.slow
def test_a_whole_model_is_taken(toys: Toys, folder: Path):
    """The counterpart: none of the bounds is met by an ordinary model."""
    given = [str(source) for source in toys.sources]
    asked = RunRequest("evomerge", {}, {"sources": given, "base": [str(folder)]}, [str(toys.data)])
    plan = plans.plan(asked, Lookup(elsewhere=True))
    assert plans.check(plan).parameters


def test_a_panic_of_the_tokenizer_s_library_is_an_error_like_others():
    """Its library is written in Rust: what it raises then is no Exception."""
    panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})
    with pytest.raises(SourceError, match="no usable tokenizer: PanicException: index"):
        with model_config.described("no usable tokenizer"):
            raise panic("index out of range")
    with pytest.raises(KeyboardInterrupt), model_config.described("no usable tokenizer"):
        raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["a" * 501, "a\nb", "h.1" * 100 + "\x00"])
def test_a_tensor_s_name_is_short_and_printable(folder: Path, name: str):
    """Names are searched by regular expressions, and printed."""
    write_weights(folder, {name: torch.zeros(3)}, SHARD_BYTES)
    with pytest.raises(SourceError, match="a name has at most 500"):
        open_checkpoint(folder)


def test_a_block_of_a_number_that_cannot_be_is_refused(folder: Path):
    """Lists are made with a place for every block."""
    write_weights(folder, {"model.layers.1000000000.x": torch.zeros(3)}, SHARD_BYTES)
    with pytest.raises(SourceError, match="of block 1,000,000,000"):
        open_checkpoint(folder)


def test_a_file_without_end_is_not_read(tmp_path: Path):
    """A named pipe would block, a sparse file would fill the memory."""
    pipe, large, link = tmp_path / "pipe.json", tmp_path / "large.json", tmp_path / "link.json"
    os.mkfifo(pipe)
    large.touch()
    os.truncate(large, 1 << 40)
    link.symlink_to(link)
    for file, words in (
        (pipe, "not an ordinary file"),
        (large, "has 1,099,511,627,776 bytes"),
        (tmp_path / "gone.json", "does not exist"),
    ):
        with pytest.raises(SourceError, match=words):
            bounded_files.read_json(file)
    with pytest.raises(SourceError):
        bounded_files.read_json(link)


def test_many_lists_are_refused_before_they_are_made(tmp_path: Path):
    """Three bytes of text are sixty of memory."""
    file = tmp_path / "wide.json"
    file.write_text("[" + "[]," * bounded_files.MOST_PARTS + "[]]")
    with pytest.raises(DataError, match="more than 4,000,000 lists and objects"):
        bounded_files.read_json(file, error=DataError)


def test_many_numbers_are_refused_before_they_are_made(tmp_path: Path):
    """Two bytes of text are thirty of memory."""
    file = tmp_path / "wide.json"
    file.write_text("[" + "9," * (bounded_files.MOST_VALUES + 1) + "9]")
    with pytest.raises(SourceError, match="more than 8,000,000 values"):
        bounded_files.read_json(file)


def test_a_deep_file_is_told_by_its_depth_alone(tmp_path: Path):
    """As many levels as are allowed are read; one more is not."""
    file = tmp_path / "deep.json"
    file.write_text("[" * bounded_files.DEEPEST + "]" * bounded_files.DEEPEST)
    assert bounded_files.read_json(file)
    file.write_text('{"a":' * bounded_files.DEEPEST + "[]" + "}" * bounded_files.DEEPEST)
    with pytest.raises(SourceError, match="nested deeper than 100"):
        bounded_files.read_json(file)


@pytest.mark.parametrize("text", ["/models/a\x00b", "a\x1b[31m", "/" + "a" * 5000, "~nobody-here-7/x"])
def test_a_name_that_no_path_can_have_is_a_model_error(text: str):
    """A null byte, a name too long and an unknown user each have another exception in Python."""
    with pytest.raises(SourceError):
        resolve(text)


def test_a_link_to_itself_is_a_model_error(tmp_path: Path):
    """Whoever made it sees which one it is."""
    link = tmp_path / "loop"
    link.symlink_to(link)
    with pytest.raises(SourceError, match="loop"):
        open_checkpoint(Path(resolve(str(link)).path))


def test_a_tokenizer_alone_is_checked_too(folder: Path):
    """`forge score` reads no plan."""
    put("tokenizer.json", DEEP)(folder)
    with pytest.raises(SourceError, match="nested deeper"):
        load_tokenizer(str(folder))
