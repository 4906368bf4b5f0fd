"""Choice of a reply's tokens, by the model's `generation_config.json` and by what the user asks for.

Without a word of either every token is the likeliest one (greedy), as transformers has it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformers import (
    LogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from evaluation.chat.conversation import Settings
from evaluation.trajectories.sampling import Drawing
from runs.errors import SourceError
from runs.system import bounded_files
from weights import randomness

FILE = "generation_config.json"
#: Bytes of the largest generation_config.json.
MOST_BYTES = 4 << 20


@dataclass(frozen=True)
class Choice:
    """Rule by which a model's tokens are chosen; temperature 0 is greedy, None leaves a step out."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    #: Tokens that end a reply.
    ends: frozenset[int] = frozenset()

    @property
    def words(self) -> str:
        """The choice in words for people."""
        if not self.temperature:
            return "greedy"
        steps = {"top-k": self.top_k, "top-p": self.top_p, "min-p": self.min_p}
        more = [f"{name} {value:g}" for name, value in steps.items() if value is not None]
        return ", ".join([f"temperature {self.temperature:g}", *more])

    def of(self, settings: Settings) -> Choice:
        """Return the choice with what the user asks for; a top-p alone samples at temperature 1."""
        temperature = settings.temperature
        if temperature is None:
            temperature = self.temperature or (1.0 if settings.top_p is not None else 0.0)
        top_p = self.top_p if settings.top_p is None else settings.top_p
        return replace(self, temperature=temperature, top_p=top_p)


def of_folder(folder: Path) -> Choice:
    """Return what the generation_config.json of a model folder says. Raise SourceError."""
    file = folder / FILE
    if not file.exists():
        return Choice()
    settings = bounded_files.read_object(file, MOST_BYTES)
    ends = settings.get("eos_token_id")
    several = ends if isinstance(ends, list) else [] if ends is None else [ends]
    if not all(isinstance(end, int) for end in several):
        raise SourceError(f"{file}: eos_token_id is {str(ends)[:60]}, not the id of a token.")
    sampled = settings.get("do_sample") is True
    top_k = _number(file, settings, "top_k", 0, math.inf) if sampled else None
    return Choice(
        temperature=(_number(file, settings, "temperature", 0, math.inf) or 1.0)
        if sampled
        else 0.0,
        top_k=int(top_k) if top_k else None,
        top_p=_number(file, settings, "top_p", 0, 1) if sampled else None,
        min_p=_number(file, settings, "min_p", 0, 1) if sampled else None,
        repetition_penalty=_number(file, settings, "repetition_penalty", 0, math.inf),
        ends=frozenset(several),
    )


def _number(
    file: Path, settings: dict[str, Any], key: str, low: float, high: float
) -> float | None:
    """Return a number above `low`, at most `high`; None without one. Raise SourceError."""
    value = settings.get(key)
    if value is None or (key == "top_k" and value == 0):  # 0 tokens: all of them
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not low < value <= high or value == math.inf:
        raise SourceError(f"{file}: {key} is {str(value)[:60]}, not a number that it may be.")
    return float(value)


class Choosing(LogitsProcessor):
    """Logits processor that leaves the likeliest token, or the one that is drawn by a key."""

    def __init__(self, choice: Choice, limit: int, length: int, *key: str | int) -> None:
        """Choose up to `limit` tokens after a prompt of `length` tokens."""
        steps: list[Any] = []
        if choice.repetition_penalty is not None:
            steps.append(RepetitionPenaltyLogitsProcessor(choice.repetition_penalty))
        if choice.temperature:
            steps.append(TemperatureLogitsWarper(choice.temperature))
            steps += [] if choice.top_k is None else [TopKLogitsWarper(choice.top_k)]
            steps += [] if choice.top_p is None else [TopPLogitsWarper(choice.top_p)]
            steps += [] if choice.min_p is None else [MinPLogitsWarper(choice.min_p)]
            steps.append(Drawing(randomness.uniform(limit, *key)[None], length))
        self._steps: Sequence[Any] = steps

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Return the scores [rows, vocabulary] after all steps."""
        for step in self._steps:
            scores = step(input_ids, scores)
        return scores
