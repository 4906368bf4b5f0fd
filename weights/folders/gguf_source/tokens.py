"""Tokenizers of GGUF files as tokenizer.json, so that text has the tokens that llama.cpp gives it.

    gpt2           byte-level BPE: merges, and a way of splitting by name (`SPLITTINGS`)
    llama          SentencePiece's BPE: a score for each token, bytes for text without a token

llama.cpp joins the neighbours whose union has the best score, `tokenizers` those of the first merge. So
the merges are all ways to cut a token in two tokens, in order of the scores of the whole tokens.
llama.cpp has no normaliser, and neither has the tokenizer.json written here. The original tokenizer of
a model may first bring text into the form NFC.

Patterns that split text are those of the models' own tokenizer.json, by llama.cpp's names; llama.cpp
writes some of them in another form (`src/llama-vocab.cpp`). In a list, each pattern splits the pieces
that the previous one left. One difference stays: with `tekken`, `gpt-4o` and `llama4` llama.cpp
distinguishes capitals from small letters in ASCII only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agent_forge.weights.folders.gguf_source.header import Metadata

#: Kinds of tokens (llama.cpp, `llama_token_type`).
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
#: How SentencePiece writes a space.
SPACE = "▁"
#: Algorithms by the names that files have.
BYTE_LEVEL, SENTENCE_PIECE = "gpt2", "llama"
#: Letters of the longest token that may be made by merges.
LONGEST = 256
#: Most merges: no trained vocabulary has more than 30 for each token of the largest vocabulary.
MOST_MERGES = 8_000_000


@dataclass(frozen=True)
class TokenizerFiles:
    """The contents of a tokenizer's files."""

    #: Contents of tokenizer.json and tokenizer_config.json.
    tokenizer: Mapping[str, object]
    config: Mapping[str, object]
    #: Ids of bos, eos and pad by their names in config.json. A missing one is None, which replaces a
    #: config's default.
    ids: Mapping[str, int | None]
    #: Tokens that end a reply.
    ends: Sequence[int]
    template: str | None


def count(source: Metadata) -> int:
    """Return the number of tokens of a file's vocabulary. Raises SourceError if there are none."""
    names = source.fields.get("tokenizer.ggml.tokens")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise source.error(
            "it holds no tokens (tokenizer.ggml.tokens): give a file with its tokenizer."
        )
    return len(names)


def of(source: Metadata) -> TokenizerFiles:
    """Return the TokenizerFiles for a GGUF file. Raises SourceError for unknown kinds."""
    model, size = source.fields.get("tokenizer.ggml.model"), count(source)
    if model not in (BYTE_LEVEL, SENTENCE_PIECE):
        raise source.error(
            f"its tokenizer is {str(model)[:40]!r}, which is not read: known are gpt2 (byte-level BPE) "
            "and llama (SentencePiece)."
        )
    ids = {
        name: id_
        for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown"))
        if (id_ := source.id(key, size)) is not None
    }
    vocabulary = _Vocabulary.of(source)
    if model == SENTENCE_PIECE:
        parts, begins = _sentence_piece(source, vocabulary, ids), True
    else:
        splitting = _splitting(source)
        parts, begins = _byte_level(source, vocabulary, splitting), splitting.begins
    framed = [
        (name, ids[name])
        for name, usual in (("bos", begins), ("eos", False))
        if source.flag(f"add_{name}_token", usual) and name in ids
    ]
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": vocabulary.added(),
        **parts,
        "post_processor": _frame(framed, vocabulary.names) or parts.get("post_processor"),
    }
    return TokenizerFiles(
        document,
        _config(source, ids, vocabulary.names),
        {f"{name}_token_id": ids.get(name) for name in ("bos", "eos", "pad")},
        [id_ for id_ in dict.fromkeys((ids.get("eos"), source.id("eot", size))) if id_ is not None],
        _template(source),
    )


