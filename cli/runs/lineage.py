"""`forge lineage`: what a model was made from, through all the runs that it went through. No torch."""

from __future__ import annotations

import click

from cli.options import emit, home, json_option, named, say, short, warn_skipped


@click.command("lineage")
@click.argument("run")
@click.argument("model", default="", required=False)
@json_option
def lineage_command(run: str, model: str, as_json: bool) -> None:
    """Show what a model of a run was made from, down to given models or to first weights.

    MODEL is a recipe id, the beginning of one, a role, or "champion"; by default the run's result. RUN
    may name the model as well: RUN/champion, RUN:ROLE, or a registered model by id or name. If a
    model that was given to the run was made by another run of this log, what that run made it from
    follows.

    \b
    Example:
      forge lineage 20261121-3fa9c1 champion
    """
    from runs.lists import family
    from runs.lists.finding import full_name, load

    store = home().open_store()
    try:
        generations = (
            family.family(store, full_name(store, run), model)
            if model
            else family.named(store, run)
        )
        for node in generations:
            warn_skipped(load(store, node.run, showing=True))
    finally:
        store.close()
    if as_json:
        emit(
            {
                ancestor.recipe_id: ancestor.recipe
                for group in generations
                for ancestor in reversed(group.ancestors)
            }
        )
        return
    if not generations:
        say(f"no run of this log made model {run}")
    for id_, ancestors in family.by_run(generations).items():
        if id_ != generations[0].run:
            say(f"run {named(id_)}:")
        for node in ancestors:
            say(f"{short(node.recipe_id)}  {node.place:18s} {node.words}")
