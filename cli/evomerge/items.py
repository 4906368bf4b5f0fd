"""`forge items`, `layers` and `recipe`: a candidate's wins and losses, its layers, its recipe.

`forge recipe` prints the candidate in the form that `forge merge` takes.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from agent_forge.cli.options import SLICES, emit, home, json_option, load_run, number, short, table

if TYPE_CHECKING:
    from agent_forge.evaluation.data.slices import Slice
    from agent_forge.evomerge.fitness.paired_bootstrap import Contest, Names, Tally
    from agent_forge.evomerge.reports.head_to_head import HeadToHead
    from agent_forge.evomerge.run.state import RunState
    from agent_forge.runs.home import Home


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
    slice_: Slice | None,
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
    from agent_forge.evomerge.fitness.paired_bootstrap import tally
    from agent_forge.evomerge.reports.head_to_head import beside
    from agent_forge.evomerge.run.state import RunState
    from agent_forge.evomerge.run.views import candidates
    from agent_forge.runs.home import Home

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


def _plain(comparison: HeadToHead, tallies: list[Tally], contests: list[Contest]) -> dict[str, object]:
    """Return the comparison, its tallies and its contests as one JSON object."""
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


def _names(home: Home, state: RunState, slice_: Slice) -> Names | None:
    """Return {domain: {kind: the items' names}}; warn and return None if models or data differ."""
    from agent_forge.evaluation.data.items import digest
    from agent_forge.evomerge.tasks.context import MergeContext
    from agent_forge.evomerge.tasks.score import names
    from agent_forge.runs.errors import DataError, ForgeError
    from agent_forge.weights.storage.weight_cache import Artifacts

    try:
        bench = MergeContext(state, Artifacts.of(home))
        assert state.started
        if digest(bench.items) != state.started.data_digest:
            raise DataError("the data has changed since the run started.")
        return names(bench.packed[slice_])
    except (ForgeError, OSError) as error:
        click.echo(f"warning: items are numbered, not named: {error}", err=True)
        return None


def _ends(contests: list[Contest], limit: int) -> list[Contest]:
    """Return a list of the `limit` highest and lowest leads of each domain and kind, without ties."""
    result: list[Contest] = []
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


def _print(contests: list[Contest]) -> None:
    rows = [
        [c.domain, c.kind, c.name, f"{c.mine:.4f}", f"{c.theirs:.4f}", f"{c.lead:+.4f}"]
        for c in contests
    ]
    table(["domain", "kind", "item", "candidate", "other", "lead"], rows)


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
    from agent_forge.evomerge.run.state import RunState
    from agent_forge.evomerge.run.views import candidates
    from agent_forge.evomerge.tasks import attribution
    from agent_forge.runs.home import Home
    from agent_forge.runs.lists import finding

    home = Home.default()
    with closing(home.open_store()) as store:
        state = finding.load_of(RunState, store, run, showing=True)
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


@click.command("recipe")
@click.argument("run")
@click.argument("candidate", default="champion")
@click.option("--json", "as_json", is_flag=True, help="Always print the recipe file.")
def recipe_command(run: str, candidate: str, as_json: bool) -> None:
    """Print a candidate's recipe: as a config where a config can say it, else as a recipe file.

    CANDIDATE is a recipe id, the beginning of one, or "champion" (default). `forge merge` takes both.

    \b
    Example:
      forge recipe 20261121-3fa9c1 > champion.yml
      forge merge champion.yml champion
    """
    from agent_forge.evomerge.mergekit.export_config import as_config
    from agent_forge.evomerge.reports.report import places, recipe_document
    from agent_forge.evomerge.run.state import RunState
    from agent_forge.evomerge.run.views import candidates
    from agent_forge.runs.errors import ConfigError
    from agent_forge.runs.history import repository
    from agent_forge.runs.lists import finding

    store = home().open_store()
    name = finding.full_name(store, run)
    state = repository.load_of(RunState, store, name)
    head = list(repository.history(store, name))[-1].hash
    store.close()
    recipe_id = candidates.find(state, candidate)
    if recipe_id not in state.built:
        raise ConfigError(f"{recipe_id[:12]} is a source: there is nothing to merge.")
    document = recipe_document(state, recipe_id, head)
    started = state.started
    assert started
    text = None
    if not as_json:
        text = as_config(recipe_id, state.recipes, places(state), started.profile.dtype)
    if text is None:
        if not as_json:
            click.echo("a config cannot say this recipe: this is the recipe file", err=True)
        emit(document)
        return
    click.echo(f"# run {state.run}, candidate {recipe_id[:12]}, digest {document['digest']}")
    click.echo(text, nl=False)
