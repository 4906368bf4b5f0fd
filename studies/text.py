"""The text of a training from a given model, cut by its tokenizer: as pinned, or made by settings.

`submitted` has `config` (`TextConfig`) and `data`. `sizes` are settings of config.json in which the
models of the run differ from the given one; `added` are domains of built-in text beside the user's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluation.data import training_texts
from evaluation.data.builtin import corpus as builtin_corpus
from evaluation.training_text import kept_text, parts
from evaluation.training_text.kept_text import Text
from studies.settings import MIX
from weights.storage.inputs import Supply


def make(
    supply: Supply,
    submitted: Any,
    donor: Path,
    sizes: Mapping[str, Any],
    added: Sequence[str] = (),
) -> Text:
    """Make the text by the settings, keep it under its address, share it; return it.

    `donor` is the folder of the given model. Raises DataError, SourceError, UnavailableError.
    """
    return kept_text.make(supply, lambda folder: fill(folder, submitted, donor, sizes, added))


def pinned(
    supply: Supply,
    started: kept_text.Pins,
    submitted: Any,
    donor: Callable[[], Path],
    sizes: Callable[[], Mapping[str, Any]],
    added: Sequence[str] = (),
) -> Text:
    """Return the text that a run has pinned: this machine's, the store's, or made again.

    Raises DataError if the text that is made here is another.
    """
    has_data = bool(submitted.data)
    filled = lambda folder: fill(folder, submitted, donor(), sizes(), added)  # noqa: E731
    return kept_text.pinned(supply, started, has_data, filled)


def fill(
    folder: Path,
    submitted: Any,
    donor: Path,
    sizes: Mapping[str, Any],
    added: Sequence[str] = (),
) -> Sequence[str]:
    """Write streams, items, tokenizer and configuration; return notes on how files were read."""
    config, notes = submitted.config, ()
    if submitted.data:
        texts = training_texts.read(submitted.data)
        documents = builtin_corpus.corpus(config.seed, config.characters, added) if added else {}
        notes, rows = texts.notes, [*parts.rows(texts.documents, texts.others)]
        rows += builtin_corpus.items(documents, config.seed) if added else []
        every = {**texts.documents, **documents}
        training = {domain: split["train"] for domain, split in every.items()}
        if config.mix:
            training = {domain: training[domain] for domain in config.mix}
    else:
        documents = builtin_corpus.corpus(config.seed, config.characters, config.domains)
        rows = builtin_corpus.items(documents, config.seed)
        mix = config.mix or MIX
        training = parts.builtin(documents, config.seed, config.characters, mix)
        training = {domain: training[domain] for domain in mix}
    parts.write_given(folder, donor, sizes)
    parts.write(folder, parts.given_tokenizer(donor), training, rows)
    return notes
