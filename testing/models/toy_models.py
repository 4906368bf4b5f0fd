"""Tiny models made by hand: a base, and sources that differ from it a little. Nothing is trained."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from agent_forge.evaluation.data.builtin import arithmetic, corpus, records
from agent_forge.runs import keys
from testing.models.toys import Toys

END = "<|endoftext|>"


def texts() -> list[str]:
    """Return generated text, the same every time."""
    made = [*arithmetic.documents(20_000, 1), *records.documents(20_000, 1)]
    return [d.text for d in made]


def tokenizer() -> PreTrainedTokenizerFast:
    """Train a byte-level BPE of 320 tokens."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore
    core.decoder = decoders.ByteLevel()  # pyright: ignore
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts(), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token=END, bos_token=END)


def config(**changes: Any) -> Qwen2Config:
    """Return the config of a model with three blocks, 16 wide."""
    settings: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 16,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 32,
        "max_position_embeddings": 64,
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "dtype": "float32",
    }
    return Qwen2Config(**{**settings, **changes})


def save(model: Any, folder: Path) -> Path:
    """Save a model with the tokenizer."""
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def in_dtype(model: Path, folder: Path, dtype: torch.dtype) -> Path:
    """Write a model's folder into another one, with weights of a dtype; return that folder."""
    from agent_forge.weights.folders.checkpoint import open_checkpoint, write_weights

    weights = {name: t.clone().to(dtype) for name, t in open_checkpoint(model).tensors().items()}
    shutil.copytree(model, folder, ignore=shutil.ignore_patterns("*.safetensors*"))
    write_weights(folder, weights, 2**30)
    settings = json.loads((folder / "config.json").read_text("utf-8"))
    settings["dtype"] = str(dtype).removeprefix("torch.")
    (folder / "config.json").write_text(json.dumps(settings), "utf-8")
    return folder


def gpt2() -> Any:
    """Return a GPT-2 with the toys' vocabulary: its matrices are [in, out]."""
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=320,
            n_positions=64,
            n_embd=16,
            n_layer=2,
            n_head=2,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def family(
    folder: Path,
    count: int = 3,
    dtype: torch.dtype = torch.float32,
    of: Callable[..., Any] = lambda **changes: Qwen2ForCausalLM(config(**changes)),
    **changes: Any,
):
    """Write a base and `count` sources, each tensor moved by 5 % of its norm; return the folders.

    `of` makes the base.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        base = of(**changes)
    origin = {n: p.detach().clone() for n, p in base.named_parameters()}
    sources = []
    base_folder = save(base.to(dtype), folder / "base")
    for i in range(count):
        with torch.no_grad():
            for name, parameter in base.named_parameters():
                rng = keys.generator("test-family", i, name)
                move = torch.from_numpy(rng.standard_normal(parameter.shape)).float()
                scale = 0.05 * origin[name].norm() / move.norm()
                parameter.copy_((origin[name] + scale * move).to(dtype))
        sources.append(save(base, folder / f"source{i}"))
    return base_folder, sources


def write(folder: Path) -> None:
    """Write the models and data of whole runs: `at` finds them."""
    family(folder / "models")
    data(folder / "data")


def at(folder: Path) -> Toys:
    """Return what `write` has written into a folder."""
    models = folder / "models"
    sources = tuple(sorted(models.glob("source*")))
    return Toys(models / "base", sources, folder / "data")


def data(folder: Path) -> Path:
    """Write a data folder: two domains, text and questions in every slice."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {"math": arithmetic.documents(16_000, 2), "data": records.documents(16_000, 2)}
    for domain, documents in made.items():
        rows = []
        whole = list(documents)
        for number, document in enumerate(whole):
            slice_ = ["train", "search", "selection", "test"][number % 4]
            rows.append({"id": document.name, "slice": slice_, "text": document.text})
        for slice_ in ("search", "selection", "test"):
            for item in corpus.continuation(whole, 6, 0):
                item = {**item, "id": f"{domain}/{slice_}/{item['id']}", "slice": slice_}
                rows.append({**item, "prompt": item["prompt"][-30:]})
        if domain == "math":
            rows += problems()
        lines = "\n".join(json.dumps({**row, "domain": domain}) for row in rows)
        (folder / f"{domain}.jsonl").write_text(lines + "\n", "utf-8")
    return folder


def problems() -> list[dict[str, Any]]:
    """Return two short problems of two grades for every slice: a number, and a program that is run."""
    rows: list[dict[str, Any]] = []
    for slice_ in ("search", "selection", "test"):
        sum_ = {"prompt": "2 + 2 =", "check": {"kind": "number", "answer": 4}}
        function = {"prompt": "f =", "check": {"kind": "program", "tests": ["assert f == 1"]}}
        for grade, fields in enumerate((sum_, function)):
            id_ = f"math/{slice_}/problem-{grade}"
            rows.append({"id": id_, "slice": slice_, "grade": grade, "max_tokens": 3, **fields})
    return rows
