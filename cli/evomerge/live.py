"""A merging run on a terminal while it lives: curves and population in the frame of `cli.live`.

`snapshot` copies the values to show from the state, in the thread that folds it; `draw` makes a picture
of a snapshot in a given number of columns and lines, in any thread. No torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cli.live import Frame, line, tails, top
from cli.live import frame as common_frame
from cli.options import number, short, wrapped
from cli.panels import LEVELS, PLAIN_LEVELS, spark
from worker.queue.active_tasks import Hand

#: Columns beside a curve: its name, its last value and what is said behind it.
BESIDE = 62
#: Curve → what it is of. Scores of other items have another scale.
CURVES = {
    "best": "best on its draw",
    "mean": "mean on its draw",
    "champion": "champion, selection",
}
WIDE = max(map(len, CURVES.values()))
#: Why the best candidate of a generation need not be the champion.
LEGEND = (
    "Scores on a generation's draw and on the selection slice are of different items: "
    "compare each with its own kind."
)

_LEVEL_STYLES = {"healthy": "green", "low": "yellow", "critical": "red"}


@dataclass(frozen=True)
class Snapshot(Frame):
    """Values of a merging run that the live view shows."""

    #: Curve → value of every closed generation.
    curves: dict[str, tuple[float | None, ...]]
    diversity: tuple[float, ...]
    level: str
    #: The champion's id, and what it is in a few words.
    champion: str | None
    what: str
    population: tuple[dict[str, Any], ...]


def snapshot(
    state: Any,
    began: str,
    newest: str,
    hands: Sequence[Hand] = (),
    news: Sequence[str] = (),
    rehearsal: Any = None,
) -> Snapshot:
    """Return the values to show; `began`, `newest`: when the first and last event were recorded."""
    from evomerge.recipes.recipe import label
    from evomerge.reports import candidate_rows, generation_rows

    rows = generation_rows.rows(state)
    curves = {name: tuple(row[name] for row in rows) for name in ("best", "mean", "champion")}
    recipe = state.recipes[state.champion] if state.champion else None
    common = vars(common_frame(state, began, newest, hands, news, rehearsal))
    at = max((g for g, _ in state.candidates), default=0)
    return Snapshot(
        **{**common, "at": at, "of": state.submitted.config.generations_wanted},
        curves=curves,
        diversity=tuple(row["diversity"] for row in rows),
        level=rows[-1]["level"] if rows else "",
        champion=state.champion,
        what=label(recipe, state.recipes) if recipe else "",
        population=tuple(candidate_rows.newest(state)),
    )


def draw(shown: Snapshot, width: int, height: int, now: datetime, plain: bool = False) -> Any:
    """Draw the picture: at most `height` lines of `width` columns."""
    from rich.console import Group

    curves = _curves(shown, width, LEVELS if not plain else PLAIN_LEVELS)
    parts = [*top(shown, width, now, plain), *curves]
    room = height - len(parts)
    under_way, news = tails(shown, room)
    table = _population(shown, room - len(under_way) - len(news))
    return Group(*[*parts, *table, *under_way, *news][:height])


def _curves(shown: Snapshot, width: int, levels: str) -> list[Any]:
    """Return the curves: fitness on draws, on the selection slice, and diversity from 0."""
    if not shown.diversity:
        return []
    columns = max(4, width - BESIDE)
    curves = {name: values[-columns:] for name, values in shown.curves.items()}
    draws = [*curves["best"], *curves["mean"]]
    scales = {"best": _ends(draws), "mean": _ends(draws), "champion": _ends(curves["champion"])}
    behind = {"champion": f"{short(shown.champion)} {shown.what}" if shown.champion else ""}
    lines = [
        line(
            f"{CURVES[name]:{WIDE}} ",
            (spark(values, *scales[name], levels), "cyan"),
            f" {number(values[-1])}  ",
            (behind.get(name, ""), "bold"),
        )
        for name, values in curves.items()
    ]
    spread = shown.diversity[-columns:]
    curve = spark(spread, 0.0, max(spread), levels)
    style = _LEVEL_STYLES.get(shown.level, "")
    figure = f" {number(spread[-1], '.2f')}    "
    lines.append(line(f"{'diversity':{WIDE}} ", (curve, "cyan"), figure, (shown.level, style)))
    return [*lines, *(line((text, "dim")) for text in wrapped(LEGEND, width))]


def _ends(values: Sequence[float | None]) -> tuple[float, float]:
    """Return the lowest and the highest value; 0 and 0 if there is none."""
    numbers = [value for value in values if value is not None]
    return min(numbers, default=0.0), max(numbers, default=0.0)


def _population(shown: Snapshot, room: int) -> list[Any]:
    """Return a heading and one line a slot; if `room` is too small, only the best slots."""
    if room < 3 or not shown.population:
        return []
    rows = list(shown.population)
    many = len(rows) > room - 1
    if many:
        scored = sorted(rows, key=lambda r: r["search"] is None or -r["search"])
        best = {row["slot"] for row in scored[: room - 2]}
        rows = [row for row in rows if row["slot"] in best]
    lines = [line((f"{'slot':>4}  {'search':>8}  {'selection':>9}  {'kind':8}  pipeline", "bold"))]
    for row in rows:
        champion = row["recipe_id"] == shown.champion
        text = (
            f"{row['slot']:4d}  {number(row['search']):>8}  {number(row['selection']):>9}  "
            f"{row['kind']:8}  {row['pipeline']}{'  champion' if champion else ''}"
        )
        lines.append(line((text, "green" if champion else "")))
    if many:
        lines.append(line((f"      {len(shown.population) - len(rows)} more", "dim")))
    return lines
