"""Parts of a folder of text: documents by domain, items, token streams, a given model's tokenizer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from evaluation.data.builtin import corpus as builtin_corpus
from evaluation.data.builtin import help_prose
from evaluation.data.items import Item
from evaluation.data.slices import Document, Slice
from evaluation.loading import load_tokenizer
from evaluation.training_text import own_texts
from evaluation.training_text.kept_text import ITEMS, STREAMS
from runs.errors import SourceError
from weights.folders import companions

Split = Mapping[Slice, Sequence[Document]]


def builtin(
    corpus: Mapping[str, Split], seed: int, characters: int, domains: Iterable[str]
) -> dict[str, Sequence[Document]]:
    """Return domain → training documents of built-in text, of `corpus` and of all other `domains`.

    Of prose that is not measured, all documents are trained on.
    """
    texts: dict[str, Sequence[Document]] = {d: split["train"] for d, split in corpus.items()}
    rest = [domain for domain in domains if domain not in texts]
    if "prose" in rest:
        texts["prose"] = list(help_prose.documents(characters))
        rest.remove("prose")
    splits = own_texts.corpus(seed, characters, rest)
    return texts | {domain: split["train"] for domain, split in splits.items()}


def rows(documents: Mapping[str, Split], items: Iterable[Item]) -> Iterator[dict[str, Any]]:
    """Yield items of the user's text, up to as many characters as of built-in text, and the others."""
    for domain, split in documents.items():
        for slice_, texts in split.items():
            for document in builtin_corpus.held_out(texts, builtin_corpus.HELD_OUT[slice_]):
                yield {
                    "id": document.name,
                    "domain": domain,
                    "slice": slice_,
                    "text": document.text,
                }
    for item in items:
        yield item.model_dump(mode="json", exclude_defaults=True)


def write(
    folder: Path,
    tokenizer: Any,
    training: Mapping[str, Sequence[Document]],
    items: Iterable[Mapping[str, Any]],
) -> None:
    """Write the streams of training documents by domain, and the items."""
    from safetensors.numpy import save_file

    streams = {domain: stream(documents, tokenizer) for domain, documents in training.items()}
    save_file(dict(sorted(streams.items())), folder / STREAMS)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in items)
    (folder / ITEMS).write_text(lines, "utf-8")


def given_tokenizer(donor: Path) -> Any:
    """Return the tokenizer of a model folder. Raises SourceError if it cannot be trained with."""
    from weights.folders.checkpoint import HEADS, open_checkpoint

    tokenizer, checkpoint = load_tokenizer(str(donor)), open_checkpoint(donor)
    if not tokenizer.is_fast:
        raise SourceError(
            f"the tokenizer of {donor} gives no offsets of its tokens, so bits per byte cannot be "
            "measured. Save it as a fast tokenizer (tokenizer.json)."
        )
    if tokenizer.eos_token_id is None:
        raise SourceError(f"the tokenizer of {donor} has no end token to put between documents.")
    rows = [shape[0] for name, (_, shape) in checkpoint.shapes.items() if name in HEADS]
    if rows and len(tokenizer) > rows[0]:
        raise SourceError(
            f"the tokenizer of {donor} has {len(tokenizer):,} tokens, the embedding {rows[0]:,} rows: "
            "they do not fit together."
        )
    return tokenizer


def write_given(folder: Path, donor: Path, sizes: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Write a given model's companions; its config says float32 unless `sizes` has another dtype.

    `sizes` are settings that the models to be trained have otherwise.
    """
    companions.write(donor, folder)
    settings = companions.cleaned(json.loads((donor / companions.CONFIG).read_bytes()))
    settings.pop("torch_dtype", None)
    text = companions.as_text({**settings, "dtype": "float32", **sizes})
    (folder / companions.CONFIG).write_text(text, "utf-8")


def stream(documents: Sequence[Document], tokenizer: Any) -> np.ndarray:
    """Return the documents' token ids in one row, each document followed by the end token."""
    encoded = tokenizer([d.text for d in documents], add_special_tokens=False, verbose=False)
    ids: list[int] = []
    for row in encoded["input_ids"]:
        ids += [*row, tokenizer.eos_token_id]
    return np.asarray(ids, np.int32)
