"""Tiny models that several modules measure."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from tests import models


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tied base and two sources; nobody writes there."""
    place = tmp_path_factory.mktemp("family")
    models.family(place, count=2)
    return place


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """The byte-level BPE of the tiny models."""
    return models.tokenizer()
