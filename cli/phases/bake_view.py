"""Terminal view of a bake: the curve over strength, and where the model is. No torch."""

from __future__ import annotations

import json
from typing import Any

from cli.options import say
from cli.phases.training_view import TrainingView


class BakeView(TrainingView):
    """Texts of a bake."""

    def unit(self, state: Any, row: Any) -> str | None:
        """Return a line for replies, a segment or a measurement; None for other events."""
        if row.type == "sampled":
            return self.kind.gist(row.type, json.loads(row.data), self.kind.names(state))
        return super().unit(state, row)

    def announce(self, state: Any, data: dict[str, Any], name: str) -> None:
        """Print the strengths, the figures and the folder."""
        from phases.bake import report

        for line in report.lines(report.report(state)):
            say(line)
        if "folder" in data:
            say(f"model: {data['folder']}/model; items: {data['folder']}/items")
        say(f"as a model: {name}")
