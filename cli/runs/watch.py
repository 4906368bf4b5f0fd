"""`forge watch`: a run that another process carries."""

from __future__ import annotations

import sys
import time

import click

from cli.options import emit, home, json_option, load_run, name_of
from runs.panels.markdown import renamed

#: Seconds between two looks at the run.
WATCH = 0.3


@click.command("watch")
@click.argument("run")
@json_option
def watch_command(run: str, as_json: bool) -> None:
    """Follow a run that another process carries, until it has ended. Ctrl-C only stops watching.

    On a terminal: curves, the population, who is at what; at the end what `forge show` has. Otherwise
    a line a generation.

    \b
    Example:
      forge watch 20261121-3fa9c1
    """
    from cli import kind_views
    from cli.runs import panels
    from cli.runs.progress import Progress
    from runs import kinds
    from runs.history.run_cache import RunCache
    from runs.lists import finding
    from worker.queue.active_tasks import AtWork

    store = home().open_store()
    try:
        name = finding.full_name(store, run)
        runs = RunCache(store, 1)
        with Progress(AtWork(store, name)) as progress:
            while True:
                state, rows = runs.refresh(name)
                progress.watch(state, rows)
                if state.ended:
                    break
                time.sleep(0 if rows else WATCH)
    finally:
        store.close()
    if sys.stdout.isatty() and state.started is not None and not as_json:
        shown, log = load_run(name)
        kind_views.of(shown.kind).show(shown, lambda: panels.overview(shown, log))
    reason = state.failed.reason if state.failed else None
    result = kinds.of(state.kind).result_id(state)
    report = {"run": name, "status": state.status, "champion": result, "reason": reason}
    called = name_of(name)
    why = f": {renamed(reason, name, called)}" if reason else ""
    sentence = f"run {called} {state.status}{why}"
    emit(report) if as_json else click.echo(sentence)
    if not state.completed:
        sys.exit(1)
