"""`forge pause`, `resume`, `cancel`, `retry`, `priority`: what users ask of a run while it lives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from cli.options import PRIORITY, emit, json_option

reason_option = click.option("--reason", help="Why; it is recorded.")


def _ask(run: str, make: Callable[[], Any], said: str, as_json: bool) -> None:
    """Record an event and report it."""
    from runs.home import Home
    from runs.record.user_events import Cancelled
    from worker.commands.control import control
    from worker.tasks import leftovers

    store = Home.default().open_store()
    try:
        event = make()
        before = control(store, run, event)
        if isinstance(event, Cancelled):
            leftovers.cancelled(store, Home.default(), before)
    finally:
        store.close()
    told = {"run": before.run, "before": before.status, "asked": said}
    emit(told) if as_json else click.echo(f"run {before.run} {said}")


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
