"""The text of a bitnet run, cut by the given model's tokenizer: as pinned, or made by the settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from evaluation.data import training_texts
from evaluation.data.builtin import corpus as builtin_corpus
from evaluation.training_text import kept_text, parts
from evaluation.training_text.kept_text import Text
from phases.bitnet.config import MIX
from phases.bitnet.events import Started, Submitted
from weights.storage.inputs import Supply


def make(supply: Supply, submitted: Submitted, donor: Path) -> Text:
    """Make the text by the settings, keep it under its address, share it; return it.

    `donor` is the folder of the given model. Raises DataError, SourceError, UnavailableError.
    """
    return kept_text.make(supply, lambda folder: _fill(folder, submitted, donor))


def pinned(
    supply: Supply, started: Started, submitted: Submitted, donor: Callable[[], Path]
) -> Text:
    """Return the text that a run has pinned: this machine's, the store's, or made again.

    Raises DataError if the text that is made here is another.
    """
    own = bool(submitted.data)
    return kept_text.pinned(supply, started, own, lambda folder: _fill(folder, submitted, donor()))


def _fill(folder: Path, submitted: Submitted, donor: Path) -> Sequence[str]:
    """Write streams, items, tokenizer and configuration; return notes on how files were read."""
    config, notes = submitted.config, ()
    if submitted.data:
        own = training_texts.read(submitted.data)
        notes, rows = own.notes, parts.rows(own.documents, own.others)
        training = {domain: split["train"] for domain, split in own.documents.items()}
        if config.mix:
            training = {domain: training[domain] for domain in config.mix}
    else:
        documents = builtin_corpus.corpus(config.seed, config.characters, config.domains)
        rows = builtin_corpus.items(documents, config.seed)
        wanted = config.mix or MIX
        training = parts.builtin(documents, config.seed, config.characters, wanted)
        training = {domain: training[domain] for domain in wanted}
    parts.write_given(folder, donor)
    parts.write(folder, parts.given_tokenizer(donor), training, rows)
    return notes
