"""GGUF files of a trained model: llama.cpp predicts text as transformers does with the same file.

Both see the rounded weights; llama.cpp rounds activations, too, to blocks of 8 bits. The bounds were
derived from a model of 1.2 million parameters: bits a byte within 0.001, the same greedy continuation
unless the two best logits are within 0.1.
"""

from __future__ import annotations

import math
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM

from agent_forge.evaluation.data.builtin import corpus
from agent_forge.evaluation.loading import load_tokenizer
from agent_forge.weights.folders.checkpoint import open_checkpoint
from agent_forge.weights.formats import gguf_file
from testing.models.toys import Toys
from testing.services.llama_cpp import LlamaCpp

LENGTH, STEPS, ROWS = 64, 150, 8
TYPES = ("Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0")


@cache
def texts(slice_: str) -> list[str]:
    return [row["text"] for row in corpus.default(1) if row["slice"] == slice_ and "text" in row]


def windows(tokenizer: Any, slice_: str, count: int) -> list[tuple[list[int], int]]:
    """Windows of LENGTH tokens, one a built-in text, and the bytes of all tokens but the first."""
    found: list[tuple[list[int], int]] = []
    for text in texts(slice_):
        ids = tokenizer(text[: LENGTH * 8]).input_ids[:LENGTH]
        if len(ids) == LENGTH and len(found) < count:
            found.append((ids, len(tokenizer.decode(ids[1:]).encode())))
    assert len(found) == count
    return found


@pytest.fixture(scope="module")
def folder(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has seen a part of the built-in texts, with the toys' tokenizer."""
    place = tmp_path_factory.mktemp("trained")
    shutil.copytree(toys.base, place, dirs_exist_ok=True)
    config = AutoConfig.from_pretrained(
        toys.base,
        hidden_size=64,
        intermediate_size=128,
        num_attention_heads=4,
        max_position_embeddings=256,
    )
    torch.manual_seed(5)
    model: Any = AutoModelForCausalLM.from_config(config).float()
    ids = torch.tensor([ids for ids, _ in windows(load_tokenizer(str(place)), "train", 96)])
    optimiser = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for step in range(STEPS):
        batch = ids[torch.arange(step * ROWS, (step + 1) * ROWS) % len(ids)]
        model(batch, labels=batch).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    model.save_pretrained(place)
    return place


def written(folder: Path, file: Path, type_: str) -> Any:
    """Write a file, and return what transformers reads in it."""
    checkpoint = open_checkpoint(folder)
    tokens = gguf_file.tokens_of(load_tokenizer(str(folder)), checkpoint.config["vocab_size"])
    assert gguf_file.write(checkpoint, tokens, file, type_, "toy").other == {}
    return AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    ).eval()


def bits(logits: torch.Tensor, ids: list[int]) -> float:
    """Bits that a window's tokens cost after the first."""
    loss = functional.cross_entropy(logits[:-1].double(), torch.tensor(ids[1:]), reduction="sum")
    return float(loss) / math.log(2)


@torch.no_grad()
def bits_a_byte(model: Any, file: Path, given: list[tuple[list[int], int]]) -> tuple[float, float]:
    """By transformers, and by llama.cpp."""
    reader, head = LlamaCpp(file, hidden=True), model.lm_head.weight.double()
    size = sum(bytes_ for _, bytes_ in given)
    ours = sum(bits(model(torch.tensor([ids])).logits[0], ids) for ids, _ in given)
    theirs = sum(bits(torch.tensor(reader.states(ids)) @ head.T, ids) for ids, _ in given)
    return ours / size, theirs / size


@torch.no_grad()
def margin(model: Any, ids: list[int]) -> float:
    """Return how far the best next token's logit is above the second."""
    best = model(torch.tensor([ids])).logits[0, -1].topk(2).values
    return float(best[0] - best[1])


@torch.no_grad()
def greedy(model: Any, ids: list[int], count: int) -> list[int]:
    for _ in range(count):
        ids = [*ids, int(model(torch.tensor([ids])).logits[0, -1].argmax())]
    return ids[-count:]


@pytest.mark.slow
@pytest.mark.parametrize("type_", TYPES)
def test_a_quantised_file_predicts_text_alike(folder: Path, tmp_path: Path, type_: str) -> None:
    pytest.importorskip("xllamacpp")
    file = tmp_path / "m.gguf"
    model = written(folder, file, type_)
    given = windows(load_tokenizer(str(folder)), "selection", 24)
    ours, theirs = bits_a_byte(model, file, given)
    exact: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    whole = bits_a_byte(exact, file, given)[0]
    assert whole < 4, "it has learned something: 8.3 bits a token is none"
    assert ours != whole, "weights are rounded"
    assert abs(theirs - ours) <= 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("type_", TYPES)
def test_a_quantised_file_says_the_same(folder: Path, tmp_path: Path, type_: str) -> None:
    """Until two tokens are nearly as likely as each other."""
    pytest.importorskip("xllamacpp")
    file = tmp_path / "m.gguf"
    model, reader = written(folder, file, type_), LlamaCpp(tmp_path / "m.gguf")
    equal = 0
    for ids, _ in windows(load_tokenizer(str(folder)), "selection", 12):
        said, theirs = greedy(model, ids, 16), reader.greedy(ids, 16)
        first = next((i for i in range(16) if said[i] != theirs[i]), None)
        equal += first is None
        if first is not None:
            assert margin(model, ids + said[:first]) <= 0.1
    assert equal >= 6, "most of them are equal throughout"
