"""`forge items`: where a candidate wins and loses."""

from __future__ import annotations

from typing import Any

import click

from cli.options import SLICES, emit, json_option, load_run, short, table


@click.command("items")
@click.argument("run")
@click.argument("candidate", default="champion")
@click.option(
    "--against",
    metavar="MODEL",
    help="A source, baseline or candidate. Default: the source that is best there.",
)
@click.option(
    "--slice", "slice_", type=click.Choice(SLICES), help="Default: the last one that was measured."
)
@click.option(
    "--limit",
    type=click.IntRange(0, 10**6),
    default=10,
    show_default=True,
    help="Items shown at each end.",
)
@click.option("--all", "everything", is_flag=True, help="All items.")
@json_option
def items_command(
    run: str,
    candidate: str,
    against: str | None,
    slice_: Any,
    limit: int,
    everything: bool,
    as_json: bool,
) -> None:
    """Show a candidate's items beside the best source's: won, lost, and by how much.

    CANDIDATE is a recipe id, the beginning of one, or "champion" (default). Windows are compared by
    their mean log-likelihood a token (nats), questions by right or wrong, problems by their score.

    \b
    Example:
      forge items 20261121-3fa9c1 champion --slice selection
    """
    from evomerge.fitness.per_item import tally
    from evomerge.reports.head_to_head import beside
    from evomerge.run.state import RunState
    from evomerge.run.views import candidates
    from runs.home import Home

    home = Home.default()
    state, _ = load_run(run, RunState)
    comparison = beside(state, candidates.find(state, candidate), slice_, against)
    contests = comparison.contests(_names(home, state, comparison.slice))
    tallies = tally(contests)
    if as_json:
        emit({"run": state.run, **_plain(comparison, tallies, contests)})
        return
    where = (
        "the whole"
        if comparison.generation is None
        else f"generation {comparison.generation}'s draw of the"
    )
    click.echo(
        f"{short(comparison.mine)} against {comparison.name} on {where} {comparison.slice} slice",
        err=True,
    )
    if comparison.stopped:
        click.echo(f"the evaluation was ended early: {comparison.stopped}", err=True)
    if comparison.difference:
        d = comparison.difference
        click.echo(f"fitness {d.difference:+.4f} [{d.low:+.4f}, {d.high:+.4f}]", err=True)
    rows = [[t.domain, f"{t.kind}s", str(t.won), str(t.lost), str(t.alike)] for t in tallies]
    table(["domain", "items", "won", "lost", "alike"], rows)
    _print(contests if everything else _ends(contests, limit))


def _plain(comparison: Any, tallies: Any, contests: Any) -> dict[str, Any]:
    """Return the comparison as plain data, for --json."""
    return {
        "candidate": comparison.mine,
        "against": comparison.name,
        "slice": comparison.slice,
        "generation": comparison.generation,
        "stopped": comparison.stopped,
        "difference": comparison.difference and comparison.difference.model_dump(),
        "tally": [vars(row) for row in tallies],
        "items": [{**vars(c), "lead": c.lead, "alike": c.alike} for c in contests],
    }


def _names(home: Any, state: Any, slice_: Any) -> Any:
    """Return the items' ids if models and data are at hand; else print why not, and return None."""
    from evaluation.data.items import digest
    from evomerge.tasks.context import Bench
    from evomerge.tasks.score import names
    from runs.errors import DataError, ForgeError
    from weights.storage.weight_cache import Artifacts

    try:
        bench = Bench(state, Artifacts.of(home))
        if digest(bench.items) != state.started.data_digest:
            raise DataError("the data has changed since the run started.")
        return names(bench.packed[slice_])
    except (ForgeError, OSError) as error:
        click.echo(f"warning: items are numbered, not named: {error}", err=True)
        return None


def _ends(contests: list[Any], limit: int) -> list[Any]:
    """Return the clearest wins and the clearest losses of every domain and kind, `limit` of each."""
    result: list[Any] = []
    for group in dict.fromkeys((c.domain, c.kind) for c in contests):
        group_contests = sorted(
            (c for c in contests if (c.domain, c.kind) == group), key=lambda c: -c.lead
        )
        group_contests = [c for c in group_contests if not c.alike]
        shown = (
            group_contests
            if len(group_contests) <= 2 * limit
            else group_contests[:limit] + group_contests[len(group_contests) - limit :]
        )
        result += shown
    return result


def _print(contests: list[Any]) -> None:
    rows = [
        [c.domain, c.kind, c.name, f"{c.mine:.4f}", f"{c.theirs:.4f}", f"{c.lead:+.4f}"]
        for c in contests
    ]
    table(["domain", "kind", "item", "candidate", "other", "lead"], rows)
