"""Tokens of GGUF files for tests that give ids: any will do."""

from __future__ import annotations

from agent_forge.weights.formats.byte_bpe import Tokens

#: Ids that a model of ROWS tokens is asked with.
IDS = list(range(1, 41))
ROWS = 320
TOKENS = Tokens(
    split="qwen2",
    tokens=tuple(f"t{i}" for i in range(ROWS)),
    kinds=(1,) * ROWS,
    merges=("t 1",),
    special={"bos": 1, "eos": 2},
    begins=False,
    template=None,
)
