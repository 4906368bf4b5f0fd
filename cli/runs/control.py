"""`forge pause`, `resume`, `cancel`, `retry`, `priority`: what users ask of a run while it lives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from cli.options import PRIORITY, emit, json_option

reason_option = click.option("--reason", help="Why; it is recorded.")


def _ask(run: str, make: Callable[[], Any], said: str, as_json: bool) -> None:
    """Record an event and say so."""
    from runs.home import Home
    from worker.commands.control import control

    store = Home.default().open_store()
    try:
        before = control(store, run, make())
    finally:
        store.close()
    told = {"run": before.run, "before": before.status, "asked": said}
    emit(told) if as_json else click.echo(f"run {before.run} {said}")


@click.command("pause")
@click.argument("run")
@reason_option
@json_option
def pause_command(run: str, reason: str | None, as_json: bool) -> None:
    """Let a run wait. Tasks under way are finished; nothing new is begun.

    \b
    Example:
      forge pause 20261121-3fa9c1 --reason "the GPU is needed"
    """

    def make() -> Any:
        from runs.kinds.user_events import Paused

        return Paused(reason=reason)

    _ask(run, make, "paused", as_json)


@click.command("resume")
@click.argument("run")
@reason_option
@json_option
def resume_command(run: str, reason: str | None, as_json: bool) -> None:
    """Let a paused run go on, in whatever process carries it.

    \b
    Example:
      forge resume 20261121-3fa9c1
    """

    def make() -> Any:
        from runs.kinds.user_events import Resumed

        return Resumed(reason=reason)

    _ask(run, make, "resumed", as_json)


@click.command("cancel")
@click.argument("run")
@reason_option
@json_option
def cancel_command(run: str, reason: str | None, as_json: bool) -> None:
    """End a run for good. What it found stays in the log, and can be forked.

    \b
    Example:
      forge cancel 20261121-3fa9c1 --reason "wrong data"
    """

    def make() -> Any:
        from runs.kinds.user_events import Cancelled

        return Cancelled(reason=reason)

    _ask(run, make, "cancelled", as_json)


@click.command("retry")
@click.argument("run")
@reason_option
@json_option
def retry_command(run: str, reason: str | None, as_json: bool) -> None:
    """Forget the failed attempts of a run, so that it is tried again; also after it has failed.

    \b
    Example:
      forge retry 20261121-3fa9c1
    """

    def make() -> Any:
        from runs.kinds.user_events import Retried

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
        from runs.kinds.user_events import PriorityChanged

        return PriorityChanged(priority=number, reason=reason)

    _ask(run, make, f"has priority {number}", as_json)
