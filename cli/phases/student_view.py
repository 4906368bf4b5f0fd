"""Terminal view of a student run: what was compared, and where the student is. No torch."""

from __future__ import annotations

from typing import Any

from cli.options import say
from cli.phases.training_view import TrainingView


class StudentView(TrainingView):
    """Texts of a student run."""

    def announce(self, state: Any, data: dict[str, Any], name: str) -> None:
        """Print the arms, the sizes and the folder."""
        from phases.student import report

        for line in report.lines(report.report(state)):
            say(line)
        if "folder" in data:
            say(f"model: {data['folder']}/model; items: {data['folder']}/items")
        say(f"as a model: {name}")
        say(f"next: forge compress {state.submitted.model.path} --student {name} --out DIR")
