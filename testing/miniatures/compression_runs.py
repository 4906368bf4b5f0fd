"""Compressions of toy models: the machinery is real, the models have random weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, Qwen2ForCausalLM

from agent_forge.phases.compression.recipes import CompressionState
from agent_forge.runs import kinds
from agent_forge.runs.home import Home
from agent_forge.studies.run import StudyRun
from testing.kind_runs import KindRuns
from testing.models import toy_models

TEXTS = [
    {"id": f"{domain}{n}{on}", "domain": domain, "slice": on, "text": f"{word} é {n} " * (8 * n)}
    for domain, word in (("animals", "a cat and a dog"), ("numbers", "one and two"))
    for on in ("train", "selection", "test")
    for n in (1, 2, 3)
]
SETTINGS = {"settings": ["rtn-4", "gptq-2", "uniform-1"], "mixtures": 4, "context": 16}

_RUNS = KindRuns[CompressionState]("compression", "c")
finish, state, rows = _RUNS.finish, _RUNS.state, _RUNS.rows


def data(folder: Path) -> Path:
    """Write the items; return their file."""
    file = folder / "texts.jsonl"
    file.write_text("".join(json.dumps(text) + "\n" for text in TEXTS), "utf-8")
    return file


def with_weight(model: Path, folder: Path, part: str, value: float) -> Path:
    """Copy a model into a folder, with another first weight in the first matrix named so."""
    made = Path(shutil.copytree(model, folder))
    weights = load_file(made / "model.safetensors")
    name = next(n for n in sorted(weights) if part in n and weights[n].dim() == 2)
    weights[name][0, 0] = value
    save_file(weights, made / "model.safetensors", metadata={"format": "pt"})
    return made


def overflowing(model: Path, folder: Path, share: float = 0.99) -> Path:
    """Copy a model of which some codes give NaN, and the weights themselves do not.

    In the first block a product of gate and up reaches `share` of the largest float32 at the token of
    TEXTS where it is largest; down reads it with a factor of zero. A larger product is Inf, and
    0 · Inf is NaN. Nothing else stands in the rows of gate and up, and attention adds nothing.
    """
    made, block = Path(shutil.copytree(model, folder)), "model.layers.0."
    tokenizer = AutoTokenizer.from_pretrained(made)
    tokens = sorted({t for text in TEXTS for t in tokenizer(text["text"])["input_ids"]})
    weights = load_file(made / "model.safetensors")
    read = weights["model.embed_tokens.weight"][tokens]
    read = read / (read.square().mean(1, keepdim=True) + 1e-6).sqrt()
    row = torch.zeros(read.shape[1])
    row[:4] = torch.tensor([100.0, 55.0, -30.0, 40.0])
    largest = (share * torch.finfo(torch.float32).max) ** 0.5
    for part in ("gate", "up"):
        weights[f"{block}mlp.{part}_proj.weight"].zero_()[0] = row
    weights[f"{block}mlp.down_proj.weight"][:, 0] = 0.0
    weights[f"{block}self_attn.o_proj.weight"].zero_()
    scale = weights[f"{block}post_attention_layernorm.weight"].fill_(1.0)
    scale[:4] = largest / float((read @ row).max())
    save_file(weights, made / "model.safetensors", metadata={"format": "pt"})
    return made


def student(folder: Path, name: str = "small", **changes: Any) -> Path:
    """Write a model of random weights with the toys' tokenizer, by default half as wide."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        module = Qwen2ForCausalLM(toy_models.config(**{"hidden_size": 8, **changes}))
    return toy_models.save(module, folder / name)


def submit(
    home: Home,
    model: Path,
    items: Path,
    run: str = "c",
    students: Sequence[Path] = (),
    **changes: object,
) -> str:
    """Submit a compression; return its name."""
    models = {"model": [model], "students": students}
    return _RUNS.submit(home, run, {**SETTINGS, **changes}, models, [str(items)])


def replayed(of: CompressionState) -> StudyRun:
    """Return a started run with all that its script has said."""
    kind: Any = kinds.of("compression")
    return kind.run(of)
