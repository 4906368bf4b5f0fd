"""`forge layers`: what the layers of a merge are made of."""

from __future__ import annotations

import click

from cli.options import emit, json_option, number, short, table


@click.command("layers")
@click.argument("run")
@click.argument("candidate", default="champion")
@json_option
def layers_command(run: str, candidate: str, as_json: bool) -> None:
    """Show how much of each layer of a candidate is whose, from its weights.

    For each layer, the multiples of the sources' task vectors whose sum is nearest to the candidate's,
    and how much of it that sum explains.

    \b
    Example:
      forge layers 20261121-3fa9c1 champion
    """
    from evomerge.run.state import RunState
    from evomerge.run.views import candidates
    from evomerge.tasks import attribution
    from runs.home import Home
    from runs.lists import finding

    home = Home.default()
    store = home.open_store()
    try:
        state = finding.load_of(RunState, store, run, showing=True)
    finally:
        store.close()
    report = attribution.find(home, state, candidates.find(state, candidate))
    if as_json:
        emit(report)
        return
    click.echo(f"candidate {short(report['candidate'])}")
    cells = [
        [
            row["layer"],
            *(number(c, "+.3f") for c in row["coefficients"]),
            number(row["explained"], ".3f"),
            number(row["moved"], ".3f"),
        ]
        for row in report["rows"]
    ]
    table(["layer", *report["sources"], "explained", "moved"], cells)
