"""Terminal views of a merging run: texts and tables, and a live picture in the frame of `cli.live`.

In the thread that folds the state, `snapshot` copies the values to show. In any thread, `draw` draws a
snapshot in a given number of columns and lines. No torch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import click
from typing_extensions import override

from agent_forge.cli.kind_views import TextView
from agent_forge.cli.live import Frame, line, tails, top, utc
from agent_forge.cli.live import frame as common_frame
from agent_forge.cli.options import Json, name_of, named, number, say, short, show_table, tell, wrapped
from agent_forge.cli.panels import LEVELS, PLAIN_LEVELS, spark
from agent_forge.worker.queue.device_table import Hand

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

    from agent_forge.events import Envelope
    from agent_forge.evomerge.run.state import RunState

#: Columns beside a curve: its name, its last value and the text behind it.
BESIDE = 62
#: Curve → its meaning. Scores on other items have another scale.
CURVES = {"best": "best on its draw", "mean": "mean on its draw", "champion": "champion, selection"}
WIDE = max(map(len, CURVES.values()))
#: Why the best candidate of a generation need not be the champion.
LEGEND = (
    "Scores on a generation's draw and on the selection slice are of different items: "
    "compare each with its own kind."
)

_LEVEL_STYLES = {"healthy": "green", "low": "yellow", "critical": "red"}


@dataclass(frozen=True)
class LiveValues(Frame):
    """The values of a merging run that the live view shows."""

    #: Curve → value of every closed generation.
    curves: dict[str, tuple[float | None, ...]]
    diversity: tuple[float, ...]
    level: str
    #: The champion's id, and what it is in a few words.
    champion: str | None
    what: str
    population: tuple[Json, ...]


def snapshot(
    state: RunState,
    began: str,
    newest: str,
    hands: Sequence[Hand] = (),
    news: Sequence[str] = (),
    rehearsal: object = None,
) -> LiveValues:
    """Return the LiveValues of a state; `began`, `newest`: when first and last event were recorded."""
    from agent_forge.evomerge.recipes.recipe import label
    from agent_forge.evomerge.reports import candidate_rows, generation_rows

    rows = generation_rows.rows(state)
    curves = {name: tuple(row[name] for row in rows) for name in ("best", "mean", "champion")}
    recipe = state.recipes[state.champion] if state.champion else None
    assert state.submitted
    common = vars(common_frame(state, began, newest, hands, news, rehearsal))
    at = max((g for g, _ in state.candidates), default=0)
    return LiveValues(
        **{**common, "at": at, "of": state.submitted.config.generations_wanted},
        curves=curves,
        diversity=tuple(row["diversity"] for row in rows),
        level=rows[-1]["level"] if rows else "",
        champion=state.champion,
        what=label(recipe, state.recipes) if recipe else "",
        population=tuple(candidate_rows.newest(state)),
    )


def draw(shown: LiveValues, width: int, height: int, now: datetime, plain: bool = False) -> Group:
    """Return the picture of a snapshot: at most `height` lines of `width` columns."""
    from rich.console import Group

    curves = _curves(shown, width, LEVELS if not plain else PLAIN_LEVELS)
    parts = [*top(shown, width, now, plain), *curves]
    room = height - len(parts)
    under_way, news = tails(shown, room)
    table = _population(shown, room - len(under_way) - len(news))
    return Group(*[*parts, *table, *under_way, *news][:height])


def _curves(shown: LiveValues, width: int, levels: str) -> list[Text]:
    """Return lines with sparklines, fitness on draws and on selection, diversity; [] before any."""
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
    """Return (lowest value, highest value); (0.0, 0.0) if all are None."""
    numbers = [value for value in values if value is not None]
    return min(numbers, default=0.0), max(numbers, default=0.0)


def _population(shown: LiveValues, room: int) -> list[Text]:
    """Return a heading and a line for each slot, or for the best; [] if `room` is less than 3."""
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


class EvoMergeView(TextView):
    """Texts of a merging run for a terminal."""

    @override
    def summary(self, state: RunState, rows: list[Envelope]) -> Json:
        return self.kind.view.report(state, rows)

    @override
    def about(self, state: RunState) -> list[tuple[str, str]]:
        from agent_forge.evomerge.recipes.recipe import label
        from agent_forge.evomerge.reports import report

        assert state.started
        lines = [
            ("models", ", ".join(source.name for source in state.started.sources)),
            ("base", state.started.base.name),
        ]
        if fork := report.origin(state):
            lines.append(("fork of", fork))
        if state.champion:
            lines.append(("method", label(state.recipes[state.champion], state.recipes)))
        return lines

    @override
    def announce(self, state: RunState, data: Json, name: str) -> None:
        click.echo(f"run {name} completed: champion {short(state.champion)}")
        test = data["test"]
        champion_cells = ["champion", number(test["score"])]
        rows = [[*champion_cells, number(test["components"]["perplexity"], ".3f"), "", ""]]
        for r in data["rivals"]:
            between = f"({number(r['low'], '+.4f')} to {number(r['high'], '+.4f')})"
            numbers = [number(r["score"]), number(r["perplexity"], ".3f")]
            lead = f"{number(r['lead'], '+.4f')} {between}" if r["lead"] is not None else "-"
            rows.append([r["name"], *numbers, lead, r["verdict"] or "-"])
        columns = ["model", "score", "perplexity", "champion's lead (95 %)", "verdict"]
        show_table(columns, rows, title="on the test slice")
        from agent_forge.evomerge.reports import skills

        skill_table = data["skills"]
        if skill_table and skill_table["rows"]:
            heads, cells = skills.table(skill_table)
            show_table(heads, cells, title=f"skills by model, on the {skill_table['slice']} slice")
        tell(data["verdict"]["sentence"])
        say(f"champion: {data['folder']}")
        say(f"report:   {data['folder']}/report.md; for a browser: report.html")

    # ---- progress ----------------------------------------------------------------------------

    legend = LEGEND

    @override
    def unit(self, state: RunState, row: Envelope) -> str | None:
        if row.type != "generation_completed":
            return None
        generation = json.loads(row.data)["generation"]
        done = state.generations[generation]
        scores = [s for s in done.scores if s is not None]
        diversity = state.diversities.get(generation)
        champions = [c for c in state.champions if c.generation <= generation]
        best = number(max(scores) if scores else None)
        mean = number(sum(scores) / len(scores) if scores else None)
        champion = number(champions[-1].score if champions else None)
        who = short(champions[-1].recipe_id) if champions else "-"
        spread = number(diversity.diversity if diversity else None, ".2f")
        return (
            f"generation {generation}: best on its draw {best}, mean {mean}; champion {who} on "
            f"selection {champion}; diversity {spread}"
        )

    @override
    def frame(
        self,
        state: RunState,
        began: str,
        newest: str,
        hands: Sequence[Hand],
        news: Sequence[str],
        curve: Sequence[float | None] = (),
        rehearsal: object = None,
    ) -> LiveValues:
        return snapshot(state, began, newest, hands, news, rehearsal)

    @override
    def draw(self, shown: LiveValues, width: int, height: int, plain: bool) -> Group:
        return draw(shown, width, height, utc(), plain)

    # ---- `forge replay`, `diff`, `compare` ---------------------------------------------------

    @override
    def snapshot(self, data: Json) -> None:
        click.echo(f"run         {named(data['run'])}  {data['status']}  after event {data['place']}")
        if data["forked_from"]:
            click.echo(f"forked from {data['forked_from']}")
        click.echo(f"generation  {data['generation']}")
        best = data["champion"]
        if best:
            click.echo(
                f"champion    {short(best['recipe_id'])}  selection score {best['score']:.4f}, since "
                f"generation {best['since']}: {best['what']}"
            )
        if data["diversity"] is not None:
            click.echo(f"diversity   {data['diversity']:.2f} ({data['level']})")
        cells = [
            [
                f"{r['generation']}/{r['slot']}",
                short(r["recipe_id"]),
                r["kind"],
                r["pipeline"],
                str(r["rank"] or "-"),
                number(r["search"]),
                number(r["selection"]),
            ]
            for r in data["population"]
        ]
        show_table(["slot", "candidate", "kind", "pipeline", "rank", "search", "selection"], cells)
        pending = data["pending"]
        click.echo(f"pending     {len(pending)}" + (f": {', '.join(pending[:6])}" if pending else ""))
        if len(pending) > 6:
            click.echo(f"            and {len(pending) - 6} more (--json lists them)")

    @override
    def after(self, state: RunState, group: Sequence[Envelope]) -> str | None:
        """Return a line about the newest generation after an append that closed it; or None."""
        if not state.generation or group[-1].type == group[0].type:
            return None
        done = state.generations[state.generation - 1]
        scores = [s for s in done.scores if s is not None]
        best = number(max(scores) if scores else None)
        spread = state.diversities[done.generation]
        return (
            f"       generation {done.generation}: best on its draw {best}, champion "
            f"{short(state.champion)}, "
            f"diversity {spread.diversity:.2f} ({spread.level})"
        )

    @override
    def differences(self, data: Json) -> None:
        """Print how two places differ: settings, sources, candidates, evaluations, champion."""
        for which in "ab":
            side = data[which]
            done = "none" if side["generation"] is None else side["generation"]
            click.echo(
                f"{which}  {name_of(side['run'])}  after event {side['place']}  {side['status']}  "
                f"last complete generation {done}"
            )
        for name, (first, second) in data["settings"].items():
            say(f"setting {name}: {first} | {second}")
        for names in data["sources"]:
            say(f"sources: {', '.join(names)}")
        counts = data["candidates"]
        click.echo(
            f"candidates: {counts['both']} in both, {len(counts['only_a'])} only in a, "
            f"{len(counts['only_b'])} only in b"
        )
        if data["weights"]:
            click.echo(f"OTHER WEIGHTS under the same recipe: {', '.join(map(short, data['weights']))}")
        measured = data["evaluations"]
        click.echo(f"evaluations: {measured['only_a']} only in a, {measured['only_b']} only in b")
        for what in measured["different"]:
            click.echo(f"OTHER OUTCOMES of the same evaluation: {what}")
        for which, best in zip("ab", data["champion"], strict=True):
            words = f"{short(best['recipe_id'])} {best['score']:.4f}" if best else "none yet"
            click.echo(f"champion {which}: {words}")
        click.echo(f"lineage: {'the same' if data['same_lineage'] else 'different'}")
