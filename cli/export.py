"""`forge export`, and what `forge evo` writes at its end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from cli.options import emit, json_option, number, short, table


@click.command("export")
@click.argument("run")
@click.option("--out", required=True, type=click.Path(), help="The folder to write.")
@json_option
def export_command(run: str, out: str, as_json: bool) -> None:
    """Write a run's champion as a Hugging Face folder, with a report.

    \b
    Example:
      forge export 20261121-3fa9c1 --out champion
    """
    from evomerge.errors import ForgeError
    from evomerge.log import load
    from worker.home import Home

    home = Home.default()
    store = home.open_store()
    state = load(store, run)
    store.close()
    if not state.completed:
        what = (
            "Branch it with `forge fork`" if state.ended else "Finish it with `forge evo --resume"
        )
        raise ForgeError(
            f"run {state.run} is {state.status}: there is no final champion. "
            + (f"{what}." if state.ended else f"{what} {state.run}`.")
        )
    written = write(home, state, Path(out))
    announce(state, written, as_json)


def write(home: Any, state: Any, out: Path) -> dict[str, Any]:
    """The champion's folder, and the report beside its files; returns the report."""
    from evomerge import plot, report
    from evomerge.log import history
    from worker import export
    from worker.artifacts import Artifacts

    store = home.open_store()
    rows = list(history(store, state.run))
    store.close()
    data = report.report(state, rows)
    folder = export.export(state, Artifacts.of(home), out.absolute(), rows[-1].hash)
    (folder / "report.json").write_text(json.dumps(data, indent=2) + "\n", "utf-8")
    (folder / "report.md").write_text(report.markdown(data), "utf-8")
    plot.draw(data, folder / "report.svg")
    plot.draw(data, folder / "report.png")
    return {**data, "folder": str(folder)}


def announce(state: Any, data: dict[str, Any], as_json: bool) -> None:
    """The result, on stdout."""
    if as_json:
        emit(data)
        return
    click.echo(f"run {data['run']} completed: champion {short(state.champion)}")
    columns = ["", "kind", "score", "perplexity", "lead", "95 % interval", ""]
    test = data["test"]
    own = ["champion", "", number(test["score"]), number(test["components"]["perplexity"], ".3f")]
    rows = [[*own, "", "", ""]]
    for r in data["rivals"]:
        interval = f"{number(r['low'], '+.4f')} … {number(r['high'], '+.4f')}"
        rows.append(
            [
                r["name"],
                r["kind"],
                number(r["score"]),
                number(r["perplexity"], ".3f"),
                number(r["lead"], "+.4f"),
                interval,
                "beaten" if r["beaten"] else "not beaten",
            ]
        )
    table(columns, rows, title="on the test slice")
    click.echo(data["verdict"]["sentence"])
    click.echo(f"champion: {data['folder']}")
    click.echo(f"report:   {data['folder']}/report.md")
