"""Terminal view of a cognate run: its trainings, what was measured, where the models are. No torch."""

from __future__ import annotations

from typing import Any

from cli.options import say
from cli.phases.training_view import TrainingView


class CognateView(TrainingView):
    """Texts of a cognate run."""

    def announce(self, state: Any, data: dict[str, Any], name: str) -> None:
        """Print the figures and the folders."""
        self._figures(state)
        config = state.submitted.config
        if "folder" in data:
            others = ", ".join(config.domains)
            say(f"models: {data['folder']}/base, {others}; items: {data['folder']}/items")
        say(f"as sources: {', '.join(f'{name}:{d}' for d in config.domains)}")

    def _figures(self, state: Any) -> None:
        from phases.cognate import report

        for line in report.lines(report.report(state)):
            say(line)

    def measured(self, name: str, data: dict[str, Any]) -> str:
        """Return a line for a measurement of the model that is called `name`."""
        return f"measured {name}: {data['measure'].partition('@')[0]}"
