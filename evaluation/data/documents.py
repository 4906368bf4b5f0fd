"""Documents as windows of tokens, each scored by itself: models of any tokenizer can be compared.

A document is preceded by the tokenizer's start token (or its end token, if it has no other), so that
every token of the text is predicted, exactly once: windows of `context` tokens begin with the last
token of the window before. This is the rolling log-likelihood of lm-evaluation-harness (Biderman et
al. 2024, arXiv 2405.14782).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evaluation.data.items import Text
from evaluation.data.packing import Ids, check_known, token_bytes
from runs.errors import DataError


@dataclass(frozen=True)
class Windows:
    """The windows of one document, and the UTF-8 bytes that they predict."""

    id: str
    windows: tuple[Ids, ...]
    bytes: int


def documents(texts: Sequence[Text], tokenizer: Any, context: int) -> list[Windows]:
    """Return the windows of each text, at most `context` tokens long, in order.

    Without a start or end token, the first token of a text is not predicted, and its bytes do not
    count. Raises DataError for a text that the tokenizer does not know, or of which nothing is
    predicted.
    """
    start = tokenizer.bos_token_id
    start = tokenizer.eos_token_id if start is None else start
    return [_document(text, tokenizer, start, context) for text in texts]


def in_turn(domains: Iterable[Sequence[Windows]], tokens: int) -> list[Ids]:
    """Return windows of every domain in turn, the last one cut, up to a number of tokens."""
    queues = [[w for document in split for w in document.windows] for split in domains]
    windows: list[Ids] = []
    for number in range(max(map(len, queues), default=0)):
        for queue in queues:
            if number < len(queue) and tokens > 0:
                windows.append(queue[number][:tokens])
                tokens -= len(windows[-1])
    return windows


def _document(text: Text, tokenizer: Any, start: int | None, context: int) -> Windows:
    ids = tokenizer.encode(text.text, add_special_tokens=False, verbose=False)
    check_known(text.id, ids, tokenizer)
    size = len(text.text.encode("utf-8", "replace"))
    if start is None:
        size -= _first_bytes(text, tokenizer)
    whole = ids if start is None else [start, *ids]
    cuts = [whole[at : at + context] for at in range(0, len(whole) - 1, context - 1)]
    if not cuts or size < 1:
        raise DataError(f"text {text.id!r} is one token: nothing of it is predicted. Leave it out.")
    return Windows(text.id, tuple(np.asarray(cut, np.int64) for cut in cuts), size)


def _first_bytes(text: Text, tokenizer: Any) -> int:
    """Return the bytes of a text's first token. Raises DataError if the tokenizer cannot tell."""
    if not getattr(tokenizer, "is_fast", False):
        raise DataError(
            "the tokenizer has neither a start nor an end token, and does not tell which part of a "
            "text its first token is: its models cannot be compared by bits per byte."
        )
    encoded = tokenizer(text.text, add_special_tokens=False, return_offsets_mapping=True)
    return token_bytes(text.text, encoded["offset_mapping"])[0]
