"""Fixtures of the artifact store's tests."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from agent_forge.weights.storage.encryption import Keys
from testing.services.artifact_stores import OLD


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty artifact store, of each kind that a machine has by itself."""
    if request.param == "file":
        return f"file://{tmp_path}/vault"
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture(params=["plain", "sealed"])
def keys(request: pytest.FixtureRequest) -> Keys | None:
    """Return the keys of a store that encrypts, and None for one that does not."""
    return OLD if request.param == "sealed" else None
