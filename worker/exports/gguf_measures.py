"""Measurements of a GGUF export on text: importance of inputs, and loss of a file in llama.cpp.

Windows and tokens are those of `forge score` and `forge compress`: each document alone, after the start
token, in windows of at most CONTEXT tokens; bits per byte are the mean over domains.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.backends.local_backend import ResidentModel
from evaluation.data.documents import Windows, documents, in_turn
from evaluation.data.items import Item
from evaluation.data.slices import Slice
from evaluation.loading import texts_of
from runs.errors import ConfigError, DataError
from runs.system.durations import rough
from weights.codecs.feedback.calibration import squares
from weights.folders.checkpoint import Checkpoint
from weights.formats import gguf_architectures as architectures
from weights.formats.libllama import Library

#: Tokens of a window: those of llama.cpp's own tools.
CONTEXT = 512
#: Tokens that the importance is measured on, and that a file's loss is measured on.
IMPORTANCE_TOKENS, LOSS_TOKENS = 32_768, 8_192
#: Slices that they are of.
IMPORTANCE: Slice = "train"
LOSS: Slice = "test"

Tell = Callable[[str], None]
Split = Mapping[str, Sequence[Windows]]


def split_of(
    checkpoint: Checkpoint, tokenizer: Any, items: Sequence[Item], on: Slice
) -> dict[str, list[Windows]]:
    """Return domain → the documents of a slice, as windows for this model."""
    context = min(CONTEXT, architectures.context(checkpoint.config))
    return {d: documents(t, tokenizer, context) for d, t in texts_of(items, on).items()}


def first_documents(split: Split, tokens: int = LOSS_TOKENS) -> dict[str, list[Windows]]:
    """Return the first documents of every domain in turn, whole, until they have `tokens` tokens."""
    chosen: dict[str, list[Windows]] = {domain: [] for domain in split}
    for number in range(max(map(len, split.values()), default=0)):
        for domain, queue in split.items():
            if number < len(queue) and tokens > 0:
                chosen[domain].append(queue[number])
                tokens -= sum(map(len, queue[number].windows))
    return {domain: queue for domain, queue in chosen.items() if queue}


def importance(
    checkpoint: Checkpoint, split: Split, tell: Tell
) -> tuple[dict[str, np.ndarray], int]:
    """Return the means of squares of the inputs of the blocks' matrices, and over how many tokens.

    Names are those of the file. llama.cpp's tool leaves out the head, too. Raises DataError,
    NotFiniteError.
    """
    windows = in_turn(split.values(), IMPORTANCE_TOKENS)
    if not windows:
        raise DataError(f"the data of --imatrix has no text in the slice {IMPORTANCE}.")
    model = ResidentModel(checkpoint.folder, "cpu", checkpoint.tied)
    model.load({name: tensor.float() for name, tensor in checkpoint.tensors().items()})
    progress = _progress("importance", len(windows), tell)
    means = squares(model.module, windows, progress)
    names = {name: architectures.tensor_name(checkpoint.config, name) for name in means}
    blocks = {
        gguf_name: means[name].numpy().astype(np.float32)
        for name, gguf_name in names.items()
        if gguf_name.startswith("blk.")
    }
    return blocks, sum(map(len, windows))


def check_matrix(
    checkpoint: Checkpoint, means: Mapping[str, np.ndarray], file: Path, needy: str = ""
) -> str:
    """Return a note if a file's importance matrix lacks matrices of this model's blocks, or "".

    Raises ConfigError for a matrix of another model, and if `needy`, a type that needs the whole
    matrix, is to be written by one that lacks some.
    """
    sizes = {
        architectures.tensor_name(checkpoint.config, name): shape[-1]
        for name, (_, shape) in checkpoint.shapes.items()
    }
    wrong = [name for name, mean in means.items() if sizes.get(name) != len(mean)]
    if wrong:
        raise ConfigError(
            f"{file} is the importance matrix of another model: {wrong[0]} has "
            f"{len(means[wrong[0]])} columns there and {sizes.get(wrong[0], 'is missing')} here."
        )
    blocks = [
        name
        for name, (_, shape) in checkpoint.shapes.items()
        if len(shape) == 2 and architectures.tensor_name(checkpoint.config, name).startswith("blk.")
    ]
    missing = [n for n in blocks if architectures.tensor_name(checkpoint.config, n) not in means]
    if not missing:
        return ""
    covered = f"{file} covers {len(blocks) - len(missing)} of {len(blocks)} matrices of the blocks"
    if needy:
        raise ConfigError(f"{covered}, and {needy} needs all of them: {missing[0]} is missing.")
    return f"{covered}; {missing[0]} is not among them."


def bits_per_byte(library: Library, file: Path, split: Split, tell: Tell) -> float:
    """Return a file's bits per byte in llama.cpp, the mean over domains. Raises UnavailableError."""
    every = [
        window for queue in split.values() for document in queue for window in document.windows
    ]
    library.open(file, max(map(len, every)))
    progress, done = _progress(f"loss of {file.name}", len(every), tell), 0
    rates = []
    for queue in split.values():
        nats = 0.0
        for document in queue:
            for window in document.windows:
                nats += library.nats(window.tolist())
                done += 1
                progress(done)
        rates.append(nats / math.log(2) / sum(document.bytes for document in queue))
    return math.fsum(rates) / len(rates)


def _progress(what: str, count: int, tell: Tell) -> Callable[[int], None]:
    """Return what is called after each of `count` windows; says the time ahead, and how far it is."""
    began, last_quarter = time.monotonic(), [0]

    def after(done: int) -> None:
        quarter = 4 * done // count
        if done in (1, count) or quarter > last_quarter[0]:
            last_quarter[0] = quarter
            left = (time.monotonic() - began) / done * (count - done)
            ahead = f", {rough(left)} left" if done < count else ""
            tell(f"{what}: {done} of {count} windows{ahead}")

    return after
