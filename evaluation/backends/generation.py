"""Greedy replies to problems, in batches: always the most likely token, no randomness.

Prompts of similar length share a batch, padded on the left. A reply ends before the end token,
before one of its stop texts, or at its maximal length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from transformers import PreTrainedConfig, StoppingCriteria

from agent_forge.evaluation.data.packing import PackedProblem
from agent_forge.weights import pieces
from agent_forge.weights.folders.vocabularies import Tokenizer

#: Prompts are padded to a multiple of this.
PAD_TO = 32
#: Last tokens of the prompt that are decoded together with a reply.
TAIL = 8


def replies(
    continued: Callable[..., object],
    rows_of: Callable[[int], int],
    ends: frozenset[int],
    problems: Sequence[PackedProblem],
    tokenizer: Tokenizer,
) -> list[str]:
    """Return a list of the texts of greedy replies, cut at stop texts, in the order of the problems.

    `continued` and `rows_of` are methods of a `ResidentModel`; `ends` are tokens that end a reply.
    """
    result = [""] * len(problems)
    groups: dict[tuple[int, int], list[int]] = {}
    for number, posed in enumerate(problems):
        padded = -(-len(posed.ids) // PAD_TO) * PAD_TO
        groups.setdefault((padded, posed.problem.max_tokens), []).append(number)
    passes: list[tuple[int, int, list[int]]] = []
    for (_, limit), members in sorted(groups.items()):
        length = max(len(problems[n].ids) for n in members)
        rows = rows_of(length + limit)
        starts = range(0, len(members), rows)
        passes += [(length, limit, members[start : start + rows]) for start in starts]

    def work(number: int) -> pieces.Tensors:
        length, limit, members = passes[number]
        ids = np.zeros((len(members), length), np.int64)
        mask = np.zeros((len(members), length), np.int64)
        chosen = [problems[n] for n in members]
        for row, posed in enumerate(chosen):
            ids[row, length - len(posed.ids) :] = posed.ids
            mask[row, length - len(posed.ids) :] = 1
        reading = _Reading(chosen, tokenizer, ends, length)
        continued(torch.from_numpy(ids), torch.from_numpy(mask), limit, reading)
        texts = zip(members, reading.replies, strict=True)
        return {str(n): torch.tensor(list(text.encode()), dtype=torch.uint8) for n, text in texts}

    for replied in pieces.each(len(passes), work):
        for number, text in replied.items():
            result[int(number)] = bytes(text.tolist()).decode()
    return result


def end_tokens(config: PreTrainedConfig, tokenizer: Tokenizer) -> frozenset[int]:
    """Return the set of ids that end a reply: the tokenizer's end token and those of the config."""
    ends = getattr(config.get_text_config(), "eos_token_id", None)
    several = ends if isinstance(ends, list | tuple) else [ends]
    return frozenset(int(t) for t in (*several, tokenizer.eos_token_id) if t is not None)


class _Reading(StoppingCriteria):
    """Stopping criterion that decodes replies while they grow and says which rows have ended."""

    def __init__(
        self, problems: Sequence[PackedProblem], tokenizer: Tokenizer, ends: frozenset[int], length: int
    ) -> None:
        self._problems = problems
        self._tokenizer = tokenizer
        self._ends = ends
        self._length = length
        self._ended = [False] * len(problems)
        #: The end of each prompt, as tokens and as text: some decoders drop a leading space.
        #: lm-evaluation-harness decodes the reply alone.
        alone = [posed.problem.encoding == "harness" for posed in problems]
        self._tails = [
            [] if harness else posed.ids[-TAIL:].tolist()
            for posed, harness in zip(problems, alone, strict=True)
        ]
        self._before = [self._text(tail) for tail in self._tails]
        self.replies = [""] * len(problems)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: object) -> torch.Tensor:
        for row, tokens in enumerate(input_ids[:, self._length :].tolist()):
            if not self._ended[row]:
                self._read(row, tokens)
        return torch.tensor(self._ended, device=input_ids.device)

    def _read(self, row: int, tokens: list[int]) -> None:
        ended = tokens[-1] in self._ends
        text = self._text([*self._tails[row], *(tokens[:-1] if ended else tokens)])
        text = text[len(self._before[row]) :]
        stops = [place for stop in self._problems[row].problem.stop if (place := text.find(stop)) >= 0]
        self.replies[row] = text[: min(stops)] if stops else text
        self._ended[row] = ended or bool(stops)

    def _text(self, tokens: list[int]) -> str:
        return self._tokenizer.decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
