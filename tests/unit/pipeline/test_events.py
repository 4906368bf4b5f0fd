"""Events of pipelines of earlier versions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_forge.events import Envelope, canonical_json
from agent_forge.pipeline.events import REGISTRY, Submitted

LOG = Path(__file__).parents[2] / "golden" / "pipeline-2.jsonl"


@pytest.mark.parametrize(("settings", "lora"), [({}, True), ({"lora": False}, False)])
def test_a_phase_that_left_a_setting_out_was_asked_for_with_the_default_of_then(
    settings: dict[str, bool], lora: bool
) -> None:
    """An honest old pipeline was `WRONG`: its phase had trained adapters, and asked for none."""
    row = Envelope(**json.loads(LOG.read_text("utf-8").splitlines()[0]))
    data = json.loads(row.data)
    data["config"]["phases"][0] |= {"kind": "experts", "settings": settings}
    event = REGISTRY.load(row._replace(data=canonical_json(data), schema=2))
    assert isinstance(event, Submitted)
    assert event.config.phases[0].settings["lora"] is lora
