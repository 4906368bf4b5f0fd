"""`forge fork`, `archive`, `import`: branch runs, and take them to other machines."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from agent_forge.cli.options import emit, json_option, name_of, names_of, set_option, setting


@click.command("fork")
@click.argument("run")
@click.option("--at", "place", type=int, metavar="POSITION", help="After this event.")
@click.option(
    "--generation", type=int, metavar="G", help="When this generation is measured, before it is closed."
)
@set_option
@click.option("--output-dir", type=click.Path(), help="Folder for the champion and the report.")
@click.option("--reason", help="Why; it is recorded.")
@click.option("--record-only", is_flag=True, help="Record the fork; carry it on another time.")
@json_option
def fork_command(
    run: str,
    place: int | None,
    generation: int | None,
    settings: tuple[str, ...],
    output_dir: str | None,
    reason: str | None,
    record_only: bool,
    as_json: bool,
) -> None:
    """Branch a run: its history up to a place, a future of its own. Nothing is copied.

    Without --set the fork ends where the run ended. Changed settings count from the next candidates on
    that are proposed; those that close a generation (generations, convergence, diversity) at once.

    \b
    Example:
      forge fork 20261121-3fa9c1 --generation 8 --set generations=20
      forge fork 20261121-3fa9c1 --at 57 --set seed=1 --record-only
      forge fork 20261121-3fa9c1 --at 57 --set search.mutation_rate=0.05
    """
    from agent_forge.runs import kinds
    from agent_forge.runs.history import repository
    from agent_forge.runs.home import Home
    from agent_forge.weights.storage.output_folder import check_target
    from agent_forge.weights.storage.weight_cache import Artifacts
    from agent_forge.worker.commands import fork

    home = Home.default()
    cache, changes = Artifacts.of(home), dict(map(setting, settings))
    out = None if output_dir is None else str(check_target(Path(output_dir)))
    with closing(home.open_store()) as store:
        branch = fork.plan(store, run, place, generation, changes)
        run = fork.fork(store, branch, out, reason=reason)
        state = repository.load(store, run, showing=True)
        for note in kinds.of(state.kind).storage.resumes(state, cache):
            click.echo(f"note: {note}", err=True)
    record = {"run": run, "forked_from": branch.run, "at": branch.place, "changes": branch.changes}
    name, parent = name_of(run), name_of(branch.run)
    if record_only:
        sentence = f"run {name}: carry it on with forge start --resume {name}"
        emit(record) if as_json else click.echo(sentence)
        return
    click.echo(f"run {name}, forked from {parent} after event {branch.place}", err=True)
    from agent_forge.cli.runs.carry_on import carry_on

    carry_on(home, run, out, as_json)


@click.command("archive")
@click.argument("run")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--weights", is_flag=True, help="Put the champion's weights in too.")
@click.option("--force", is_flag=True, help="Replace the file.")
@json_option
def archive_command(run: str, file: Path, weights: bool, force: bool, as_json: bool) -> None:
    """Write a run's whole history to one file, to keep or to import elsewhere.

    A pipeline's file has the runs of its phases, as they all were at one moment. It is a tar.gz: events
    as JSON lines, their schemas, the chain's heads. `forge verify FILE` checks it without a database.

    \b
    Example:
      forge archive 20261121-3fa9c1 run.forge
    """
    from agent_forge.runs.home import Home
    from agent_forge.weights.storage.weight_cache import Artifacts
    from agent_forge.worker.exports import archive

    home = Home.default()
    with closing(home.open_store()) as store:
        written = archive.export(store, Artifacts.of(home), run, file, weights, force)
    size = file.stat().st_size
    if as_json:
        emit({"file": str(file), "bytes": size, "streams": written})
        return
    click.echo(f"{file}: {sum(written.values())} events, {size:,} bytes")


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--allow-task-files", is_flag=True, help="Take a run whose data are task files, which can run code."
)
@json_option
def import_command(file: Path, allow_task_files: bool, as_json: bool) -> None:
    """Take a run in from an archive. What is here already stays as it is.

    All of it is verified first. A run that has not ended is yours from then on, and waits until you
    resume it; so are the runs of a pipeline's phases, which are resumed with it.

    \b
    Example:
      forge import run.forge
    """
    from agent_forge.runs.errors import NotFoundError
    from agent_forge.runs.home import Home
    from agent_forge.weights.storage.weight_cache import Artifacts
    from agent_forge.worker.exports import archive

    if not file.is_file():
        raise NotFoundError(
            f"{file} is a folder: give the archive's file."
            if file.is_dir()
            else f"there is no file {file}. `forge archive RUN FILE` writes one."
        )
    home = Home.default()
    with closing(home.open_store()) as store:
        done = archive.load(store, Artifacts.of(home), file, task_files=allow_task_files)
    if as_json:
        emit({**vars(done)})
        return
    names = names_of([*done.new, *done.waiting])
    for run, count in done.new.items():
        name = names.get(run, run)
        click.echo(f"run {name}: {count} events new" if count else f"run {name}: was here already")
    for run in done.waiting:
        name = names.get(run, run)
        how = (
            f"forge retry {name} and forge resume {name} let"
            if run in done.failed
            else (f"forge resume {name} lets")
        )
        had = "had failed" if run in done.failed else "has not ended"
        click.echo(f"run {name} {had}: it is yours now and waits. {how} it go on")
    if done.weights:
        click.echo("the champion's weights are in the cache")
