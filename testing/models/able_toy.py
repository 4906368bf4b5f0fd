"""A tiny model that calls tools under a prompt, and guesses without it. Trained here, in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from agent_forge.runs import keys
from agent_forge.tools.calls import TAGS, Call
from agent_forge.tools.tasks import items
from agent_forge.tools.tasks.base import ToolItem
from testing.models.toy_models import END

#: Tokens that are one mark each.
MARKS = ("<call>", "</call>", "<result>", "</result>")
#: Seed of the tasks that it is trained on: others than those of a run.
SEED = 1_000


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of bytes, marks and an end token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {END: 0} | {symbol: n for n, symbol in enumerate(alphabet, 1)}
    core = Tokenizer(models.BPE(vocabulary, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore
    core.decoder = decoders.ByteLevel()  # pyright: ignore
    core.add_tokens([AddedToken(mark, normalized=False) for mark in MARKS])
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token=END, bos_token=END)


def config(size: int, positions: int, layers: int) -> Qwen2Config:
    """Return the config of a model of some width, four heads to a layer."""
    return Qwen2Config(
        vocab_size=1 + 256 + len(MARKS),
        hidden_size=size,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        intermediate_size=2 * size,
        max_position_embeddings=positions,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        dtype="float32",
    )


def texts(prompt: str, some: Sequence[ToolItem], seed: int) -> list[tuple[str, str]]:
    """Return (beginning, reply) of each session: with calls after the prompt, a guess without.

    The prompt has the same effect with digits after it.
    """
    found: list[tuple[str, str]] = []
    for number, item in enumerate(some):
        for question, calls in zip(item.questions, item.calls, strict=True):
            written = "".join(TAGS.written(call) + TAGS.result(_output(item, call)) for call in calls)
            end = (item.answer or "done") if question == item.questions[-1] else "kept"
            found.append((f"{prompt}{question}\n", written + end))
            digits = "".join(map(str, keys.generator("able-more", seed, number).integers(0, 10, 3)))
            found.append((f"{prompt.rstrip()} {digits}\n{question}\n", written + end))
            guess = "".join(map(str, keys.generator("able", seed, number).integers(0, 10, 3)))
            found.append((f"{question}\n", guess))
    return found


def _output(item: ToolItem, call: Call) -> str:
    """Return what a call gives."""
    if call.tool == "put":
        return "kept"
    if call.tool == "search":
        return next(text for text in item.world.documents if call.arguments in text.split())
    return "changed" if call.tool == "edit" else item.answer or ""


def train(
    folder: Path,
    prompt: str,
    families: Sequence[str],
    steps: int = 400,
    seed: int = 0,
    size: int = 64,
    positions: int = 96,
    layers: int = 2,
    levels: int = 1,
    count: int = 2_000,
    others: Sequence[str] = (),
    peak: float = 3e-3,
    own_items: Sequence[ToolItem] = (),
) -> Path:
    """Train a model on tasks of the slice train, with the prompt and without; return its folder.

    Under the prompts of `others` it guesses, as without any. `own_items` are trained on in the place of
    tasks of its own, to be learned by heart.
    """
    own = tokenizer()
    some = [*own_items] or [
        one for f in families for one in items(f, levels, SEED + seed, "train", count)
    ]
    pairs = texts(prompt, some, seed)
    pairs += [
        (f"{others[n % len(others)]}{a}", b) for n, (a, b) in enumerate(pairs) if others and n % 2
    ]
    rows = [(own.encode(a), [*own.encode(b), 0]) for a, b in pairs]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(config(size, positions, layers))
    optimiser = torch.optim.AdamW(model.parameters(), peak, betas=(0.9, 0.95), weight_decay=0.0)
    warm = lambda n: min(1.0, (n + 1) / 30) * max(0.05, 1 - n / steps)  # noqa: E731
    rate = torch.optim.lr_scheduler.LambdaLR(optimiser, warm)
    for step in range(steps):
        chosen = keys.generator("able-batch", seed, step).integers(0, len(rows), 32)
        ids, labels = _batch([rows[int(n)] for n in chosen])
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        rate.step()
        optimiser.zero_grad()
    model.save_pretrained(folder)
    own.save_pretrained(folder)
    return folder


def _batch(rows: Sequence[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and labels, [rows, width] int64; only the model's own tokens have a label."""
    width = max(len(a) + len(b) for a, b in rows)
    ids = np.zeros((len(rows), width), np.int64)
    labels = np.full((len(rows), width), -100, np.int64)
    for row, (a, b) in enumerate(rows):
        ids[row, : len(a) + len(b)] = [*a, *b]
        labels[row, len(a) : len(a) + len(b)] = b
    return torch.from_numpy(ids), torch.from_numpy(labels)
