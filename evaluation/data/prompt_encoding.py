"""Prompt and continuation → token ids, as lm-evaluation-harness 0.4 does it for causal models.

Both are tokenised together, with the tokenizer's own special tokens, blanks at the prompt's end
counted to the continuation; what the prompt has alone is cut off in front. Without a prompt the start
token, else the end token, stands for it.
"""

from __future__ import annotations

from typing import Any


def pair(prompt: str, continuation: str, tokenizer: Any) -> tuple[list[int], list[int]]:
    """(ids of the prompt, ids of the continuation)."""
    if not prompt.strip():
        continuation = prompt + continuation
        start = tokenizer.bos_token_id
        start = tokenizer.eos_token_id if start is None else start
        ids = tokenizer.encode(continuation, add_special_tokens=False)
        return (ids[:1], ids[1:]) if ids[:1] == [start] else ([start or 0], ids)
    kept = prompt.rstrip()
    before = alone(kept, tokenizer)
    return before, alone(prompt + continuation, tokenizer)[len(before) :]


def alone(text: str, tokenizer: Any) -> list[int]:
    """A text with the tokenizer's own special tokens, those that it says itself not twice."""
    first = tokenizer.bos_token_id
    first = tokenizer.eos_token_id if first is None else first
    said = tokenizer.decode([first]) if first is not None else ""
    if said and text.startswith(said):
        return tokenizer.encode(text, add_special_tokens=False)
    return tokenizer.encode(text)
