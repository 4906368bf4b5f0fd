"""SentencePiece's tokenizers in the form of GGUF: BPE over characters, bytes for the rest.

Llama 2's, Mistral's and Gemma's are of this kind: tokenizer.json has merges in order, GGUF has a score
for each token. llama.cpp (`llm_tokenizer_spm`) joins the two neighbours whose union has the best score,
whichever they are; `tokenizers` joins by merges. The score of a token is minus the rank of its first
merge. Both give the same result if every way to cut a token in two known parts is a merge, and the
merges of one token are consecutive. This holds for conversions of SentencePiece; a vocabulary that
`tokenizers` has trained is different, and is refused.

One difference remains: if two merges of one token overlap ("at" + "a" and "a" + "ta"), llama.cpp takes
the left one, and `tokenizers` the first in the list. `Tokens.notes` has the number of such merges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_forge.runs.errors import SourceError
from agent_forge.weights.folders.vocabularies import Tokenizer
from agent_forge.weights.formats.byte_bpe import Tokens, base, chat_template, file_of, special_ids

#: How SentencePiece writes a space.
SPACE = "▁"
#: Kinds of tokens (llama.cpp, `llama_token_type`) that byte-level BPE does not have.
UNKNOWN, BYTE = 2, 6
_BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
_REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
_DOUBLE = {"type": "Replace", "pattern": {"Regex": rf"\A{SPACE}"}, "content": SPACE * 2}
_PREPEND = {"type": "Prepend", "prepend": SPACE}
_SPLIT = {"type": "Split", "pattern": {"String": " "}, "invert": False}

Merge = tuple[str, str]


def of(tokenizer: Tokenizer, size: int) -> Tokens:
    """Return a tokenizer as GGUF's Tokens, for a model whose embedding has `size` rows.

    Raises SourceError if llama.cpp would split text differently.
    """
    tokenizer_content = file_of(tokenizer)
    model = tokenizer_content["model"]
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges"):
        if model.get(name):
            raise SourceError(f"the tokenizer has {name}, which llama.cpp does not.")
    if lacking := [byte for byte in _BYTES if byte not in model["vocab"]]:
        raise SourceError(f"the tokenizer has no token for the byte {lacking[0]}: all 256 are needed.")
    pairs = (pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"])
    merges: list[Merge] = [(left, right) for left, right in pairs]
    added = {row["content"]: row for row in tokenizer_content["added_tokens"]}
    _check_merges(merges, model["vocab"], added)
    prefix, notes = _spaces(tokenizer_content, model["vocab"], added)
    if count := _overlaps(merges):
        notes += (
            f"{count} pairs of merges overlap: where they meet, llama.cpp may cut text elsewhere.",
        )
    names, kinds = base(tokenizer_content, size)
    scores = _scores(merges)
    bytes_, unknown = frozenset(_BYTES), model.get("unk_token")
    usual = {BYTE: bytes_, UNKNOWN: {unknown}}
    begins, ends = _added(tokenizer)
    return Tokens(
        split="default",
        tokens=names,
        kinds=tuple(
            next((k for k, which in usual.items() if name in which), kind)
            for name, kind in zip(names, kinds, strict=True)
        ),
        merges=(),
        special=special_ids(tokenizer, "unk"),
        begins=begins,
        template=chat_template(tokenizer),
        model="llama",
        scores=tuple(scores.get(name, -float(len(merges))) for name in names),
        space_prefix=prefix,
        ends=ends,
        notes=notes,
    )


def _scores(merges: Sequence[Merge]) -> dict[str, float]:
    """Return token → minus the rank of its first merge."""
    scores: dict[str, float] = {}
    for rank, (left, right) in enumerate(merges):
        scores.setdefault(left + right, -float(rank))
    return scores


def _check_merges(merges: Sequence[Merge], vocabulary: Mapping[str, int], added: Any) -> None:
    """Raise SourceError if scores of tokens cannot replace the merges."""
    pairs, newest, done = set(merges), "", set()
    for left, right in merges:
        token = left + right
        if token != newest and token in done:
            raise SourceError(
                f"the merges of {token!r} do not stand together: llama.cpp has one score a token."
            )
        if left in _BYTES or right in _BYTES:
            raise SourceError(f"the tokenizer merges bytes ({left} {right}), which llama.cpp does not.")
        newest = token
        done.add(token)
    for token in vocabulary:
        for at in range(1, 0 if token in added else len(token)):
            left, right = token[:at], token[at:]
            parts = all(part in vocabulary or len(part) == 1 for part in (left, right))
            if parts and (left, right) not in pairs:
                raise SourceError(
                    f"the tokenizer never joins {left!r} and {right!r}, and llama.cpp would, for "
                    f"{token!r} is a token: its merges are not those of SentencePiece."
                )


def _overlaps(merges: Sequence[Merge]) -> int:
    """Return how many pairs of merges of one token overlap and have the right merge first."""
    ranks = {merge: rank for rank, merge in enumerate(merges)}
    return sum(
        (left + right).startswith(right)
        and ranks.get((right, (left + right)[len(right) :]), rank) < rank
        for (left, right), rank in ranks.items()
    )


def _spaces(
    tokenizer_content: Mapping[str, Any],
    vocabulary: Mapping[str, int],
    added: Mapping[str, Mapping[str, object]],
) -> tuple[bool, tuple[str, ...]]:
    """Return (True if texts get a space in front, notes). Raises SourceError for another way."""
    normaliser = _steps(tokenizer_content["normalizer"], "normalizers")
    splitter = _steps(tokenizer_content["pre_tokenizer"], "pretokenizers")
    for step in [step for step in splitter if _SPLIT.items() <= step.items()]:
        splitter.remove(step)  # no space is left to split at
    if normaliser in ([_REPLACE], [_PREPEND, _REPLACE]) and not splitter:
        prefix, notes = len(normaliser) == 2, ()
    elif (
        len(splitter) == 1
        and splitter[0]["type"] == "Metaspace"
        and splitter[0]["replacement"] == SPACE
    ):
        prefix, notes = _metaspace(splitter[0], normaliser, vocabulary)
    else:
        raise SourceError(
            "the tokenizer normalises or splits text otherwise than SentencePiece's BPE does "
            f"({', '.join(step['type'] for step in normaliser + splitter) or 'not at all'})."
        )
    for content, row in added.items():
        if row["normalized"] and (prefix or " " in content or SPACE in content):
            raise SourceError(
                f"token {content!r} is looked for in normalised text, and llama.cpp looks in the text."
            )
    return prefix, notes


def _metaspace(
    step: Mapping[str, object],
    normaliser: Sequence[Mapping[str, object]],
    vocabulary: Mapping[str, int],
) -> tuple[bool, tuple[str, ...]]:
    """Return (True if texts get a space in front, notes) of a Metaspace. Raises SourceError."""
    scheme = step["prepend_scheme"]
    if step["split"] and any(SPACE in token[1:] for token in vocabulary):
        raise SourceError("the tokenizer splits text at spaces that its tokens hold.")
    if normaliser == [_REPLACE, _DOUBLE] and scheme == "always":
        return True, ()
    if normaliser not in ([], [_REPLACE]):
        raise SourceError("the tokenizer normalises text, and GGUF has no normaliser.")
    if scheme == "never":
        return False, ()
    begun = "text that begins with a space, after a special token too, gets one more in llama.cpp."
    after = "text after a special token gets a space in front in llama.cpp."
    return True, (begun,) if scheme == "always" else (begun, after)


def _steps(stage: Mapping[str, Any] | None, name: str) -> list[Mapping[str, Any]]:
    """Return the list of steps of a normaliser or pre-tokenizer; [] if there is none."""
    return list((stage or {}).get(name, [stage] if stage else []))


def _added(tokenizer: Tokenizer) -> tuple[bool, bool]:
    """Return (True if bos is put before a text, True if eos after it). Raises SourceError."""
    plain = tokenizer("a", add_special_tokens=False).input_ids
    whole = tokenizer("a").input_ids
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    for begins in (False, True):
        for ends in (False, True):
            if whole == [bos] * begins + plain + [eos] * ends:
                return begins, ends
    raise SourceError("the tokenizer adds other tokens to a text than bos and eos.")
