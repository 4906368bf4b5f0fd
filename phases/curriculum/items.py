"""Items of a curriculum run as token ids: streams to train on, dreams, rows to measure on.

    FOLDER/streams.safetensors   cell → training items, int32 [tokens], as the objective reads them
    FOLDER/items.jsonl           the items of the slices selection and test, as problems

Ordinary text among the items is rehearsal of what the model was trained on before (Robins 1995,
"Catastrophic forgetting, rehearsal and pseudorehearsal"). A window of text is an item whose prompt is
its first token: the objective then predicts all others. Dreams are a model's answers to tasks that it
has passed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from agent_forge.evaluation import task_families
from agent_forge.evaluation.answers import EncodedItem, encode, read_items, rows, stream
from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data.slices import Slice
from agent_forge.evaluation.task_families import items
from agent_forge.evaluation.task_families.families import Exercise
from agent_forge.evaluation.training_text import kept_text
from agent_forge.evaluation.training_text.kept_text import ITEMS, STREAMS
from agent_forge.evaluation.trajectories import sampling
from agent_forge.evaluation.trajectories.kept import same_streams
from agent_forge.phases.curriculum import tools
from agent_forge.phases.curriculum.mixing.frontier_rule import cell
from agent_forge.phases.curriculum.mixing.mix import cell_of_text
from agent_forge.phases.curriculum.recipes import PURPOSE, Dream, Dreamed, Dreamt
from agent_forge.phases.curriculum.settings import CurriculumConfig
from agent_forge.runs.errors import ConfigError, DataError
from agent_forge.weights import randomness
from agent_forge.weights.folders.checkpoint import digest
from agent_forge.weights.folders.vocabularies import Tokenizer
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.training.objectives.answers import ends
from agent_forge.weights.training.windows import Ids, stream_digest

#: Items of a family's highest level that are tried before any work.
TRIED = 64


def of_cells(config: CurriculumConfig) -> Iterator[tuple[str, str, int]]:
    """Yield (name of the cell, family, level), sorted by family and level."""
    for family in sorted(config.families):
        for level in range(1, config.levels + 1):
            yield cell(family, level), family, level


def check_items(config: CurriculumConfig, tokenizer: Tokenizer, context: int) -> None:
    """Raise an error if the tokenizer cannot write a family's tasks, or the context is too short.

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
    folder: Path, config: CurriculumConfig, donor: Path, changes: Mapping[str, object]
) -> list[str]:
    """Write streams, items, tokenizer and configuration; return an empty list of notes.

    `changes` are settings of config.json in which the models differ from the given one in float32.
    Raises SourceError, DataError.
    """
    from safetensors.numpy import save_file

    kept_text.write_given(folder, donor, changes)
    tokenizer, streams, lines = kept_text.given_tokenizer(donor), {}, list[str]()
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
    config: CurriculumConfig, tokenizer: Tokenizer, family: str, level: int
) -> Iterator[dict[str, object]]:
    """Yield a cell's items of both slices as rows of an item file. Raises DataError if it has none."""
    counts: dict[Slice, int] = {"selection": config.selection_items, "test": config.test_items}
    for on, count in counts.items():
        tasks = items(family, level, config.seed, on, count)
        if not tasks:
            raise DataError(f"family {family} has no items of level {level} in the slice {on}.")
        yield from rows(tokenizer, tasks, family, level, on)


def read(file: Path, tokenizer: Tokenizer, on: str) -> dict[str, list[EncodedItem]]:
    """Return cell → the encoded items of a slice, from an item file that `fill` wrote."""
    items_by_cell: dict[str, list[Exercise]] = {}
    for item in read_items(file, on):
        items_by_cell.setdefault(cell(item.family, item.level), []).append(item)
    return {name: encode(tokenizer, items_of_cell) for name, items_of_cell in items_by_cell.items()}


# ---- ordinary text ------------------------------------------------------------------------------