@dataclass(frozen=True)
class _Vocabulary:
    """Tokens by id, with their kinds and scores."""

    names: Sequence[str]
    kinds: Sequence[int]
    scores: np.ndarray | None

    @classmethod
    def of(cls, source: Metadata) -> _Vocabulary:
        names = source.fields["tokenizer.ggml.tokens"]
        kinds = source.fields.get("tokenizer.ggml.token_type")
        scores = source.fields.get("tokenizer.ggml.scores")
        for key, values in (("token_type", kinds), ("scores", scores)):
            fits = isinstance(values, np.ndarray) and len(values) == len(names)
            if values is not None and not fits:
                raise source.error(f"tokenizer.ggml.{key} has not one number for each token.")
        if kinds is None:
            kinds = np.full(len(names), NORMAL)
        if scores is not None and not np.isfinite(scores).all():
            raise source.error("tokenizer.ggml.scores holds NaN or Inf.")
        return cls(names, [int(kind) for kind in kinds], scores)

    def numbers(self) -> dict[str, int]:
        """Return token → id without unused ids; for equal tokens, the last id."""
        return {
            name: id_
            for id_, name in enumerate(self.names)
            if name and not (self.kinds[id_] == UNUSED and name == f"[PAD{id_}]")
        }

    def added(self) -> list[dict[str, object]]:
        """Return a list, `added_tokens` of tokenizer.json: tokens that are found before text is split.

        In a GGUF file, tokens that users define have spaces, not SentencePiece's letter for a space.
        """
        last = self.numbers()
        return [
            {
                "id": id_,
                "content": name,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": kind != USER_DEFINED,
            }
            for id_, (name, kind) in enumerate(zip(self.names, self.kinds, strict=True))
            if kind in (CONTROL, USER_DEFINED, UNKNOWN) and last.get(name) == id_
        ]


def _splitting(source: Metadata) -> Splitting:
    name = source.fields.get("tokenizer.ggml.pre", "default")
    if name not in SPLITTINGS:
        raise source.error(
            f"its tokenizer splits text in the way {str(name)[:60]!r} (tokenizer.ggml.pre), which is "
            f"not known here: known are {', '.join(sorted(SPLITTINGS))}."
        )
    return SPLITTINGS[name]


def _byte_level(source: Metadata, vocabulary: _Vocabulary, how: Splitting) -> dict[str, object]:
    """Return key → part of tokenizer.json for byte-level BPE: splitting, model, decoder, …."""
    merges = source.fields.get("tokenizer.ggml.merges")
    if not isinstance(merges, list):
        raise source.error("its tokenizer has no merges (tokenizer.ggml.merges).")
    numbers = vocabulary.numbers()
    pairs = []
    for merge in merges:
        at = merge.find(" ", 1)
        left, right = merge[:at], merge[at + 1 :]
        if at < 0 or not all(part in numbers for part in (left, right, left + right)):
            raise source.error(f"its tokenizer merges {merge[:60]!r}, of which something is no token.")
        pairs.append((left, right))
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    level["use_regex"] = is_gpt2 = how.patterns[-1] == GPT2  # ByteLevel's own pattern
    patterns = how.patterns[: -1 if is_gpt2 else None]
    return {
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*map(_split, patterns), level]},
        "post_processor": level | {"trim_offsets": False},
        "decoder": level,
        "model": _model(numbers, pairs, None, False) | {"ignore_merges": how.whole},
    }


