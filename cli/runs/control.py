"""`forge pause`, `cancel`, … of `runs.kinds.controls`; and `forge note` and `tag`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from agent_forge.cli.options import PRIORITY, emit, json_option, name_of
from agent_forge.runs.kinds.controls import control_of

if TYPE_CHECKING:
    from agent_forge.events import EventStore
    from agent_forge.runs.home import Home
    from agent_forge.runs.kinds.state import State


def command_of(word: str, line: str) -> click.Command:
    """Return the click command `word` of `runs.kinds.controls`; its help begins with `line`."""
    command = control_of(word)
    params: list[click.Parameter] = [click.Argument(["run"])]
    if command.value:
        type_ = PRIORITY if command.value == "priority" else click.STRING
        params.append(click.Argument(["value"], metavar=command.value.upper(), type=type_))
    if command.takes_reason:
        words = {"required": command.needs_reason, "help": "Why; it is recorded."}
        params.append(click.Option(["--reason"], **words))

    def ask(run: str, as_json: bool, value: object = None, reason: str | None = None) -> None:
        from agent_forge.worker.commands import control

        _recorded(
            run,
            lambda store, home, id_: control.ask(store, home, id_, word, value, reason),
            command.done.format(value=value) if value != "" else "has no name of its own",
            as_json,
        )

    example = f"\b\nExample:\n  forge {word} 20261121-3fa9c1 {command.example}".rstrip()
    return json_option(
        click.Command(
            word,
            params=params,
            callback=ask,
            help=f"{line}\n\n{command.more}\n\n{example}",
            context_settings={"ignore_unknown_options": command.value == "priority"},  # it may be -1
        )
    )


def _recorded(
    run: str, ask: Callable[[EventStore, Home, str], State], done: str, as_json: bool
) -> None:
    """Let `ask` record an event of a run, and print the words `done` about the run, or JSON."""
    from agent_forge.runs.home import Home
    from agent_forge.runs.lists.finding import full_name

    home = Home.default()
    with closing(home.open_store()) as store:
        id_ = full_name(store, run)
        name = name_of(id_)  # as it is before the event, which may rename it
        before = ask(store, home, id_)
    report = {"run": before.run, "before": before.status, "asked": done}
    emit(report) if as_json else click.echo(f"run {name} {done}")


def _describe(run: str, done: str, as_json: bool, **words: Any) -> None:
    """Record a user's words about a run, and print what it has now."""
    from agent_forge.runs.record.events import Described
    from agent_forge.worker.commands import control

    event = Described(**words)
    _recorded(run, lambda store, _, id_: control.control(store, id_, event), done, as_json)


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
    _describe(run, "has the note" if text else "has no note", as_json, note=text)


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
    from agent_forge.runs.home import Home
    from agent_forge.worker.commands import submit

    with closing(Home.default().open_store()) as store:
        submit.check_tags(tags)
        changed = submit.retagged(store, run, *((), tags) if remove else (tags, ()))
    _describe(run, f"has the tags {' '.join(changed) or '-'}", as_json, tags=changed)
