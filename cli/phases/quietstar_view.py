"""Terminal view of a quietstar run: what was compared, and where the models are. No torch."""

from __future__ import annotations

from typing import Any

from cli.options import say
from cli.phases.training_view import TrainingView


class QuietstarView(TrainingView):
    """Texts of a quietstar run."""

    def announce(self, state: Any, data: dict[str, Any], name: str) -> None:
        """Print the arms, what the gate has decided, and the folders."""
        from phases.quietstar import report

        for line in report.lines(report.report(state)):
            say(line)
        if "folder" in data:
            say(f"model: {data['folder']}/model; items: {data['folder']}/items")
            say(f"with thoughts: {data['folder']}/thoughts")
        say(f"as a model: {name}")

    def measured(self, name: str, data: dict[str, Any]) -> str:
        """Return a line for a measurement of the model that is called `name`."""
        hard = [v for part, v in data["values"].items() if part.startswith("hard/")]
        how = data["measure"].partition("-hard-tokens")[0]
        said = f"{name} ({how})" if how in ("thought", "shuffled", "pause") else name
        mean = sum(hard) / len(hard)
        return f"measured {said} on the slice {data['on']}: {mean:.4f} nats a hard token"
