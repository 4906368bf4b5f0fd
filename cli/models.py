"""`forge models`: the registry of models."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent_forge.cli.options import SuggestingGroup, emit, home, json_option, number, say, table
from agent_forge.runs.system.plain_text import visible

if TYPE_CHECKING:
    from agent_forge.events import EventStore
    from agent_forge.runs.lists.model_registry import ModelFigures

KINDS = click.Choice(["base", "source", "specialist", "champion"])


@click.group("models", cls=SuggestingGroup)
def models_command() -> None:
    """List and register models: sources, bases, specialists, champions.

    \b
    Example:
      forge models list --kind champion
      forge models register models/base --kind base
      forge models rename 20261121-3fa9c1 best-25m
    """


def _store() -> EventStore:

    return home().open_store()


@models_command.command("list")
@click.option("--kind", type=KINDS)
@click.option("--tag", help="Only models with this tag.")
@json_option
def list_models(kind: str | None, tag: str | None, as_json: bool) -> None:
    """List them, the newest first.

    \b
    Example:
      forge models list --kind champion
    """
    from agent_forge.runs.lists import model_registry as reports_model_registry

    with closing(_store()) as store:
        rows, total = reports_model_registry.listed(store, kind, tag=tag)
    if as_json:
        emit(rows)
        return
    if not rows:
        click.echo("no models yet: a run brings its own, `forge models register` others", err=True)
    cells = [
        [
            m["id"],
            m["kind"],
            m["name"],
            f"{m['parameters']:,}",
            number(m["metrics"].get("test")),
            m["run_name"] or m["run"] or "-",
            " ".join(m["tags"]),
            origin_words(m["origin"]),
            m["path"] or "-",
        ]
        for m in rows
    ]
    columns = ["id", "kind", "name", "parameters", "test", "run", "tags", "from", "where"]
    table(columns, cells, droppable=["where", "run", "test", "tags", "parameters", "kind", "from"])
    if total > len(rows):
        click.echo(f"{total - len(rows)} more: --json has the newest {len(rows)} only", err=True)


@models_command.command("show")
@click.argument("model")
@json_option
def show_model(model: str, as_json: bool) -> None:
    """Show one, with what every run measured of it.

    MODEL is an id, the beginning of one, a name, RUN/champion or RUN:ROLE. Intervals are the middle
    95 % of a bootstrap over the items; a figure without items in the log has none.

    \b
    Example:
      forge models show 2c29c716
      forge models show 20261121-3fa9c1/champion
    """
    from agent_forge.runs.history.repository import load
    from agent_forge.runs.lists import model_registry
    from agent_forge.weights.storage import model_origin

    with closing(_store()) as store:
        entry = model_origin.entry(store, model)
        digest = entry["digest"]
        across = model_registry.of_digest(
            store, digest, lambda run: model_registry.of_state(load(store, run, showing=True), digest)
        )
    if as_json:
        runs = [
            {
                **reading._asdict(),
                "measurements": [m.model_dump(mode="json") for m in reading.measurements],
            }
            for reading in across.runs
        ]
        emit({**entry, "runs": runs})
        return
    names = entry.pop("run_name")
    for key, value in entry.items():
        if key == "run":
            value = value if names in (value, None) else f"{names} ({value})"
        elif key == "metrics":
            value = ", ".join(f"{k} {v:.4f}" for k, v in value.items())
        elif key == "lineage":
            value = ", ".join(value)
        elif key == "origin":
            value = ", ".join(
                [origin_words(value), *(value[k] for k in ("file", "digest") if k in value)]
            )
        say(f"{key:14s}{'-' if value in (None, '') else visible(str(value))}")
    _say_measured(across)


def origin_words(origin: dict[str, str]) -> str:
    """Return words for where a registered model came from, such as "GGUF Q4_1"; "-" if nowhere."""
    return f"GGUF {origin.get('type', '')}".rstrip() if origin else "-"


def _say_measured(across: ModelFigures) -> None:
    """Print a table of what runs measured of a model, a line for each figure."""
    cells = []
    for run_reading in across.runs:
        for measurement in run_reading.measurements:
            figure, where = (
                measurement.figure,
                f"{measurement.slice or '-'} {measurement.domain}".strip(),
            )
            has_interval = figure.low is not None and figure.high is not None
            ends = f"{number(figure.low)} to {number(figure.high)}" if has_interval else "no items"
            whole = figure.value >= 1_000 and figure.value.is_integer()
            value = f"{figure.value:,.0f}" if whole else number(figure.value)
            cells.append([run_reading.run, measurement.name, where, value, ends, str(figure.n or "-")])
    if cells:
        table(["run", "figure", "measured on", "value", "95 %", "items"], cells)
    for run_reading in across.runs:
        if run_reading.again:
            say(f"{run_reading.again} equal values, measured again in {run_reading.run}")
    runs = [reading.run for reading in across.runs if not (reading.measurements or reading.again)]
    if runs:
        say(f"not measured in {', '.join(runs)}")
    if across.total > len(across.runs):
        say(f"{across.total - len(across.runs)} older runs were not read")


@models_command.command("register")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--name", help="Default: the folder's, or the file's.")
@click.option(
    "--kind",
    type=click.Choice(["base", "source", "specialist"]),
    default="specialist",
    show_default=True,
)
@click.option("--from", "lineage", multiple=True, metavar="MODEL", help="What it was made from.")
@json_option
def register_model(
    folder: Path, name: str | None, kind: Any, lineage: tuple[str, ...], as_json: bool
) -> None:
    """Put a model into the registry; its weights are read and hashed.

    FOLDER is a model's folder, BASE+ADAPTER, or a GGUF file, which is converted; the list says that it
    came from one, and how its weights were rounded.

    \b
    Example:
      forge models register models/base --kind base
      forge models register model-Q4_1.gguf --kind base
    """
    from agent_forge.worker.commands import model_registry as commands_model_registry

    with closing(_store()) as store:
        id_ = commands_model_registry.register(store, folder, name, kind, lineage=lineage)
    emit({"id": id_}) if as_json else click.echo(f"model {id_} registered")


@models_command.command("rename")
@click.argument("model")
@click.argument("name")
@json_option
def rename_model(model: str, name: str, as_json: bool) -> None:
    """Give a model a NAME, which then stands wherever a model does.

    MODEL is an id, a name, or RUN/champion or RUN:ROLE for a model of a run.

    \b
    Example:
      forge models rename 20261121-3fa9c1 best-25m
      forge evo --base-models best-25m,models/code --base-model models/base
    """
    from agent_forge.worker.commands import model_registry as commands_model_registry

    with closing(_store()) as store:
        entry = commands_model_registry.rename(store, model, name)
    report = {"id": entry["id"], "name": name, "before": entry["name"]}
    emit(report) if as_json else click.echo(f"model {entry['id']} is called {name} now")


@models_command.command("note")
@click.argument("model")
@click.argument("text")
@json_option
def note_model(model: str, text: str, as_json: bool) -> None:
    """Write a note on a model, in the place of the one that it had. An empty TEXT removes it.

    \b
    Example:
      forge models note best-25m "the one of the paper"
    """
    _describe(model, as_json, note=text)


@models_command.command("tag")
@click.argument("model")
@click.argument("tags", nargs=-1, required=True)
@click.option("--remove", is_flag=True, help="Take these tags away.")
@json_option
def tag_model(model: str, tags: tuple[str, ...], remove: bool, as_json: bool) -> None:
    """Give a model tags, by which `forge models list --tag` finds it.

    \b
    Example:
      forge models tag best-25m paper
    """
    _describe(model, as_json, tags=tags, remove=remove)


def _describe(
    model: str, as_json: bool, note: str | None = None, tags: tuple[str, ...] = (), remove: bool = False
) -> None:
    """Record a model's note, or add or remove its tags, and print what it has now."""
    from agent_forge.weights.storage import model_origin
    from agent_forge.worker.commands import model_registry as commands_model_registry

    with closing(_store()) as store:
        changed = None
        if tags:
            before = set(model_origin.entry(store, model)["tags"])
            changed = tuple(sorted(before - set(tags) if remove else before | set(tags)))
        entry = commands_model_registry.describe(store, model, note, changed)
    if as_json:
        emit({"id": entry["id"], "note": note, "tags": changed})
    elif changed is None:
        click.echo(f"model {entry['id']} has {'the note' if note else 'no note'}")
    else:
        click.echo(f"model {entry['id']} has the tags {' '.join(changed) or '-'}")


@models_command.command("rm")
@click.argument("model")
@click.option("--reason", help="Why; it is recorded.")
@json_option
def remove_model(model: str, reason: str | None, as_json: bool) -> None:
    """Take a model out of the registry; no file is touched.

    \b
    Example:
      forge models rm 2c29c716 --reason "a test"
    """
    from agent_forge.worker.commands import model_registry as commands_model_registry

    with closing(_store()) as store:
        entry = commands_model_registry.remove(store, model, reason)
    emit({"id": entry["id"]}) if as_json else click.echo(f"model {entry['id']} is not listed any more")
