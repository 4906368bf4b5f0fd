"""`forge pause`, `resume`, `cancel`, `retry`, `priority`, `rename`, `note`, `tag`: asked of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from cli.options import PRIORITY, emit, home, json_option, name_of

reason_option = click.option("--reason", help="Why; it is recorded.")


def _ask(run: str, make: Callable[[], Any], said: str, as_json: bool) -> None:
    """Record an event and report it."""
    from runs.home import Home
    from runs.lists.finding import full_name
    from runs.record.user_events import Cancelled
    from worker.commands.control import control
    from worker.tasks import leftovers

    store = Home.default().open_store()
    try:
        event = make()
        id_ = full_name(store, run)
        name = name_of(id_)  # as it is before the event, which may rename it
        before = control(store, id_, event)
        if isinstance(event, Cancelled):
            leftovers.cancelled(store, Home.default(), before)
    finally:
        store.close()
    told = {"run": before.run, "before": before.status, "asked": said}
    emit(told) if as_json else click.echo(f"run {name} {said}")


@click.command("pause")
@click.argument("run")
@reason_option
@json_option
def pause_command(run: str, reason: str | None, as_json: bool) -> None:
    """Pause a run. Tasks under way are finished; no new task starts.

    \b
    Example:
      forge pause 20261121-3fa9c1 --reason "the GPU is needed"
    """

    def make() -> Any:
        from runs.record.user_events import Paused

        return Paused(reason=reason)

    _ask(run, make, "paused", as_json)


@click.command("resume")
@click.argument("run")
@reason_option
@json_option
def resume_command(run: str, reason: str | None, as_json: bool) -> None:
    """Resume a paused run, in the process or the workers that carry it.

    \b
    Example:
      forge resume 20261121-3fa9c1
    """

    def make() -> Any:
        from runs.record.user_events import Resumed

        return Resumed(reason=reason)

    _ask(run, make, "resumed", as_json)


@click.command("cancel")
@click.argument("run")
@reason_option
@json_option
def cancel_command(run: str, reason: str | None, as_json: bool) -> None:
    """Cancel a run for good. Its results stay in the log, and the run can be forked.

    \b
    Example:
      forge cancel 20261121-3fa9c1 --reason "wrong data"
    """

    def make() -> Any:
        from runs.record.user_events import Cancelled

        return Cancelled(reason=reason)

    _ask(run, make, "cancelled", as_json)


@click.command("retry")
@click.argument("run")
@reason_option
@json_option
def retry_command(run: str, reason: str | None, as_json: bool) -> None:
    """Retry a run: forget its failed attempts, also after the run has failed.

    \b
    Example:
      forge retry 20261121-3fa9c1
    """

    def make() -> Any:
        from runs.record.user_events import Retried

        return Retried(reason=reason)

    _ask(run, make, "is tried again", as_json)


@click.command("priority", context_settings={"ignore_unknown_options": True})
@click.argument("run")
@click.argument("number", type=PRIORITY)
@reason_option
@json_option
def priority_command(run: str, number: int, reason: str | None, as_json: bool) -> None:
    """Change a run's priority: of one user's runs, those with the highest number go first.

    \b
    Example:
      forge priority 20261121-3fa9c1 10
    """

    def make() -> Any:
        from runs.record.user_events import PriorityChanged

        return PriorityChanged(priority=number, reason=reason)

    _ask(run, make, f"has priority {number}", as_json)


@click.command("rename")
@click.argument("run")
@click.argument("name")
@json_option
def rename_command(run: str, name: str, as_json: bool) -> None:
    """Call a run by another name. Its id, and what it does, stay as they are.

    With an empty NAME it is called by its kind and day again.

    \b
    Example:
      forge rename 20261121-3fa9c1 first-try
    """

    def make() -> Any:
        from runs.record.user_events import Described

        return Described(name=name)

    _ask(run, make, f"is called {name}" if name else "has no name of its own", as_json)


@click.command("note")
@click.argument("run")
@click.argument("text")
@json_option
def note_command(run: str, text: str, as_json: bool) -> None:
    """Write a note on a run, in the place of the one that it had. An empty TEXT removes it.

    \b
    Example:
      forge note first-try "with the new tokenizer"
    """

    def make() -> Any:
        from runs.record.user_events import Described

        return Described(note=text)

    _ask(run, make, "has the note" if text else "has no note", as_json)


@click.command("tag")
@click.argument("run")
@click.argument("tags", nargs=-1, required=True)
@click.option("--remove", is_flag=True, help="Take these tags away.")
@json_option
def tag_command(run: str, tags: tuple[str, ...], remove: bool, as_json: bool) -> None:
    """Give a run tags, by which `forge runs --tag` finds it.

    \b
    Example:
      forge tag first-try paper best
      forge tag first-try paper --remove
    """
    from runs.record.user_events import Described
    from worker.commands import words

    store = home().open_store()
    try:
        words.check_tags(tags)
        changed = words.retagged(store, run, *((), tags) if remove else (tags, ()))
    finally:
        store.close()
    _ask(run, lambda: Described(tags=changed), f"has the tags {' '.join(changed) or '-'}", as_json)
