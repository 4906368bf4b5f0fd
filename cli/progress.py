"""What a run is doing, on stderr: a live table on a terminal, a line a generation otherwise."""

from __future__ import annotations

import sys
import time
from typing import Any

from cli.options import number, short

_DOING = {
    "submitted": "reading models and data",
    "started": "measuring speed and memory",
    "profiled": "measuring the sources",
    "converged": "measuring on the test slice",
}


#: What others did to the run, and what to do about it.
_SAID = {
    "paused": ": it waits until `forge resume {run}`",
    "resumed": "",
    "cancelled": "",
    "retried": "",
}


#: Events that a generation is under way.
_BREEDING = ("layers_chosen", "seeded", "merged", "mutated", "sampled", "crossed")


class Progress:
    """Follows a run's rows."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._live: Any = None
        self._rows: list[tuple[str, ...]] = []
        self._began = time.monotonic()
        self._doing = ""

    def __enter__(self) -> Progress:
        if self._terminal:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), refresh_per_second=4)
            self._live.__enter__()
        return self

    def __exit__(self, *details: object) -> None:
        if self._live is not None:
            self._live.__exit__(*details)

    def watch(self, state: Any, rows: list[Any]) -> None:
        """Called with the state after, and the rows of, what happened."""
        for row in rows:
            if row.type == "generation_completed":
                self._add(state, len(self._rows))
            self._doing = _DOING.get(row.type, self._doing)
            if row.type in _SAID:
                print(f"{row.type} by {row.actor}{_SAID[row.type].format(run=state.run)}",
                      file=sys.stderr, flush=True)  # fmt: skip
            if row.type in _BREEDING:
                self._doing = f"generation {state.generation}"
        if self._live is not None:
            self._live.update(self._draw(state))

    def _add(self, state: Any, generation: int) -> None:
        done = state.generations[generation]
        scores = [s for s in done.scores if s is not None]
        diversity = state.diversities.get(generation)
        champions = [c for c in state.champions if c.generation <= generation]
        self._rows.append(
            (
                str(generation),
                number(max(scores) if scores else None),
                number(sum(scores) / len(scores) if scores else None),
                number(champions[-1].score if champions else None),
                short(champions[-1].recipe_id) if champions else "-",
                number(diversity.diversity if diversity else None, ".2f"),
            )
        )
        if self._live is None:
            g, best, mean, champion, who, spread = self._rows[-1]
            print(
                f"generation {g}: best {best}, mean {mean}, champion {who} {champion}, "
                f"diversity {spread}",
                file=sys.stderr,
                flush=True,
            )

    def _draw(self, state: Any) -> Any:
        from rich.console import Group
        from rich.table import Table

        drawn = Table(box=None, header_style="bold")
        for column in ("generation", "best", "mean", "champion's score", "champion", "diversity"):
            drawn.add_column(column, justify="left" if column == "champion" else "right")
        for row in self._rows[-15:]:
            drawn.add_row(*row)
        seconds = int(time.monotonic() - self._began)
        config = state.submitted.config
        line = (
            f"run {state.run}  {self._doing} of {config.generations}  "
            if self._doing.startswith("generation")
            else f"run {state.run}  {self._doing}  "
        )
        return Group(drawn, f"{line}{seconds // 60}:{seconds % 60:02d}")
