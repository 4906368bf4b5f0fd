"""Tokenizers as GGUF has them: byte-level BPE, told by vocabulary, merges and kind of splitting."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runs.errors import SourceError

_LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
#: Pattern by which a tokenizer splits text before it merges → its name in llama.cpp. "" stands for
#: ByteLevel's own pattern, that of GPT-2.
SPLITS = {
    "": "gpt-2",
    rf"{_LETTERS}\p{{N}}{_REST}": "qwen2",
    rf"{_LETTERS}\p{{N}}{{1,3}}{_REST}": "llama-bpe",
}
#: Kinds of tokens (llama.cpp, `llama_token_type`): ordinary, special, not used.
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5


@dataclass(frozen=True)
class Tokens:
    """A tokenizer, as GGUF stores it."""

    #: Name of the way in which text is split.
    split: str
    #: In the order of ids; as long as the model's embedding.
    tokens: tuple[str, ...]
    kinds: tuple[int, ...]
    #: Pairs that are merged, "a b", in order.
    merges: tuple[str, ...]
    #: Name of a special token (bos, eos, pad) → its id.
    special: Mapping[str, int]
    #: True if the tokenizer puts bos before a text.
    begins: bool
    template: str | None


def of(tokenizer: Any, size: int) -> Tokens:
    """Return a fast tokenizer of transformers for a model whose embedding has `size` rows.

    It is taken as transformers has loaded it, which may have replaced what its file says of splitting.
    GGUF has no normaliser: text that is not in the normal form NFC may be cut otherwise there. Raises
    SourceError for a tokenizer that is no byte-level BPE, or splits text in a way without a name.
    """
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise SourceError(
            f"the tokenizer is a {type(tokenizer).__name__} without a tokenizer.json."
        )
    told = json.loads(tokenizer.backend_tokenizer.to_str())
    model = told["model"]
    if model["type"] != "BPE" or model.get("byte_fallback"):
        how = " with byte fallback" if model.get("byte_fallback") else ""
        raise SourceError(
            f"the tokenizer is {model['type']}{how}: GGUF files are written of byte-level BPE only."
        )
    added = {row["id"]: row for row in told["added_tokens"]}
    names = {id_: name for name, id_ in model["vocab"].items()}
    names |= {id_: row["content"] for id_, row in added.items()}
    if names and max(names) >= size:
        raise SourceError(f"the tokenizer has token {max(names)}, and the embedding {size} rows.")
    merges = (pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"])
    ids = {name: getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    return Tokens(
        split=_split(told["pre_tokenizer"]),
        tokens=tuple(names.get(id_, f"[PAD{id_}]") for id_ in range(size)),
        kinds=tuple(_kind(names, added, id_) for id_ in range(size)),
        merges=tuple(merges),
        special={name: id_ for name, id_ in ids.items() if id_ is not None},
        begins=ids["bos"] is not None and tokenizer("a").input_ids[:1] == [ids["bos"]],
        template=tokenizer.chat_template if isinstance(tokenizer.chat_template, str) else None,
    )


def _kind(names: Mapping[int, str], added: Mapping[int, Mapping[str, Any]], id_: int) -> int:
    if id_ not in names:
        return UNUSED
    if id_ not in added:
        return NORMAL
    return CONTROL if added[id_]["special"] else USER_DEFINED


def _split(told: Mapping[str, Any] | None) -> str:
    """Return the name of a pre-tokenizer's way to split. Raises SourceError if it has none."""
    parts = (told or {}).get("pretokenizers", [told] if told else [])
    patterns = [part["pattern"].get("Regex") for part in parts if part["type"] == "Split"]
    levels = [part for part in parts if part["type"] == "ByteLevel"]
    pattern = patterns[0] if patterns else ""
    plain = len(levels) == 1 and len(patterns) + 1 == len(parts) and len(patterns) <= 1
    one = plain and not levels[0]["add_prefix_space"] and bool(patterns) != levels[0]["use_regex"]
    if one and pattern in SPLITS:
        return SPLITS[pattern]
    raise SourceError(
        "the tokenizer splits text in a way that has no name in llama.cpp here: known are those of "
        f"{', '.join(SPLITS.values())}."
    )
