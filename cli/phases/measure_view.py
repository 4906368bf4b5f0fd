"""Terminal view of a measurement: its figures. No torch."""

from __future__ import annotations

from typing import Any

from cli.kind_views import View
from cli.options import say


class MeasureView(View):
    """Texts of a measurement."""

    def announce(self, state: Any, data: dict[str, Any], name: str) -> None:
        """Print the figures, each with its interval and the number of documents."""
        super().announce(state, data, name)
        for name, one in state.completed.figures.items():
            value = f"{one.value:,.0f}" if one.value >= 1000 else f"{one.value:.4f}"
            interval = "" if one.low is None else f" [{one.low:.4f}, {one.high:.4f}]"
            count = "" if one.n is None else f"  on {one.n} documents"
            say(f"{name:14s} {value}{interval}{count}")
