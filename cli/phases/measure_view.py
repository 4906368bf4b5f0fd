"""Terminal view of a measurement: its figures. No torch."""

from __future__ import annotations

from typing import Any

from cli.kind_views import View
from cli.options import say
from runs.kinds.outcome import figure_text


class MeasureView(View):
    """Texts of a measurement."""

    def announce(self, state: Any, data: dict[str, Any], name: str) -> None:
        """Print the figures, each with its interval and the number of documents."""
        super().announce(state, data, name)
        for name, figure in state.completed.figures.items():
            count = "" if figure.n is None else f"  on {figure.n} documents"
            say(f"{figure_text(self.kind, name, figure)}{count}")
