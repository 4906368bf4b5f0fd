"""`forge lineage`: what a candidate was made from. No torch."""

from __future__ import annotations

import click

from cli.options import emit, json_option, load_run, say, short


@click.command("lineage")
@click.argument("run")
@click.argument("candidate", default="champion")
@json_option
def lineage_command(run: str, candidate: str, as_json: bool) -> None:
    """Show what a candidate was made from, down to the sources.

    CANDIDATE is a recipe id, the beginning of one, or "champion" (default).

    \b
    Example:
      forge lineage 20261121-3fa9c1 champion
    """
    from evomerge.recipes.recipe import closure
    from evomerge.run.state import RunState
    from evomerge.run.views import candidates

    state, _ = load_run(run, RunState)
    recipe_id = candidates.find(state, candidate)
    family = closure(recipe_id, state.recipes)
    if as_json:
        emit({id_: recipe.model_dump(mode="json") for id_, recipe in family.items()})
        return
    for id_, recipe in reversed(family.items()):
        where = candidates.place(state, id_)
        say(f"{short(id_)}  {where:18s} {candidates.describe(state, id_, recipe)}")
