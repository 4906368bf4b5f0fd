"""Preparation of a cognate run's text: streams of tokens, items to measure on, tokenizer and config.

Documents are built-in or the user's, the tokenizer is trained on them or the given base's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.data import training_texts
from evaluation.data.builtin import corpus as builtin_corpus
from evaluation.data.builtin import help_prose
from evaluation.data.items import Item
from evaluation.data.slices import Document, Slice
from evaluation.loading import load_tokenizer
from phases.cognate.config import CognateConfig
from phases.cognate.errors import PresetError
from phases.cognate.events import Submitted
from phases.cognate.tasks.model import configuration, train_tokenizer
from runs.errors import SourceError
from weights.folders import companions

STREAMS, ITEMS = "streams.safetensors", "items.jsonl"
#: Documents from which the tokenizer learns, per domain: the first of the built-in text; of other
#: text as many more, at equal distances.
TOKENIZER_DOCUMENTS, OWN_TOKENIZER_DOCUMENTS = 300, 3000

Split = Mapping[Slice, Sequence[Document]]


def fill(folder: Path, submitted: Submitted, donor: Path | None) -> Sequence[str]:
    """Write streams, items, tokenizer and configuration; return notes on how files were read.

    `donor` is the folder of the given base. Raises PresetError, DataError, SourceError.
    """
    from safetensors.numpy import save_file

    config, notes = submitted.config, ()
    if submitted.data:
        own = training_texts.read(submitted.data)
        notes = own.notes
        documents, rows = own.documents, _rows(own.documents, own.others)
        learning = {d: _spread(split["train"]) for d, split in own.documents.items()}
        training = {domain: split["train"] for domain, split in own.documents.items()}
    else:
        documents = builtin_corpus.corpus(config.seed, config.size.characters, config.domains)
        rows = builtin_corpus.items(documents, config.seed)
        learning = {d: split["train"][:TOKENIZER_DOCUMENTS] for d, split in documents.items()}
        training = _builtin(config, documents)
    if donor is None:
        texts = (document.text for found in learning.values() for document in found)
        tokenizer = train_tokenizer(texts, config.size.vocabulary)
        _write_own(folder, config, tokenizer)
    else:
        tokenizer = given_tokenizer(donor)
        _write_given(folder, donor)
    _check_read(folder, tokenizer, [split["test"][0].text for split in documents.values()])
    streams = {domain: _stream(found, tokenizer) for domain, found in training.items()}
    save_file(dict(sorted(streams.items())), folder / STREAMS)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / ITEMS).write_text(lines, "utf-8")
    return notes


def _builtin(config: CognateConfig, corpus: Mapping[str, Split]) -> dict[str, Sequence[Document]]:
    """Return domain → training documents: the training slice; of unmeasured prose, all of them."""
    characters, wanted = config.size.characters, config.mix or config.size.base_mix
    texts: dict[str, Sequence[Document]] = {d: split["train"] for d, split in corpus.items()}
    rest = [domain for domain in wanted if domain not in texts]
    if "prose" in rest:
        texts["prose"] = list(help_prose.documents(characters))
        rest.remove("prose")
    others = builtin_corpus.corpus(config.seed, characters, rest)
    return texts | {domain: split["train"] for domain, split in others.items()}


def _rows(documents: Mapping[str, Split], others: Iterable[Item]) -> Iterator[dict[str, Any]]:
    """Yield items of the user's text, up to as many characters as of built-in text, and the others."""
    for domain, split in documents.items():
        for slice_, found in split.items():
            for one in builtin_corpus.held_out(found, builtin_corpus.HELD_OUT[slice_]):
                yield {"id": one.name, "domain": domain, "slice": slice_, "text": one.text}
    for item in others:
        yield item.model_dump(mode="json", exclude_defaults=True)


def _spread(documents: Sequence[Document]) -> Sequence[Document]:
    """Return documents at equal distances, at most twice `OWN_TOKENIZER_DOCUMENTS`."""
    return documents[:: max(1, len(documents) // OWN_TOKENIZER_DOCUMENTS)]


# ---- tokenizer and configuration -----------------------------------------------------------------


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


def _write_own(folder: Path, config: CognateConfig, tokenizer: Any) -> None:
    """Write config, generation settings and the trained tokenizer."""
    from transformers import GenerationConfig

    settings = configuration(config.size)
    settings.save_pretrained(folder)
    GenerationConfig.from_model_config(settings).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _write_given(folder: Path, donor: Path) -> None:
    """Write the given base's companions; its config says that the weights are float32."""
    companions.write(donor, folder)
    settings = companions.cleaned(json.loads((donor / companions.CONFIG).read_bytes()))
    settings.pop("torch_dtype", None)
    text = companions.as_text({**settings, "dtype": "float32"})
    (folder / companions.CONFIG).write_text(text, "utf-8")


def _check_read(folder: Path, tokenizer: Any, texts: Sequence[str]) -> None:
    """Raise PresetError if the tokenizer of the written folder gives other tokens."""
    read = load_tokenizer(str(folder))
    for text in texts:
        ids = [one.encode(text, add_special_tokens=False) for one in (read, tokenizer)]
        if ids[0] != ids[1]:
            raise PresetError(
                "the tokenizer that is read again is not the one that is trained with"
            )


def _stream(documents: Sequence[Document], tokenizer: Any) -> np.ndarray:
    """Return the documents' token ids in one row, each document followed by the end token."""
    encoded = tokenizer([d.text for d in documents], add_special_tokens=False, verbose=False)
    ids: list[int] = []
    for row in encoded["input_ids"]:
        ids += [*row, tokenizer.eos_token_id]
    return np.asarray(ids, np.int32)
