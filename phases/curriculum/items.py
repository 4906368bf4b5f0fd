"""Items of a curriculum run as token ids: streams to train on, rows to measure on.

FOLDER/streams.safetensors   cell → training items, int32 [tokens], as the objective reads them
FOLDER/items.jsonl           the items of the slices selection and test, as problems

Ordinary text among the items is rehearsal of what the model was trained on before (Robins 1995,
"Catastrophic forgetting, rehearsal and pseudorehearsal"). A window of text is an item whose prompt is
its first token: the objective then predicts all others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from evaluation import task_families
from evaluation.answers import Encoded, encode, rows, stream
from evaluation.data.slices import Slice
from evaluation.task_families.base import Item
from evaluation.task_families.item_sets import items
from evaluation.training_text import parts
from evaluation.training_text.kept_text import ITEMS, STREAMS
from phases.curriculum import tools
from phases.curriculum.mixing.cells import cell
from phases.curriculum.mixing.mix import cell_of_text
from phases.curriculum.settings import CurriculumConfig
from runs.errors import ConfigError, DataError
from weights.training.windows import Ids

#: Items of a family's highest level that are tried before any work.
TRIED = 64


def of_cells(config: CurriculumConfig) -> Iterator[tuple[str, str, int]]:
    """Yield (cell, family, level), sorted by family."""
    for family in sorted(config.families):
        for level in range(1, config.levels + 1):
            yield cell(family, level), family, level


def check_items(config: CurriculumConfig, tokenizer: Any, context: int) -> None:
    """Raise an error if the tokenizer cannot write a family's tasks, or a window cannot hold them.

    Some items of each highest level are tried: those are the longest. Raises SourceError, ConfigError.
    """
    if config.text and config.text_tokens > context + 1:
        raise ConfigError(
            f"a window of ordinary text has {config.text_tokens} tokens, more than the context of "
            f"{context} and the token after it: set fewer text_tokens."
        )
    spoken = tools.speech_of(config, tokenizer) if tools.families(config) else None
    for family in sorted(config.families):
        if spoken is not None and task_families.uses_tools(family):
            tasks = tools.items(config, family, config.levels, "train", TRIED)
            written = tools.demonstrations(tasks, spoken)
        else:
            written = encode(tokenizer, items(family, config.levels, config.seed, "train", TRIED))
        longest = max(map(len, written))
        if longest > context + 1:
            raise ConfigError(
                f"an item of {family} at level {config.levels} has {longest} tokens: it needs a "
                f"context of {longest - 1} at least, and the context is {context}. Set fewer levels, "
                "or a longer context if the model takes one."
            )


def fill(
    folder: Path, config: CurriculumConfig, donor: Path, changes: Mapping[str, Any]
) -> list[str]:
    """Write streams, items, tokenizer and configuration; return notes on cells with few items.

    `changes` are settings of config.json in which the models differ from the given one in float32.

    Raises SourceError, DataError.
    """
    from safetensors.numpy import save_file

    parts.write_given(folder, donor, changes)
    tokenizer, streams, lines = parts.given_tokenizer(donor), {}, list[str]()
    spoken = tools.speech_of(config, tokenizer) if tools.families(config) else None
    for name, family, level in of_cells(config):
        if spoken is not None and task_families.uses_tools(family):
            tasks = tools.items(config, family, level, "train", config.pool)
            streams[name] = stream(tools.demonstrations(tasks, spoken))
            continue
        examples = items(family, level, config.seed, "train", config.pool)
        streams[name] = stream(encode(tokenizer, examples))
        lines += [json.dumps(row) for row in held_out(config, tokenizer, family, level)]
    if config.text:
        streams |= text_streams(config, tokenizer)
    save_file(dict(sorted(streams.items())), folder / STREAMS)
    (folder / ITEMS).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return []


def held_out(
    config: CurriculumConfig, tokenizer: Any, family: str, level: int
) -> Iterator[dict[str, object]]:
    """Yield a cell's items of both slices as rows of an item file. Raises DataError if one has none."""
    counts: dict[Slice, int] = {"selection": config.selection_items, "test": config.test_items}
    for on, count in counts.items():
        tasks = items(family, level, config.seed, on, count)
        if not tasks:
            raise DataError(f"family {family} has no items of level {level} in the slice {on}.")
        yield from rows(tokenizer, tasks, family, level, on)


def read(file: Path, tokenizer: Any, on: str) -> dict[str, list[Encoded]]:
    """Return cell → the items of a slice, from an item file that `fill` wrote."""
    items_by_cell: dict[str, list[Item]] = {}
    for line in file.read_text("utf-8").splitlines():
        row = json.loads(line)
        if row["slice"] == on:
            level = row["grade"] + 1
            item = Item(row["domain"], level, row["prompt"], row["check"]["answer"])
            items_by_cell.setdefault(cell(item.family, level), []).append(item)
    return {name: encode(tokenizer, items_of_cell) for name, items_of_cell in items_by_cell.items()}


# ---- ordinary text ------------------------------------------------------------------------------


def text_streams(config: CurriculumConfig, tokenizer: Any) -> dict[str, Ids]:
    """Return name → windows of built-in training text, int32 [tokens], as the objective reads them.

    Raises DataError for a domain whose text is shorter than a window.
    """
    texts = parts.builtin({}, config.seed, config.characters, config.text_domains)
    streams = {}
    for domain in sorted(texts):
        ids = parts.stream(texts[domain], tokenizer)
        if len(ids) < config.text_tokens:
            raise DataError(
                f"the ordinary text of domain {domain} has {len(ids)} tokens, and a window of it "
                f"{config.text_tokens}: set more characters, or fewer text_tokens."
            )
        streams[cell_of_text(domain)] = windows(ids, config.text_tokens)
    return streams


def windows(ids: Ids, size: int) -> Ids:
    """Return whole windows of token ids in one row, all tokens but each window's first as answers."""
    whole = ids[: len(ids) // size * size].reshape(-1, size)
    return np.concatenate([whole[:, :1], -1 - whole[:, 1:]], axis=1).ravel()
