"""Byte-level BPE tokenizers in the form of GGUF: vocabulary, merges, and llama.cpp's name of the split.

A published tokenizer is recognised by the hash of its tokens of one text, as in llama.cpp's converter
(`get_vocab_base_pre`). The hash depends on the vocabulary. A tokenizer that this program trained has
another vocabulary, and is recognised by the steps of its pre-tokenizer. With some names llama.cpp takes
a word that is a token whole (`ignore_merges`), with others it merges such words, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent_forge.runs.errors import SourceError
from agent_forge.weights.folders.vocabularies import Tokenizer

#: Kinds of tokens (llama.cpp, `llama_token_type`): ordinary, special, not used.
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5


@dataclass(frozen=True)
class Tokens:
    """A tokenizer in the form of GGUF."""

    #: Name of the way in which text is split.
    split: str
    #: In the order of ids; as long as the model's embedding.
    tokens: tuple[str, ...]
    kinds: tuple[int, ...]
    #: Merges of pairs, "a b", in order.
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
    #: Sentences about text that llama.cpp splits differently.
    notes: tuple[str, ...] = ()


def of(tokenizer: Tokenizer, size: int) -> Tokens:
    """Return a tokenizer as GGUF's Tokens, for a model whose embedding has `size` rows.

    GGUF has no normaliser: llama.cpp may split text that is not in the form NFC differently. Raises
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
        split=name_of(tokenizer, content),
        tokens=names,
        kinds=kinds,
        merges=tuple(merges),
        special=special,
        begins="bos" in special and tokenizer("a").input_ids[:1] == [special["bos"]],
        template=chat_template(tokenizer),
    )


