"""The schemas that the dashboard's types are generated from are those of the API, and exact."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from agent_forge.api import openapi_document
from agent_forge.api.app import create
from agent_forge.api.options import Options
from agent_forge.api.schemas import bodies as schemas
from agent_forge.runs import kinds
from agent_forge.runs.home import Home
from agent_forge.worker.commands import accounts
from tests.integration.api.conftest import Served

DASHBOARD = Path(__file__).resolve().parents[3] / "dashboard"
COMMITTED = DASHBOARD / "openapi" / "openapi.json"
TYPES = DASHBOARD / "src" / "api" / "openapi.ts"


def test_the_committed_schemas_are_those_of_the_api() -> None:
    """Pages would read fields that no answer has. `npm run types` in dashboard/ writes both."""
    assert json.loads(COMMITTED.read_text("utf-8")) == openapi_document.document()
    assert COMMITTED.read_text("utf-8") == openapi_document.text()


def test_the_types_were_generated_from_the_committed_schemas() -> None:
    """The generated file names the digest of its source, so that this needs no Node."""
    digest = hashlib.sha256(COMMITTED.read_bytes()).hexdigest()
    assert digest in TYPES.read_text("utf-8").partition("\n")[0]


def test_a_changed_answer_changes_the_document() -> None:
    """Prose does not count; a property that is called `title` does."""
    plain = {"properties": {"title": {"type": "string"}}, "type": "object"}
    told = {**plain, "title": "Problem", "description": "Words.", "examples": [1]}
    assert openapi_document.shape(told) == plain
    other = {"properties": {"title": {"type": "integer", "title": "Title"}}, "type": "object"}
    assert openapi_document.shape(other)["properties"] == {"title": {"type": "integer"}}
    assert openapi_document.shape({"anyOf": [{"title": "A", "type": "null"}]}) == {
        "anyOf": [{"type": "null"}]
    }


def test_every_answer_of_the_api_has_exactly_its_fields(served: Served) -> None:
    """Types generated from an answer that may have further fields are no check of what pages read."""
    whole = served.get("/openapi.json", None).json()
    known = whole["components"]["schemas"]
    seen: set[str] = set()

    def look(part: Any) -> None:
        if isinstance(part, list):
            for inner in part:
                look(inner)
        elif isinstance(part, dict):
            name = str(part.get("$ref", "")).rpartition("/")[2]
            if name and name not in seen:
                seen.add(name)
                look(known[name])
            for inner in part.values():
                look(inner)

    for path in whole["paths"].values():
        look([operation["responses"] for operation in path.values()])
    assert len(seen) > 50
    assert {name for name in seen if known[name].get("additionalProperties") is not False} == set()
    with pytest.raises(ValidationError):
        schemas.Made.model_validate({"run": "r", "more": 1})


def test_phases_say_what_they_always_said_before_there_is_a_run(tmp_path: Path) -> None:
    """No field that has no value yet is sent as null."""
    home = Home(tmp_path)
    store = home.open_store()
    accounts.add(store, "ada", "viewer")
    _, token = accounts.issue(store, "ada")
    store.close()
    head = {"Authorization": f"Bearer {token}"}
    with TestClient(create(home, Options((tmp_path,))), "http://127.0.0.1") as client:
        told = client.get("/phases/status", headers=head).json()
    assert told == {
        "phase": "evomerge",
        "task_id": None,
        "status": None,
        "progress": 0.0,
        "percent": 0.0,
        "message": "no run yet",
        "phases": dict.fromkeys(kinds.KINDS),
    }
