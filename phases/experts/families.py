"""Tasks of families in a folder of text: to train on, and to measure on.

FOLDER/streams.safetensors gets FAMILY → training tasks, as the objective `answers` reads them;
FOLDER/items.jsonl the tasks of the slices search, selection and test, as problems. The first two are of
the tasks that `item_sets` keeps for choosing, and have none in common.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from evaluation.answers import Encoded, encode, rows, stream
from evaluation.task_families.base import Item
from evaluation.task_families.item_sets import items
from evaluation.training_text import parts
from evaluation.training_text.kept_text import ITEMS, STREAMS
from phases.experts.scoring import Held, of_answers
from phases.experts.settings import ExpertsConfig
from runs.errors import DataError


def add(folder: Path, config: ExpertsConfig, donor: Path) -> None:
    """Add the tasks of all families to a folder of text.

    Raises SourceError if the tokenizer cannot write them, DataError for a level without tasks.
    """
    from safetensors.numpy import load, save_file

    tokenizer = parts.given_tokenizer(donor)
    streams, lines = load((folder / STREAMS).read_bytes()), list[str]()
    for family in config.families:
        tasks = [task for level in _levels(config) for task in _training(config, family, level)]
        streams[family] = stream(encode(tokenizer, tasks))
        for level in _levels(config):
            lines += [json.dumps(row) for row in _measured(config, tokenizer, family, level)]
    save_file(dict(sorted(streams.items())), folder / STREAMS)
    with (folder / ITEMS).open("a", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))


def _levels(config: ExpertsConfig) -> range:
    return range(1, config.levels + 1)


def _share(config: ExpertsConfig, count: int) -> int:
    """Return a level's part of a number of tasks."""
    return -(-count // config.levels)


def _training(config: ExpertsConfig, family: str, level: int) -> list[Item]:
    return items(family, level, config.seed, "train", _share(config, config.pool))


def _measured(
    config: ExpertsConfig, tokenizer: Any, family: str, level: int
) -> Iterator[dict[str, object]]:
    """Yield a level's tasks to measure on as rows of an item file. Raises DataError if one has none."""
    windows, count = _share(config, config.windows), _share(config, config.family_items)
    choosing = items(family, level, config.seed, "selection", windows + count)
    searched = min(windows, len(choosing) // 2)
    slices = {
        "search": choosing[:searched],
        "selection": choosing[searched:],
        "test": items(family, level, config.seed, "test", count),
    }
    for on, tasks in slices.items():
        if not tasks:
            raise DataError(
                f"family {family} has too few tasks of level {level} for the slice {on}."
            )
        yield from rows(tokenizer, tasks, family, level, on)


def read(
    file: Path, families: Sequence[str], tokenizer: Any, on: str
) -> dict[str, tuple[list[Encoded], Held]]:
    """Return family → the tasks of a slice as token ids, and as what is predicted of them."""
    items_by_family: dict[str, list[Item]] = {family: [] for family in families}
    for line in file.read_text("utf-8").splitlines():
        row = json.loads(line)
        if row["slice"] == on and row["domain"] in items_by_family:
            entry = Item(row["domain"], row["grade"] + 1, row["prompt"], row["check"]["answer"])
            items_by_family[row["domain"]].append(entry)
    tasks_by_family = {}
    for family, entry in items_by_family.items():
        ids = encode(tokenizer, entry)
        tasks_by_family[family] = ids, of_answers(ids, [item.answer for item in entry])
    return tasks_by_family
