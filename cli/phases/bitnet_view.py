"""Terminal view of a bitnet run: what was compared, and where the models are. No torch."""

from __future__ import annotations

import json
from typing import Any

from cli.kind_views import View
from cli.options import say


class BitnetView(View):
    """Texts of a bitnet run."""

    def announce(self, state: Any, data: dict[str, Any]) -> None:
        """Print the arms, the sizes and the folders."""
        from phases.bitnet import report

        for line in report.lines(report.report(state)):
            say(line)
        if "folder" in data:
            folders = [f"{data['folder']}/{role}" for role in self.kind.roles(None)]
            if data.get("packed_folder"):
                folders.append(data["packed_folder"])
            say(f"models: {', '.join(folders)}; items: {data['folder']}/items")
        say(f"as models: {', '.join(f'{state.run}:{role}' for role in self.kind.roles(None))}")

    def unit(self, state: Any, row: Any) -> str | None:
        """Return a line for a segment of a training, or for a measurement; None for other events."""
        data = json.loads(row.data)
        name = self.kind.names(state).get(data.get("recipe_id", ""), "")
        if row.type == "observed":
            return f"measured {name} on the slice {data['on']}"
        if row.type != "advanced" or not data["curve"]:
            return None
        last, speed = data["curve"][-1], data["tokens"] / max(data["seconds"], 1e-9)
        return (
            f"{name.partition(' ')[0]:14s} step {data['step']}  loss {last['loss']:.3f}  gradient "
            f"{last['norm']:.2f}  rate {last['rate']:.1e}  {speed:,.0f} tokens/s"
        )