def text_streams(config: CurriculumConfig, tokenizer: Tokenizer) -> dict[str, Ids]:
    """Return name → built-in text for rehearsal: windows in one row, int32 [tokens].

    Raises DataError if a domain's text is shorter than a window.
    """
    texts = kept_text.builtin({}, config.seed, config.characters, config.text_domains)
    streams = {}
    for domain in sorted(texts):
        ids = kept_text.stream(texts[domain], tokenizer)
        if len(ids) < config.text_tokens:
            raise DataError(
                f"the ordinary text of domain {domain} has {len(ids)} tokens, and a window of it "
                f"{config.text_tokens}: set more characters, or fewer text_tokens."
            )
        streams[cell_of_text(domain)] = windows(ids, config.text_tokens)
    return streams


def windows(ids: Ids, size: int) -> Ids:
    """Return a stream of whole windows of `ids`; tokens after each one's first are answers, -1 - id."""
    whole = ids[: len(ids) // size * size].reshape(-1, size)
    return np.concatenate([whole[:, :1], -1 - whole[:, 1:]], axis=1).ravel()


# ---- dreams -------------------------------------------------------------------------------------

#: Tokens that an answer may have beyond the longest right one.
SPARE = 2
#: Cell → stream of items, and how many of them are right.
Written = Mapping[str, tuple[Ids, int]]


def written(
    model: ResidentModel, tokenizer: Tokenizer, config: CurriculumConfig, task: Dream
) -> dict[str, tuple[Ids, int]]:
    """Return cell → (stream of the model's finished answers, how many are right).

    Prompts are drawn from the training items. A cell without such an answer is left out.
    """
    streams: dict[str, tuple[Ids, int]] = {}
    for name in task.cells:
        family, _, level = name.partition("/")
        pool = task_families.items(family, int(level), config.seed, "train", config.pool)
        key = (PURPOSE, "dreams", config.seed, task.recipe_id, name)
        order = randomness.permutation(len(pool), *key, "prompts")[: config.dream_items]
        sample = [pool[number] for number in sorted(order.tolist())]
        dreams, right = _answered(model, tokenizer, sample, key)
        if dreams:
            streams[name] = stream(dreams), right
    return streams


def _answered(
    model: ResidentModel, tokenizer: Tokenizer, items: Sequence[Exercise], key: tuple[str | int, ...]
) -> tuple[list[EncodedItem], int]:
    """Return (items with the model's finished answers, how many answers are right)."""
    encoded = encode(tokenizer, items)
    limit = max(len(encoded_example.answer) for encoded_example in encoded) + SPARE
    beginnings = [np.asarray(encoded_example.prompt, np.int32) for encoded_example in encoded]
    end = tokenizer.eos_token_id
    replies = sampling.sample(model, beginnings, limit, (end,), *key)
    dreams, right = list[EncodedItem](), 0
    for item, example, reply in zip(items, encoded, replies, strict=True):
        if int(reply[-1]) == end and len(reply) > 1:
            dreams.append(EncodedItem(example.prompt, tuple(map(int, reply))))
            text = tokenizer.decode(reply[:-1], clean_up_tokenization_spaces=False)
            right += task_families.verify(item, text)
    return dreams, right


def answered(task: Dream, cache: Artifacts, write: Callable[[], Written]) -> Dreamed:
    """Return the `dreamed` event of what `write` returns; the dreams are kept in the cache."""
    began, dreams = time.monotonic(), write()
    tensors = {cell: torch.from_numpy(ids) for cell, (ids, _) in dreams.items()}
    seconds, name = time.monotonic() - began, digest(tensors)
    cache.keep(name, tensors, seconds)
    cells = {
        cell: Dreamt(digest=stream_digest(ids), items=len(ends(ids)), right=right)
        for cell, (ids, right) in dreams.items()
    }
    return Dreamed(recipe_id=task.recipe_id, cells=cells, digest=name, seconds=seconds)


def kept(event: Dreamed, cache: Artifacts, write: Callable[[], Written]) -> dict[str, Ids]:
    """Return cell → stream of dreams, from the cache; `write` dreams again if the cache lacks them.

    Raises SourceChangedError if those differ from the recorded ones.
    """

    def dreams() -> dict[str, Ids]:
        return {cell: ids for cell, (ids, _) in write().items()}

    return same_streams(event.digest, event.seconds, cache, dreams, "dreams dreamt")
