"""Ordinary text among the items of a curriculum: rehearsal of what the model was trained on before.

Robins 1995, "Catastrophic forgetting, rehearsal and pseudorehearsal". A window of text is an item whose
prompt is its first token: the objective then predicts all others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from evaluation.training_text import parts
from phases.curriculum.config import CurriculumConfig
from phases.curriculum.mixing.mix import cell_of_text
from runs.errors import DataError
from weights.training.windows import Ids


def streams(config: CurriculumConfig, tokenizer: Any) -> dict[str, Ids]:
    """Return name → windows of built-in training text, int32 [tokens], as the objective reads them.

    Raises DataError for a domain whose text is shorter than a window.
    """
    texts = parts.builtin({}, config.seed, config.characters, config.text_domains)
    found = {}
    for domain in sorted(texts):
        ids = parts.stream(texts[domain], tokenizer)
        if len(ids) < config.text_tokens:
            raise DataError(
                f"the ordinary text of domain {domain} has {len(ids)} tokens, and a window of it "
                f"{config.text_tokens}: set more characters, or fewer text_tokens."
            )
        found[cell_of_text(domain)] = windows(ids, config.text_tokens)
    return found


def windows(ids: Ids, size: int) -> Ids:
    """Return whole windows of token ids in one row, all tokens but each window's first as answers."""
    whole = ids[: len(ids) // size * size].reshape(-1, size)
    return np.concatenate([whole[:, :1], -1 - whole[:, 1:]], axis=1).ravel()