def _split(pattern: str) -> dict[str, object]:
    """Return a dict: tokenizer.json's step that splits text by a pattern, as in models' own files."""
    if pattern == DIGITS:
        return {"type": "Digits", "individual_digits": True}
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _sentence_piece(
    source: Metadata, vocabulary: _Vocabulary, ids: Mapping[str, int]
) -> dict[str, object]:
    """Return key → part of tokenizer.json for SentencePiece's BPE: normaliser, model, decoder.

    If the file says so, a space is put before a text, and before text after an added token.
    """
    if vocabulary.scores is None:
        raise source.error("its tokenizer has no scores (tokenizer.ggml.scores).")
    prefix, numbers = source.flag("add_space_prefix", True), vocabulary.numbers()
    fallback = all(f"<0x{byte:02X}>" in numbers for byte in range(256))
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    before = [{"type": "Prepend", "prepend": SPACE}] if prefix else []
    back = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []
    unknown = vocabulary.names[ids["unk"]] if "unk" in ids else None
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*before, spaces]},
        "pre_tokenizer": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip],
        },
        "model": _model(numbers, _merges(source, vocabulary, numbers), unknown, fallback)
        | {"fuse_unk": True},
    }


def _merges(
    source: Metadata, vocabulary: _Vocabulary, numbers: Mapping[str, int]
) -> list[tuple[str, str]]:
    """Return a list of (left, right), all ways to cut a token in two tokens, the best scores first.

    Bytes, and tokens that are found before text is split, are left out: no merge makes them.
    """
    assert vocabulary.scores is not None
    pairs = []
    for name, id_ in numbers.items():
        if vocabulary.kinds[id_] in (CONTROL, UNKNOWN, UNUSED, BYTE) or len(name) > LONGEST:
            continue
        score = float(vocabulary.scores[id_])
        cuts = [
            (numbers[name[:at]], numbers[name[at:]], name[:at], name[at:])
            for at in range(1, len(name))
            if name[:at] in numbers and name[at:] in numbers
        ]
        pairs += [(-score, id_, *cut) for cut in cuts]
        if len(pairs) > MOST_MERGES:
            raise source.error("its tokens can be cut in two in more ways than are read.")
    return [(left, right) for *_, left, right in sorted(pairs)]


def _model(
    numbers: Mapping[str, int], merges: Sequence[tuple[str, str]], unknown: str | None, fallback: bool
) -> dict[str, object]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unknown,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": fallback,
        "ignore_merges": False,
        "vocab": dict(numbers),
        "merges": [list(pair) for pair in merges],
    }


def _frame(tokens: Sequence[tuple[str, int]], names: Sequence[str]) -> dict[str, object] | None:
    """Return the post-processor that adds bos or eos to texts, a dict; None without `tokens`."""
    if not tokens:
        return None

    def around(texts: Sequence[str]) -> list[dict[str, object]]:
        parts: list[dict[str, Any]] = []
        for type_, text in enumerate(texts):
            there = {
                name: {"SpecialToken": {"id": names[id_], "type_id": type_}} for name, id_ in tokens
            }
            parts += [there["bos"]] if "bos" in there else []
            parts.append({"Sequence": {"id": text, "type_id": type_}})
            parts += [there["eos"]] if "eos" in there else []
        return parts

    return {
        "type": "TemplateProcessing",
        "single": around(["A"]),
        "pair": around(["A", "B"]),
        "special_tokens": {
            names[id_]: {"id": names[id_], "ids": [id_], "tokens": [names[id_]]} for _, id_ in tokens
        },
    }


def _config(source: Metadata, ids: Mapping[str, int], names: Sequence[str]) -> dict[str, object]:
    """Return the content of tokenizer_config.json as a dict."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": source.integer("context_length"),
        **{f"{name}_token": names[id_] for name, id_ in ids.items()},
    }


def _template(source: Metadata) -> str | None:
    template = source.fields.get("tokenizer.chat_template")
    if template is not None and not isinstance(template, str):
        raise source.error("tokenizer.chat_template is no text.")
    return template or None


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
    """Return the splitting pattern in which a capital letter begins a word."""
    front = r"[^\r\n\p{L}\p{N}]?"
    words = f"{front}{_UPPER}*{_LOWER}+{endings}|{front}{_UPPER}+{_LOWER}*{endings}"
    return f"{words}|{digits}{_SLASHED}"


@dataclass(frozen=True)
class Splitting:
    """Way of splitting text: patterns in order, and two flags of llama.cpp."""

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
