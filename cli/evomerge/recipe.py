"""`forge recipe`: how a candidate is made, in words that `forge merge` takes."""

from __future__ import annotations

import click

from cli.options import emit, home


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
    from evomerge.mergekit.export_config import as_config
    from evomerge.reports.outputs.recipe_file import places, recipe_document
    from evomerge.run.state import RunState
    from evomerge.run.views import candidates
    from runs.errors import ConfigError
    from runs.history import repository
    from runs.lists import finding

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
