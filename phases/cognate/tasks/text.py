"""The text of a cognate run, as pinned or made by its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from evaluation.training_text import kept_text
from evaluation.training_text.kept_text import Text
from phases.cognate.events import Started, Submitted
from phases.cognate.tasks import prepare
from weights.storage.inputs import Supply


def pinned(
    supply: Supply,
    started: Started,
    submitted: Submitted,
    donor: Callable[[], Path | None],
    changes: Mapping[str, Any],
) -> Text:
    """Return the text that a run has pinned: this machine's, the store's, or made again.

    Raises DataError if the text that is made here is another.
    """
    return kept_text.pinned(
        supply,
        started,
        bool(submitted.data),
        lambda folder: prepare.fill(folder, submitted, donor(), changes),
    )


def make(
    supply: Supply,
    submitted: Submitted,
    donor: Path | None = None,
    changes: Mapping[str, Any] = MappingProxyType({}),
) -> Text:
    """Make the text by the settings, keep it under its address, share it; return it.

    `donor` is the folder of the base that was given, `changes` as of `prepare.fill`.
    """
    return kept_text.make(supply, lambda folder: prepare.fill(folder, submitted, donor, changes))
