"""Terminal view of a cognate run: its trainings, what was measured, where the models are. No torch."""

from __future__ import annotations

import json
from typing import Any

from cli.kind_views import View
from cli.options import say


class CognateView(View):
    """Texts of a cognate run."""

    def announce(self, state: Any, data: dict[str, Any]) -> None:
        """Print the figures and the folders."""
        self._figures(state)
        config = state.submitted.config
        if "folder" in data:
            others = ", ".join(config.domains)
            say(f"models: {data['folder']}/base, {others}; items: {data['folder']}/items")
        say(f"as sources: {', '.join(f'{state.run}:{d}' for d in config.domains)}")

    def _figures(self, state: Any) -> None:
        from phases.cognate import report

        for line in report.lines(report.report(state)):
            say(line)

    def unit(self, state: Any, row: Any) -> str | None:
        """Return a line for a segment of a training, or for a measurement; None for other events."""
        names = self.kind.names(state)
        data = json.loads(row.data)
        name = names.get(data.get("recipe_id", ""), "")
        if row.type == "observed":
            return f"measured {name}: {data['measure'].partition('@')[0]}"
        if row.type != "advanced" or not data["curve"]:
            return None
        done, of = self.kind.progress(state)
        role, speed = name.partition(" ")[0], data["tokens"] / max(data["seconds"], 1e-9)
        last, steps = data["curve"][-1], data["step"] - data["begin"]
        left = (of - done) * data["seconds"] / steps if of else 0.0
        return (
            f"{role:5s} step {data['step']}  loss {last['loss']:.3f}  gradient {last['norm']:.2f}  "
            f"rate {last['rate']:.1e}  {speed:,.0f} tokens/s  about {left / 60:.0f} min left in all"
        )
