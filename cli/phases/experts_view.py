"""Terminal view of an experts run: generations, what was compared, and where the model is. No torch."""

from __future__ import annotations

import json
from typing import Any

from cli.options import say
from cli.phases.training_view import TrainingView

#: Events of the run that have a line of their own.
OWN = ("generation_ended", "fitted", "routed")


class ExpertsView(TrainingView):
    """Texts of an experts run."""

    def unit(self, state: Any, row: Any) -> str | None:
        """Return a line for a segment, a measurement or a generation; None for other events."""
        if row.type in OWN:
            return f"{row.type.replace('_', ' ')}: {self.kind.gist(row.type, json.loads(row.data), {})}"
        return super().unit(state, row)

    def announce(self, state: Any, data: dict[str, Any], name: str) -> None:
        """Print the arms with their gains, and the folder."""
        from phases.experts import report

        for line in report.lines(report.report(state)):
            say(line)
        if "folder" in data:
            folder = data["folder"]
            say(f"model: {folder}/model; experts: {folder}/experts; items: {folder}/items")
        say(f"as a model: {name}")
