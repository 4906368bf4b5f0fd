"""Curve of one run as the run list has it, from the run's own rows. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from agent_forge.events import Envelope, Registry
from agent_forge.runs.panels.head import Entry

if TYPE_CHECKING:
    from agent_forge.runs.kinds.view import View

#: What a kind notes of a run in its row of the run list (`View.row`), before the first event.
BLANK: Entry = {
    "done": None,
    "result": None,
    "metric": "",
    "value": None,
    "unit": "",
    "better": None,
    "measured_on": "",
    "curve": "[]",
    "stages": None,
    "quality": None,
    "bytes": None,
}


class Curve:
    """The values that a kind notes in the run list, one for each unit that is done."""

    def __init__(self, kind: View[Any], registry: Registry) -> None:
        self._kind, self._registry = kind, registry
        self._entry: Entry = dict(BLANK)

    def take(self, rows: Iterable[Envelope]) -> None:
        """Add the values of further rows, which are all of types that the registry knows."""
        for _, event in self._registry.load_each(rows):
            self._kind.row(self._entry, event)

    @property
    def values(self) -> list[float | None]:
        """The values so far, one for each unit that is done; None for a unit without a value."""
        return json.loads(self._entry["curve"])
