"""Ways to split text before byte-level BPE, by the names that llama.cpp gives them.

The patterns are those of the models' own tokenizer.json; llama.cpp writes some of them in other words
(`src/llama-vocab.cpp`). Of a list, each pattern splits what the one before has left. One difference
stays: by `tekken`, `gpt-4o` and `llama4` llama.cpp tells capitals from small letters in ASCII alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_MARKS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SLASHED = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DIGITS = r"\p{N}"
QWEN2 = rf"{_WORDS}\p{{N}}{_MARKS}"
LLAMA3 = rf"{_WORDS}\p{{N}}{{1,3}}{_MARKS}"


def _cased(endings: str, digits: str) -> str:
    """Return the pattern that begins a word at a capital letter."""
    front = r"[^\r\n\p{L}\p{N}]?"
    words = f"{front}{_UPPER}*{_LOWER}+{endings}|{front}{_UPPER}+{_LOWER}*{endings}"
    return f"{words}|{digits}{_SLASHED}"


@dataclass(frozen=True)
class Splitting:
    """Patterns in order, and what llama.cpp does beside splitting."""

    patterns: tuple[str, ...]
    #: True if a piece that is a token is not merged.
    whole: bool = False
    #: True if bos stands before a text unless the file says otherwise.
    begins: bool = False


_GPT2 = Splitting((GPT2,))
_DIGITS = Splitting((DIGITS, GPT2))
_QWEN2 = Splitting((QWEN2,))
_LLAMA3 = Splitting((LLAMA3,), whole=True, begins=True)
_BARE_LLAMA3 = Splitting((LLAMA3,))

#: `tokenizer.ggml.pre` → its splitting.
SPLITTINGS: Mapping[str, Splitting] = {
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais", "exaone4", "trillion"), _GPT2),
    **dict.fromkeys(("mellum", "gigachat", "a.x-4.0", "granite-docling"), _GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell"), _DIGITS),
    **dict.fromkeys(("exaone", "minerva-7b"), _DIGITS),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez", "stablelm2", "hunyuan"), _QWEN2),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "lfm2", "pixtral"), _LLAMA3),
    **dict.fromkeys(("falcon3", "falcon-h1"), _LLAMA3),
    **dict.fromkeys(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), _BARE_LLAMA3),
    "tekken": Splitting((_cased("", r"\p{N}"),), whole=True, begins=True),
    **dict.fromkeys(("gpt-4o", "llama4"), Splitting((_cased(f"{_ENDINGS}?", r"\p{N}{1,3}"),))),
    "default": Splitting((r"[\p{P}$+<=>^~|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    "falcon": Splitting((r"[\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]")),
}
