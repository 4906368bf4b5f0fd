"""Terminal view of a bitnet run: what was compared, and where the models are. No torch."""

from __future__ import annotations

from typing import Any

from cli.options import say
from cli.phases.training_view import TrainingView


class BitnetView(TrainingView):
    """Texts of a bitnet run."""

    def announce(self, state: Any, data: dict[str, Any], name: str) -> None:
        """Print the arms, the sizes and the folders."""
        from phases.bitnet import report

        for line in report.lines(report.report(state)):
            say(line)
        if "folder" in data:
            folders = [f"{data['folder']}/{role}" for role in self.kind.roles(None)]
            if data.get("packed_folder"):
                folders.append(data["packed_folder"])
            say(f"models: {', '.join(folders)}; items: {data['folder']}/items")
        say(f"as models: {', '.join(f'{name}:{role}' for role in self.kind.roles(None))}")
