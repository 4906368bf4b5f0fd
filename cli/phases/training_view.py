"""Terminal view of a run that trains: its segments and measurements. No torch."""

from __future__ import annotations

import json
from typing import Any

from cli.kind_views import View
from cli.options import say
from studies.study import LISTED


class TrainingView(View):
    """Lines of a run while it trains."""

    def unit(self, state: Any, row: Any) -> str | None:
        """Return a line for a segment, a measurement, or what the kind lists; None for other events."""
        data = json.loads(row.data)
        name = self.kind.names(state).get(data.get("recipe_id", ""), "")
        if row.type == "observed":
            return self.measured(name, data)
        if row.type in self.kind.listed - LISTED:
            gist = self.kind.gist(row.type, data, self.kind.names(state))
            return f"{row.type.replace('_', ' ')}: {gist}" if gist else None
        if row.type != "advanced" or not data["curve"]:
            return None
        last, speed = data["curve"][-1], data["tokens"] / max(data["seconds"], 1e-9)
        return (
            f"{name.partition(' ')[0]:14s} step {data['step']}  loss {last['loss']:.3f}  gradient "
            f"{last['norm']:.2f}  rate {last['rate']:.1e}  {speed:,.0f} tokens/s"
        )

    def announce(self, state: Any, data: dict[str, Any], name: str) -> None:
        """Print the arms, the folders, the names as models, and what may come next."""
        kind: Any = self.kind  # a study
        for line in kind.lines(state):
            say(line)
        roles = kind.roles(state.submitted.config)
        if folder := data.get("folder"):
            places = [f"{folder}/{role}" for role in roles]
            further = [value for key, value in data.items() if key.endswith("_folder") and value]
            say(f"models: {', '.join([*places, *further])}; items: {folder}/items")
        names = [f"{name}:{role}" for role in roles] if len(roles) > 1 else [name]
        say(f"as {'models' if len(roles) > 1 else 'a model'}: {', '.join(names)}")
        for command in kind.next_steps(state, name):
            say(f"next: {command}")

    def measured(self, name: str, data: dict[str, Any]) -> str:
        """Return a line for a measurement of the model that is called `name`."""
        return f"measured {self.kind.gist('observed', data, {data['recipe_id']: name})}"
