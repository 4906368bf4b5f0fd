"""Tokenizers as GGUF has them: byte-level BPE, told by vocabulary, merges and kind of splitting."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runs.errors import SourceError
from weights.formats import pre_tokenizers

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
    #: Name of the algorithm in GGUF.
    model: str = "gpt2"
    #: For algorithms with scores instead of merges: one a token.
    scores: tuple[float, ...] = ()
    #: True if a text gets a space in front; None if the algorithm has none.
    space_prefix: bool | None = None
    #: True if the tokenizer puts eos after a text.
    ends: bool = False
    #: Sentences: text that llama.cpp cuts otherwise.
    notes: tuple[str, ...] = ()


def of(tokenizer: Any, size: int) -> Tokens:
    """Return a tokenizer of transformers for a model whose embedding has `size` rows.

    GGUF has no normaliser: text that is not in the normal form NFC may be cut otherwise there. Raises
    SourceError for a tokenizer that is no byte-level BPE, or splits text in a way without a name.
    """
    content = file_of(tokenizer)
    model = content["model"]
    if model["type"] != "BPE" or model.get("byte_fallback"):
        raise SourceError(f"the tokenizer is {model['type']}: GGUF files are written of BPE only.")
    names, kinds = base(content, size)
    merges = (pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"])
    special = special_ids(tokenizer)
    return Tokens(
        split=pre_tokenizers.name_of(tokenizer, content),
        tokens=names,
        kinds=kinds,
        merges=tuple(merges),
        special=special,
        begins="bos" in special and tokenizer("a").input_ids[:1] == [special["bos"]],
        template=chat_template(tokenizer),
    )


def file_of(tokenizer: Any) -> dict[str, Any]:
    """Return the tokenizer.json of a tokenizer as transformers has loaded it.

    Loading may have replaced what the file says of splitting. Raises SourceError if it has none.
    """
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise SourceError(
            f"the tokenizer is a {type(tokenizer).__name__} without a tokenizer.json."
        )
    return json.loads(tokenizer.backend_tokenizer.to_str())


def base(content: Mapping[str, Any], size: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return tokens and their kinds by id, of a tokenizer.json; ids without a token are not used.

    Raises SourceError for an id that the embedding lacks, and for tokens that take spaces with them.
    """
    added = {row["id"]: row for row in content["added_tokens"]}
    for row in added.values():
        if row["lstrip"] or row["rstrip"] or row["single_word"]:
            raise SourceError(
                f"token {row['content']!r} is found with the spaces beside it, or as a whole word; "
                "llama.cpp finds it anywhere, alone."
            )
    names = {id_: name for name, id_ in content["model"]["vocab"].items()}
    names |= {id_: row["content"] for id_, row in added.items()}
    if names and max(names) >= size:
        raise SourceError(f"the tokenizer has token {max(names)}, and the embedding {size} rows.")
    tokens = tuple(names.get(id_, f"[PAD{id_}]") for id_ in range(size))
    return tokens, tuple(_kind(names, added, id_) for id_ in range(size))


def special_ids(tokenizer: Any, *more: str) -> dict[str, int]:
    """Return the ids of bos, eos, pad and `more`, of those that the tokenizer has."""
    ids = {name: getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad", *more)}
    return {name: id_ for name, id_ in ids.items() if id_ is not None}


def chat_template(tokenizer: Any) -> str | None:
    """Return the chat template if there is exactly one."""
    return tokenizer.chat_template if isinstance(tokenizer.chat_template, str) else None


def _kind(names: Mapping[int, str], added: Mapping[int, Mapping[str, Any]], id_: int) -> int:
    if id_ not in names:
        return UNUSED
    if id_ not in added:
        return NORMAL
    return CONTROL if added[id_]["special"] else USER_DEFINED
