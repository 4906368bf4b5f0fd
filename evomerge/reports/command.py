"""The command that asks for a run again: its models, its data, and the settings that differ. Pure."""

from __future__ import annotations

import json
import shlex

from evomerge.config import EvoMergeConfig
from evomerge.run.state import RunState
from runs.event_types import ModelReference
from runs.system.plain_text import visible


def command(state: RunState) -> str:
    """Return `forge evo` with options that ask for the run's models, data and settings."""
    assert state.submitted
    sources = ",".join(map(_place, state.submitted.sources))
    words = ["forge", "evo", "--base-models", sources]
    if state.submitted.base is not None:
        words += ["--base-model", _place(state.submitted.base)]
    for path in state.submitted.data:
        words += ["--data", path]
    usual = EvoMergeConfig().flat()
    for name, value in state.submitted.config.flat().items():
        if value != usual.get(name):
            text = value if isinstance(value, str) else json.dumps(value)
            words += ["--set", f"{name}={text}"]
    return visible(shlex.join(words))


def _place(model: ModelReference) -> str:
    """Return what names a model: its Hub id with the revision, or its folder."""
    if model.hub_id is None:
        return model.path
    return f"{model.hub_id}@{model.revision}" if model.revision else model.hub_id
