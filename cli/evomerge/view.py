"""Terminal view of a merging run: champion, generations, population, differences. No torch."""

from __future__ import annotations

import json
from typing import Any

import click

from cli.evomerge import live
from cli.kind_views import View
from cli.live import utc
from cli.options import name_of, named, number, say, short, show_table, tell


class EvoMergeView(View):
    """Texts of a merging run."""

    def summary(self, state: Any, rows: list[Any]) -> dict[str, Any]:
        """Return the report, as far as the run is."""
        return self.kind.report(state, rows)

    def about(self, state: Any) -> list[tuple[str, str]]:
        """Return the models that the run began with, and the run that it is a fork of."""
        from evomerge.recipes.recipe import label
        from evomerge.reports import report

        lines = [
            ("models", ", ".join(source.name for source in state.started.sources)),
            ("base", state.started.base.name),
        ]
        if fork := report.origin(state):
            lines.append(("fork of", fork))
        if state.champion:
            lines.append(("method", label(state.recipes[state.champion], state.recipes)))
        return lines

    def announce(self, state: Any, data: dict[str, Any], name: str) -> None:
        """Print the champion beside its rivals on the test slice."""
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
        from evomerge.reports import skills

        skill_table = data["skills"]
        if skill_table and skill_table["rows"]:
            heads, cells = skills.table(skill_table)
            show_table(heads, cells, title=f"skills by model, on the {skill_table['slice']} slice")
        tell(data["verdict"]["sentence"])
        say(f"champion: {data['folder']}")
        say(f"report:   {data['folder']}/report.md; for a browser: report.html")

    # ---- progress ----------------------------------------------------------------------------

    legend = live.LEGEND

    def unit(self, state: Any, row: Any) -> str | None:
        """Return a closed generation in a line; None for every other event."""
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

    def frame(
        self,
        state: Any,
        began: str,
        newest: str,
        hands: Any,
        news: Any,
        curve: Any = (),
        rehearsal: Any = None,
    ) -> Any:
        """Return what a terminal draws of the state."""
        return live.snapshot(state, began, newest, hands, news, rehearsal)

    def draw(self, shown: Any, width: int, height: int, plain: bool) -> Any:
        """Return the picture of a snapshot."""
        return live.draw(shown, width, height, utc(), plain)

    # ---- `forge replay`, `diff`, `compare` ---------------------------------------------------

    def snapshot(self, data: dict[str, Any]) -> None:
        """Print population, champion and diversity at a place of the history."""
        click.echo(
            f"run         {named(data['run'])}  {data['status']}  after event {data['place']}"
        )
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
        click.echo(
            f"pending     {len(pending)}" + (f": {', '.join(pending[:6])}" if pending else "")
        )
        if len(pending) > 6:
            click.echo(f"            and {len(pending) - 6} more (--json lists them)")

    def after(self, state: Any, group: Any) -> str | None:
        """Return the newest generation in a line, after an append of several events."""
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

    def differences(self, data: dict[str, Any]) -> None:
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
            click.echo(
                f"OTHER WEIGHTS under the same recipe: {', '.join(map(short, data['weights']))}"
            )
        measured = data["evaluations"]
        click.echo(f"evaluations: {measured['only_a']} only in a, {measured['only_b']} only in b")
        for what in measured["different"]:
            click.echo(f"OTHER OUTCOMES of the same evaluation: {what}")
        for which, best in zip("ab", data["champion"], strict=True):
            words = f"{short(best['recipe_id'])} {best['score']:.4f}" if best else "none yet"
            click.echo(f"champion {which}: {words}")
        click.echo(f"lineage: {'the same' if data['same_lineage'] else 'different'}")
