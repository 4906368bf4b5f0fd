"""Terminal view of a curriculum run: mixes, what was compared, and where the model is. No torch."""

from __future__ import annotations

import json
from typing import Any

from cli.options import say
from cli.phases.training_view import TrainingView


class CurriculumView(TrainingView):
    """Texts of a curriculum run."""

    def unit(self, state: Any, row: Any) -> str | None:
        """Return a line for a segment, a measurement or a mix; None for other events."""
        if row.type == "mix_chosen":
            return f"mix of {self.kind.gist(row.type, json.loads(row.data), {})}"
        return super().unit(state, row)

    def announce(self, state: Any, data: dict[str, Any], name: str) -> None:
        """Print the arms with their leads, and the folder."""
        from phases.curriculum import report

        for line in report.lines(report.report(state)):
            say(line)
        if "folder" in data:
            say(f"model: {data['folder']}/model; items: {data['folder']}/items")
        say(f"as a model: {name}")
