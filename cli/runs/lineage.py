"""`forge lineage`: what a model was made from, through all the runs that it went through. No torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cli.options import emit, json_option, say, short, warn_skipped

if TYPE_CHECKING:
    from events import EventStore
    from runs.kinds.origin import Ancestor


@click.command("lineage")
@click.argument("run")
@click.argument("model", default="", required=False)
@json_option
def lineage_command(run: str, model: str, as_json: bool) -> None:
    """Show what a model of a run was made from, down to given models or to first weights.

    MODEL is a recipe id, the beginning of one, a role, or "champion"; by default the run's result. If a
    model that was given to the run was made by another run of this log, what that run made it from
    follows.

    \b
    Example:
      forge lineage 20261121-3fa9c1 champion
    """
    from runs.history.repository import full_name
    from runs.home import Home

    store = Home.default().open_store()
    try:
        found = _family(store, full_name(store, run), model, set())
    finally:
        store.close()
    if as_json:
        emit({one.recipe_id: one.recipe for _, group in found for one in reversed(group)})
        return
    for maker, group in found:
        if maker != found[0][0]:
            say(f"run {maker}:")
        for one in group:
            say(f"{short(one.recipe_id)}  {one.place:18s} {one.words}")


def _family(
    store: EventStore, run: str, model: str, seen: set[tuple[str, str]]
) -> list[tuple[str, list[Ancestor]]]:
    """Return (run, ancestors in it) of a model: its own run first, then those of what was given.

    Raises NotFoundError.
    """
    from runs import kinds
    from runs.history.repository import load

    state: Any = load(store, run, showing=True)
    warn_skipped(state)
    own = kinds.of(state.kind).ancestry(state, model)
    result = [(run, own)]
    for one in own:
        maker = _maker(store, run, one.given) if one.given else None
        if maker is not None and maker not in seen:
            seen.add(maker)
            result += _family(store, *maker, seen)
    return result


def _maker(store: EventStore, run: str, digest: str) -> tuple[str, str] | None:
    """Return (run, recipe id) of the other run that made these weights; None if none is known."""
    from runs import kinds
    from runs.errors import NotFoundError
    from runs.history.repository import load
    from runs.lists import model_registry

    try:
        row = model_registry.find(store, model_registry.id_of(digest))
    except NotFoundError:
        return None
    if row["run"] in (None, run):
        return None
    state: Any = load(store, row["run"], showing=True)
    recipe_id = kinds.of(state.kind).made(state, digest)
    return None if recipe_id is None else (row["run"], recipe_id)
