"""Items → token ids, once per run.

Texts of a slice and domain are joined in the order of their ids, each followed by the end token,
and cut into windows of `context` tokens; the last may be shorter and is dropped only where it has a
single token. A window of n tokens predicts n − 1, so every token but a window's first is scored
exactly once. A question keeps the end of its prompt where prompt and choice exceed the context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evomerge.corpus.documents import SLICES, Slice
from evomerge.errors import DataError
from evomerge.fitness.data import Item, Question, Text
from evomerge.fitness.outcomes import Pool

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Asked:
    """One question: a sequence of prompt and choice for every choice."""

    sequences: tuple[Ids, ...]
    #: Where the choice starts in each sequence.
    starts: tuple[int, ...]
    #: UTF-8 bytes of each choice, for normalising.
    sizes: tuple[int, ...]
    answer: int


@dataclass
class Packed:
    """One domain of one slice."""

    windows: list[Ids] = field(default_factory=list)
    questions: list[Asked] = field(default_factory=list)
    #: UTF-8 bytes of all its texts, for bits per byte.
    bytes: int = 0

    def pool(self) -> Pool:
        """How much there is to draw from."""
        return Pool(windows=len(self.windows), questions=len(self.questions))


#: slice → domain → packed.
PackedData = dict[Slice, dict[str, Packed]]


def pack(items: Sequence[Item], tokenizer: Any, context: int) -> PackedData:
    """Tokenise and pack all items. Raises DataError for what the model cannot be scored on."""
    result: PackedData = {s: {} for s in SLICES}
    texts: dict[tuple[Slice, str], list[Text]] = {}
    for item in items:
        packed = result[item.slice].setdefault(item.domain, Packed())
        if isinstance(item, Question):
            packed.questions.append(_ask(item, tokenizer, context))
        else:
            texts.setdefault((item.slice, item.domain), []).append(item)
    for (slice_, domain), members in texts.items():
        packed = result[slice_][domain]
        packed.windows = _windows(members, tokenizer, context)
        packed.bytes = sum(len(member.text.encode()) for member in members)
    return result


def _windows(texts: Sequence[Text], tokenizer: Any, context: int) -> list[Ids]:
    encoded = tokenizer([t.text for t in texts], add_special_tokens=False, verbose=False)
    end = tokenizer.eos_token_id
    stream: list[int] = []
    for ids in encoded["input_ids"]:
        stream.extend(ids)
        if end is not None:
            stream.append(end)
    cuts = [stream[i : i + context] for i in range(0, len(stream), context)]
    return [np.asarray(cut, np.int64) for cut in cuts if len(cut) > 1]


def _ask(item: Question, tokenizer: Any, context: int) -> Asked:
    prompt = tokenizer.encode(item.prompt, add_special_tokens=False)
    if not prompt:
        prompt = [tokenizer.bos_token_id if tokenizer.bos_token_id is not None else 0]
    sequences, starts = [], []
    for choice in item.choices:
        ids = tokenizer.encode(choice, add_special_tokens=False)
        if len(ids) >= context:
            raise DataError(
                f"question {item.id!r}: a choice has {len(ids)} tokens, the model's context is "
                f"{context}. Shorten it."
            )
        kept = prompt[-(context - len(ids)) :]
        sequences.append(np.asarray([*kept, *ids], np.int64))
        starts.append(len(kept))
    sizes = tuple(len(choice.encode()) for choice in item.choices)
    return Asked(tuple(sequences), tuple(starts), sizes, item.answer)
