"""Encoding of prompt and continuation, as lm-evaluation-harness 0.4 does it for causal models.

Both are tokenised together, with the tokenizer's own special tokens, and blanks at the prompt's end
count to the continuation. Then as many tokens as the prompt has alone are cut off in front; the
rest is the continuation. If the prompt is empty, the start token, else the end token, stands for
it.
"""

from __future__ import annotations

from typing import Any


def pair(prompt: str, continuation: str, tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return (ids of the prompt, ids of the continuation)."""
    if not prompt.strip():
        continuation = prompt + continuation
        start = tokenizer.bos_token_id
        start = tokenizer.eos_token_id if start is None else start
        ids = tokenizer.encode(continuation, add_special_tokens=False)
        return (ids[:1], ids[1:]) if ids[:1] == [start] else ([start or 0], ids)
    stem = prompt.rstrip()
    before = alone(stem, tokenizer)
    return before, alone(prompt + continuation, tokenizer)[len(before) :]


def alone(text: str, tokenizer: Any) -> list[int]:
    """Return a text's ids with the tokenizer's special tokens.

    If the text begins with the start token, else the end token, no special tokens are added.
    """
    first = tokenizer.bos_token_id
    first = tokenizer.eos_token_id if first is None else first
    first_text = tokenizer.decode([first]) if first is not None else ""
    if first_text and text.startswith(first_text):
        return tokenizer.encode(text, add_special_tokens=False)
    return tokenizer.encode(text)
