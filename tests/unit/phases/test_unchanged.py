"""Every kind of run whose result may be the model that it was given says so in its head."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_forge.events import Envelope
from agent_forge.runs import kinds
from agent_forge.runs.kinds.state import fold_into
from agent_forge.runs.panels import tables
from agent_forge.runs.panels.head import Panels
from agent_forge.studies.events import MODEL
from agent_forge.studies.training_plan import as_float32

GOLDEN = Path(__file__).parents[2] / "golden"
#: Golden logs of kinds whose result is one model.
LOGS = ("bake-3", "baking-3", "curriculum-4", "experts-4", "student-2", "quietstar-1")


def golden(name: str) -> Any:
    lines = (GOLDEN / f"{name}.jsonl").read_text("utf-8").splitlines()
    rows = [Envelope(**json.loads(line)) for line in lines]
    return fold_into(kinds.of(rows[0].stream.partition("/")[0]).state(), rows)


def said(state: Any) -> list[Any]:
    """What the head says of the result beside its value."""
    head = kinds.of(state.kind).view.head(state)
    text = tables.markdown(Panels(head=head, panels=()))
    values = [fact.value for fact in head.facts if fact.name == "result"]
    assert all(f"- result: {value}" in text for value in values)
    return values


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("by", ["recipe", "digest"])
def test_a_result_that_is_the_given_model_is_said_to_be_it(name: str, by: str) -> None:
    """Its copy in float32 is it too: a gate that is not met hands that copy on."""
    state = golden(name)
    given = state.started.model
    told = state.completed.models[MODEL]
    one = {"recipe": {"recipe_id": as_float32(state.started).id}, "digest": {"digest": given.digest}}
    same = told.model_copy(update=one[by])
    state.completed = state.completed.model_copy(update={"models": {MODEL: same}})
    assert said(state) == [f"{given.name}, which the run was given, unchanged"]


def test_golden_runs_say_it_if_it_is_so() -> None:
    """The thoughts of `quietstar-1` did not pass their gate; the other runs made their results."""
    told = {name: said(golden(name)) for name in LOGS}
    assert told.pop("quietstar-1") == ["base, which the run was given, unchanged"]
    assert not any("unchanged" in value for values in told.values() for value in values)
