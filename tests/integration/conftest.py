"""Tiny models that several modules measure."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evomerge.merging.builder import Weights
from agent_forge.weights.folders import checkpoint
from testing.models import toy_models


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tied base and two sources; nobody writes there."""
    place = tmp_path_factory.mktemp("family")
    toy_models.family(place, count=2)
    return place


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """The byte-level BPE of the tiny models."""
    return toy_models.tokenizer()


@pytest.fixture(scope="session")
def weights(folder: Path) -> Weights:
    """The base's tensors; nobody writes to them."""
    return checkpoint.open_checkpoint(folder / "base").tensors()


@pytest.fixture
def resident(folder: Path, weights: Weights) -> ResidentModel:
    """The base, loaded."""
    model = ResidentModel(folder / "base", "cpu", tied=True)
    model.load(weights)
    return model
