"""Terminal view of a merging run: champion, generations, population, differences. No torch."""

from __future__ import annotations

import json
from typing import Any

import click

from cli.evomerge import live
from cli.kind_views import View
from cli.live import utc
from cli.options import number, say, short, table


class EvoMergeView(View):
    """Texts of a merging run."""

    def summary(self, state: Any, rows: list[Any]) -> dict[str, Any]:
        """Return the report, as far as the run is."""
        return self.kind.report(state, rows)

    def show(self, state: Any, data: dict[str, Any], look: Any) -> None:
        """Print models, champion and generations, and the verdict of a completed run."""
        from evomerge.recipes.recipe import label

        if data["forked_from"]:
            click.echo(f"fork of   {data['forked_from']}")
        say(f"models    {', '.join(s.name for s in state.started.sources)}")
        say(f"base      {state.started.base.name}")
        if state.champion:
            name = label(state.recipes[state.champion], state.recipes)
            score = state.champions[-1].score
            click.echo(f"champion  {short(state.champion)}  {name}  selection score {score:.4f}")
        cells = [
            [
                str(g["generation"]),
                number(g["best"]),
                number(g["mean"]),
                number(g["champion"]),
                number(g["diversity"], ".2f"),
                g["level"],
            ]
            for g in data["generations"]
        ]
        heads = ["generation", "best on its draw", "mean", "champion", "diversity", "note"]
        table(heads, cells)
        _skills(data)
        if state.completed:
            say(data["verdict"]["sentence"])

    def announce(self, state: Any, data: dict[str, Any]) -> None:
        """Print the champion beside its rivals on the test slice."""
        click.echo(f"run {data['run']} completed: champion {short(state.champion)}")
        test = data["test"]
        own = ["champion", "", number(test["score"])]
        rows = [[*own, number(test["components"]["perplexity"], ".3f"), "", "", ""]]
        for r in data["rivals"]:
            interval = f"{number(r['low'], '+.4f')} … {number(r['high'], '+.4f')}"
            numbers = [number(r["score"]), number(r["perplexity"], ".3f")]
            lead = [number(r["lead"], "+.4f"), interval, r["verdict"] or "-"]
            rows.append([r["name"], r["kind"], *numbers, *lead])
        columns = ["model", "kind", "score", "perplexity", "lead", "95 % interval", "verdict"]
        table(columns, rows, title="on the test slice")
        _skills(data)
        say(data["verdict"]["sentence"])
        click.echo(f"champion: {data['folder']}")
        click.echo(f"report:   {data['folder']}/report.md; for a browser: report.html")

    # ---- progress ----------------------------------------------------------------------------

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
        self, state: Any, began: str, newest: str, hands: Any, news: Any, curve: Any = ()
    ) -> Any:
        """Return what a terminal draws of the state."""
        return live.snapshot(state, began, newest, hands, news)

    def draw(self, shown: Any, width: int, height: int, plain: bool) -> Any:
        """Return the picture of a snapshot."""
        return live.draw(shown, width, height, utc(), plain)

    # ---- `forge replay`, `diff`, `compare` ---------------------------------------------------

    def snapshot(self, data: dict[str, Any]) -> None:
        """Print population, champion and diversity at a place of the history."""
        click.echo(f"run         {data['run']}  {data['status']}  after event {data['place']}")
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
        table(["slot", "candidate", "kind", "pipeline", "rank", "search", "selection"], cells)
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
        found = state.diversities[done.generation]
        return (
            f"       generation {done.generation}: best on its draw {best}, champion "
            f"{short(state.champion)}, "
            f"diversity {found.diversity:.2f} ({found.level})"
        )

    def differences(self, data: dict[str, Any]) -> None:
        """Print how two places differ: settings, sources, candidates, evaluations, champion."""
        for which in "ab":
            side = data[which]
            done = "none" if side["generation"] is None else side["generation"]
            click.echo(
                f"{which}  {side['run']}  after event {side['place']}  {side['status']}  "
                f"last complete generation {done}"
            )
        for name, (mine, theirs) in data["settings"].items():
            say(f"setting {name}: {mine} | {theirs}")
        for names in data["sources"]:
            say(f"sources: {', '.join(names)}")
        found = data["candidates"]
        click.echo(
            f"candidates: {found['both']} in both, {len(found['only_a'])} only in a, "
            f"{len(found['only_b'])} only in b"
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
            told = f"{short(best['recipe_id'])} {best['score']:.4f}" if best else "none yet"
            click.echo(f"champion {which}: {told}")
        click.echo(f"lineage: {'the same' if data['same_lineage'] else 'different'}")


def _skills(data: dict[str, Any]) -> None:
    """Print what each model does in each domain, if anything was measured."""
    from evomerge.reports import skills

    found = data["skills"]
    if found and found["rows"]:
        heads, rows = skills.table(found)
        table(heads, rows, title=f"skills by model, on the {found['slice']} slice")