def file_of(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the content of tokenizer.json of a loaded tokenizer.

    Loading may have replaced the file's way of splitting. Raises SourceError if there is no such file.
    """
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise SourceError(f"the tokenizer is a {type(tokenizer).__name__} without a tokenizer.json.")
    return json.loads(tokenizer.backend_tokenizer.to_str())


def base(content: Mapping[str, Any], size: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return (tokens, kinds), by id, of a tokenizer.json; an id without a token has the kind UNUSED.

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


def special_ids(tokenizer: Tokenizer, *more: str) -> dict[str, int]:
    """Return name → id of those of "bos", "eos", "pad" and `more` that the tokenizer has."""
    ids = {name: getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad", *more)}
    return {name: id_ for name, id_ in ids.items() if id_ is not None}


def chat_template(tokenizer: Tokenizer) -> str | None:
    """Return the tokenizer's chat template; None unless there is exactly one."""
    return tokenizer.chat_template if isinstance(tokenizer.chat_template, str) else None


def _kind(names: Mapping[int, str], added: Mapping[int, Mapping[str, object]], id_: int) -> int:
    if id_ not in names:
        return UNUSED
    if id_ not in added:
        return NORMAL
    return CONTROL if added[id_]["special"] else USER_DEFINED


#: The text of llama.cpp's converter.
TEXT = (
    "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n🚀 (normal) 😶\u200d🌫️ "
    "(multiple emojis concatenated) ✅ 🦙🦙 3 33 333 3333 33333 333333 3333333 33333333 "
    "3.3 3..3 3...3 កាន់តែពិសេសអាច😁 ?我想在apple工作1314151天～ ------======= нещо на Български "
    "''''''```````\"\"\"\"......!!!!!!?????? I've been 'told he's there, 'RE you sure? "
    "'M not sure I'll make it, 'D you like some tea? We'Ve a'lL"
)
#: SHA-256 of the tokens of TEXT, written as a list → name. Models of the families that are exported.
HASHES: Mapping[str, str] = {
    "0ef9807a4087ebef797fc749390439009c3b9eda9ad1a097abbe738f486c01e5": "llama-bpe",  # Llama 3
    "c136ed14d01c2745d4f60a9596ae66800e2b61fa45643e72436041855ad4089d": "smaug-bpe",
    "e636dc30a262dcc0d8c323492e32ae2b70728f4df7dfe9737d9f920a282b8aea": "qwen2",
    "d4540891389ea895b53b399da6ac824becc30f2fba0e9ddbb98f92e55ca0e97c": "qwen2",  # Qwen3-Embedding
    "d30d75d9059f1aa2c19359de71047b3ae408c70875e8a3ccf8c5fba56c9d8af4": "qwen35",
    "b3f499bb4255f8ca19fccd664443283318f2fd2414d5e0b040fbdd0cc195d6c5": "deepseek-r1-qwen",
    "862f827721df956049dff5ca81a57f29e575280bc622e290d3bf4e35eca29015": "f2llmv2",
    "4a2e2abae11ca2b86d570fc5b44be4d5eb5e72cc8f22dd136a94b37da83ab665": "kormo",
    "855059429035d75a914d1eda9f10a876752e281a054a7a3d421ef0533e5b6249": "smollm",
    "169bf0296a13c4d9b7672313f749eb36501d931022de052aad6e36f2bf34dd51": "lfm2",
    "a8594e3edff7c29c003940395316294b2c623e09894deebbc65f33f1515df79e": "dbrx",  # OLMo 2, too
    "b6dc8df998e1cfbdc4eac8243701a65afe638679230920b50d6f17d81c098166": "olmo",
    "63b97e4253352e6f357cc59ea5b583e3a680eaeaf2632188c2b952de2588485e": "tekken",  # Mistral Nemo
    "0e9433cbbb161f89e264eb32e8e64bfe69e834973ffca5d41d3948a604a3e2a3": "pixtral",
    "ccc2ef013c104be7bae2965776d611e1d7a8a2a9c547dd93a682c9a9fc80352e": "gpt-4o",  # Phi 4 mini
    "3ce83efda5659b07b1ad37ca97ca5797ea4285d9b9ab0dc679e4a720c9da7454": "gpt-2",
    "0fe1cf6eda062318a1af7270f3331a85c539a01778ff948e24388e949c5282f4": "gpt-2",
    "6221ad2852e85ce96f791f476e0b390cf9b474c9e3d1362f53a24a06dc8220ff": "refact",  # Granite
    "53e325976a6e142379c19b09afcae354f2f496f147afa8f9e189a33fe4e3024e": "granite-docling",
    "35d91631860c815f952d711435f48d356ebac988362536bed955d43bfa436e34": "starcoder",
    "9d032fcbd5501f4a38150912590928bfb36091efb5df11b8e2124b0390e3fb1e": "falcon3",
    "049ecf7629871e3041641907f3de7c733e4dbfdc736f57d882ba0b0845599754": "deepseek-llm",
    "347715f544604f9118bb75ed199f68779f423cabb20db6de6f31b908d04d7821": "deepseek-coder",
    "d5f1dd6f980fec569fb218a81a7658ac45fc56b38c5a0adeb1c232fbe04ef5ec": "seed-coder",
    "7dec86086fcc38b66b7bc1575a160ae21cf705be7718b9d5598190d7c12db76f": "superbpe",
    "1431a23e583c97432bc230bff598d103ddb5a1f89960c8f1d1051aaa944d0b35": "minerva-7b",
    "d4c8f286ea6b520b3d495c4455483cfa2302c0cfcd4be05d781b6a8a0a7cdaf1": "megrez",
    "f6791d196f87ce6b56a7d234be618e0d58f8cda3549416635b2bebcd22cd95c4": "midm-2.0",
    "b0a6b1c0bd5998ebd9df08611efde34a4ff03faed45ae09c43e6b31ebd4b94cf": "a.x-4.0",
    "a1e163ecab2e718a4c829d1148b6e86824ec36163bb71941c3dca9cd5ac25756": "mellum",
    "1994ffd01900cfb37395608534236ecd63f2bd5995d6cb1004dda1af50240f15": "trillion",
}

#: Ways in which a pattern that covers all text splits it at each match.
_WHOLE = (("Isolated", False), ("Removed", True))
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_MARKED = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
#: Step before ByteLevel that splits single digits; other steps are patterns. Without a pattern,
#: ByteLevel splits by the pattern of GPT-2.
DIGITS = "digits"
#: (steps, True if words that are tokens are not merged) → name.
SPLITS: Mapping[tuple[tuple[str, ...], bool], str] = {
    ((), False): "gpt-2",
    ((DIGITS,), False): "smollm",
    ((rf"{_WORDS}\p{{N}}{_REST}",), False): "qwen2",
    ((_MARKED,), False): "qwen35",
    ((rf"{_WORDS}\p{{N}}{{1,3}}{_REST}",), False): "dbrx",
    ((rf"{_WORDS}\p{{N}}{{1,3}}{_REST}",), True): "llama-bpe",
}


def name_of(tokenizer: Tokenizer, file: Mapping[str, Any]) -> str:
    """Return llama.cpp's name for a tokenizer's way to split; `file` is its tokenizer.json.

    Raises SourceError if llama.cpp has no such way.
    """
    ids = tokenizer.encode(TEXT, verbose=False)
    if name := HASHES.get(hashlib.sha256(str(ids).encode()).hexdigest()):
        return name
    steps, whole = _steps(file["pre_tokenizer"]), bool(file["model"].get("ignore_merges"))
    if steps is not None and (steps, whole) in SPLITS:
        return SPLITS[steps, whole]
    raise SourceError(
        "the tokenizer splits text in a way that has no name in llama.cpp here: known are those of "
        f"{', '.join(sorted({*SPLITS.values(), *HASHES.values()}))}."
    )


def _steps(stated: Mapping[str, Any] | None) -> tuple[str, ...] | None:
    """Return a pre-tokenizer's patterns in the form of SPLITS' keys; None if it has other steps."""
    parts = list((stated or {}).get("pretokenizers", [stated] if stated else []))
    level = parts.pop() if parts else {}
    if level.get("type") != "ByteLevel" or level["add_prefix_space"]:
        return None
    steps: list[str] = []
    for part in parts:
        pattern = part.get("pattern", {}).get("Regex")
        if part["type"] == "Digits" and part["individual_digits"]:
            steps.append(DIGITS)
        elif pattern and (part["behavior"], part["invert"]) in _WHOLE:
            steps.append(pattern)
        else:
            return None
    built_in = not any(step != DIGITS for step in steps)
    return tuple(steps) if built_in == level["use_regex"] else None
