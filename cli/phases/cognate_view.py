"""Terminal view of a cognate run: what was measured. No torch."""

from __future__ import annotations

from typing import Any

from cli.phases.training_view import TrainingView


class CognateView(TrainingView):
    """Texts of a cognate run, whose models have several measures each."""

    def measured(self, name: str, data: dict[str, Any]) -> str:
        """Return a line for a measurement of the model that is called `name`."""
        return f"measured {name}: {data['measure'].partition('@')[0]}"
