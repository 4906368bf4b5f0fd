"""Prompts with one right answer: as token ids, as a stream to train on, and how many are solved.

An item is solved if greedy decoding after its prompt gives the answer's tokens and then the end token.
Then each token of the answer is the likeliest one after the tokens before it, so a single pass over
prompt and answer decides.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from agent_forge.evaluation.task_families.families import Exercise
from agent_forge.runs.errors import SourceError
from agent_forge.weights import pieces
from agent_forge.weights.folders.vocabularies import Tokenizer

#: Most tokens of a forward pass, padding included.
PASS = 8192


@dataclass(frozen=True)
class EncodedItem:
    """An item as token ids; the answer ends with the end token."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.prompt) + len(self.answer)


def encode(tokenizer: Tokenizer, items: Sequence[Exercise]) -> list[EncodedItem]:
    """Return a list of EncodedItem: ids of a prompt, and of a blank, its answer and the end token.

    Raises SourceError if the tokenizer cannot write an item's text.
    """
    texts = [item.prompt for item in items] + [f" {item.answer}" for item in items]
    ids = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"] if texts else []
    written = tokenizer.batch_decode(ids, clean_up_tokenization_spaces=False)
    for item, text, again in zip([*items, *items], texts, written, strict=True):
        if "".join(again.split()) != "".join(text.split()):
            raise SourceError(
                f"the model's tokenizer cannot write the tasks of family {item.family}: of {text!r} it "
                f"keeps {again!r}. Leave the family out, or take a model with another tokenizer."
            )
    end = tokenizer.eos_token_id
    count = len(items)
    return [EncodedItem(tuple(p), (*a, end)) for p, a in zip(ids[:count], ids[count:], strict=True)]


def rows(
    tokenizer: Tokenizer, items: Sequence[Exercise], family: str, level: int, on: str
) -> Iterator[dict[str, object]]:
    """Yield one row (dict) of an item file per item: a problem of slice `on`, checked exactly."""
    for number, (item, ids) in enumerate(zip(items, encode(tokenizer, items), strict=True)):
        yield {
            "id": f"{family}/{level}/{on}/{number}",
            "domain": family,
            "slice": on,
            "prompt": item.prompt,
            "check": {"kind": "exact", "answer": item.answer},
            "max_tokens": len(ids.answer),
            "grade": level - 1,
        }


def read_items(file: Path, on: str, families: Collection[str] | None = None) -> Iterator[Exercise]:
    """Yield the items of slice `on` of an item file with `rows`, of some or all families."""
    for row in map(json.loads, file.read_text("utf-8").splitlines()):
        if row["slice"] == on and (families is None or row["domain"] in families):
            yield Exercise(row["domain"], row["grade"] + 1, row["prompt"], row["check"]["answer"])


def stream(items: Sequence[EncodedItem]) -> NDArray[np.int32]:
    """Return all items' ids in one int32 row; a token of an answer is −1 − id (objective `answers`)."""
    ids = [token for item in items for token in (*item.prompt, *(-1 - a for a in item.answer))]
    return np.asarray(ids, np.int32)


@torch.inference_mode()
def solved(module: torch.nn.Module, items: Sequence[EncodedItem]) -> list[bool]:
    """Return one bool per item: True if `module`, a causal language model, solves it."""
    device = next(module.parameters()).device
    verdicts, passes = [False] * len(items), list(_rows(items))

    def work(number: int) -> pieces.Tensors:
        right = _pass(module, [items[index] for index in passes[number]], device)
        return {"right": torch.tensor(right)}

    for rows, passed in zip(passes, pieces.each(len(passes), work), strict=True):
        for index, right in zip(rows, passed["right"].tolist(), strict=True):
            verdicts[index] = right
    return verdicts


def _rows(items: Sequence[EncodedItem]) -> Iterator[list[int]]:
    """Yield the indices of items that share a forward pass, batch by batch, shortest items first."""
    rows: list[int] = []
    for index in sorted(range(len(items)), key=lambda index: len(items[index])):
        if rows and (len(rows) + 1) * len(items[index]) > PASS:
            yield rows
            rows = []
        rows.append(index)
    if rows:
        yield rows


def _pass(module: torch.nn.Module, items: Sequence[EncodedItem], device: torch.device) -> list[bool]:
    """Return one bool per item, True if it is solved, from one pass; rows are padded on the right."""
    width = max(map(len, items))
    tokens = np.zeros((len(items), width), np.int64)
    answers = np.zeros((len(items), width), bool)
    for row, item in enumerate(items):
        tokens[row, : len(item)] = (*item.prompt, *item.answer)
        answers[row, len(item.prompt) : len(item)] = True
    ids, mask = torch.from_numpy(tokens).to(device), torch.from_numpy(answers).to(device)
    likeliest = module(input_ids=ids[:, :-1]).logits.argmax(-1)
    return ((likeliest == ids[:, 1:]) | ~mask[:, 1:]).all(-1).tolist()
