"""Notes and tags of models: events of the registry; the list is filtered by them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_forge.events.databases.sqlite import open_store
from agent_forge.events.projection import rebuild
from agent_forge.runs.errors import ConfigError, NotFoundError
from agent_forge.runs.lists.model_registry import RegisteredModels, find, listed
from agent_forge.worker.commands import model_registry
from agent_forge.worker.commands.model_registry import ModelFacts


def test_models_are_found_by_their_words(tmp_path: Path) -> None:
    store = open_store(tmp_path / "log.db")
    ids = [
        model_registry.record(
            store, ModelFacts(f"/models/{digit}", digit * 64, 8, 2), None, "base", None, ()
        )
        for digit in "ab"
    ]
    model_registry.describe(store, ids[0], note="with care", tags=("paper", "old"))
    model_registry.describe(store, "a", tags=("paper",))  # by its name; the note stays
    entry = find(store, ids[0])
    assert (entry["note"], entry["tags"]) == ("with care", ["paper"])
    for chosen in ({"tag": "paper"}, {"query": "care"}):
        assert [row["id"] for row in listed(store, **chosen)[0]] == ids[:1]
    assert listed(store, tag="old") == ([], 0)
    rebuild(store, RegisteredModels())
    assert find(store, ids[0]) == entry
    model_registry.describe(store, ids[0], note="", tags=())
    entry = find(store, ids[0])
    assert (entry["note"], entry["tags"]) == ("", [])
    with pytest.raises(ConfigError, match="no blanks"):
        model_registry.describe(store, ids[0], tags=("two words",))
    with pytest.raises(NotFoundError):
        model_registry.describe(store, "nope", note="x")
    store.close()
