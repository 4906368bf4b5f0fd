"""`forge users`: users of the API, their roles and tokens."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, TypeVar

import click

from agent_forge.cli.options import SuggestingGroup, emit, home, json_option, table

if TYPE_CHECKING:
    from agent_forge.events import EventStore

ROLE = click.Choice(["viewer", "submitter", "admin"])


@click.group("users", cls=SuggestingGroup)
def users_command() -> None:
    """Manage the users of the API and the dashboard, their roles and their tokens.

    \b
    Example:
      forge users add ada --role submitter
      forge users token ada --note laptop
    """


Result = TypeVar("Result")


def _with_store(work: Callable[[EventStore], Result]) -> Result:

    with closing(home().open_store()) as store:
        return work(store)


@users_command.command("list")
@json_option
def list_users(as_json: bool) -> None:
    """List users and the ids of their tokens.

    \b
    Example:
      forge users list
    """
    from agent_forge.worker.commands import accounts

    users = _with_store(accounts.read)
    rows = [
        {"name": name, "role": role, "tokens": [vars(t) for t in users.tokens_of(name)]}
        for name, role in sorted(users.roles.items())
    ]
    if as_json:
        emit(rows)
        return
    if not rows:
        click.echo("no users yet: forge users add NAME --role admin", err=True)
    cells = [
        [r["name"], r["role"], ", ".join(f"{t['id']} {t['note']}".strip() for t in r["tokens"])]
        for r in rows
    ]
    table(["user", "role", "tokens"], cells)


@users_command.command("add")
@click.argument("name")
@click.option("--role", type=ROLE, default="submitter", show_default=True)
@json_option
def add_user(name: str, role: str, as_json: bool) -> None:
    """Add a user of the API, and print a token.

    \b
    Example:
      forge users add ada --role submitter
    """
    from agent_forge.worker.commands import accounts

    _with_store(lambda store: accounts.add(store, name, role))
    _issue(name, "", as_json)


@users_command.command("token")
@click.argument("name")
@click.option("--note", default="", help="What it is for.")
@click.option("--days", type=int, help="Days until the token expires; default: it does not expire.")
@json_option
def make_token(name: str, note: str, days: int | None, as_json: bool) -> None:
    """Make one more token of a user; it is printed once.

    \b
    Example:
      forge users token ada --note laptop --days 90
    """
    _issue(name, note, as_json, days)


def _issue(name: str, note: str, as_json: bool, days: int | None = None) -> None:
    from agent_forge.worker.commands import accounts

    id_, secret = _with_store(lambda store: accounts.issue(store, name, note, days=days))
    if as_json:
        emit({"id": id_, "token": secret})
        return
    click.echo(f"token {id_} of {name}; it is not shown again:", err=True)
    click.echo(secret)


@users_command.command("role")
@click.argument("name")
@click.argument("role", type=ROLE)
@json_option
def change_role(name: str, role: str, as_json: bool) -> None:
    """Change a user's role.

    \b
    Example:
      forge users role ada admin
    """
    from agent_forge.worker.commands import accounts

    _with_store(lambda store: accounts.change_role(store, name, role))
    emit({"name": name, "role": role}) if as_json else click.echo(f"{name} is {role} now")


@users_command.command("revoke")
@click.argument("name")
@click.argument("token_id")
@json_option
def revoke_token(name: str, token_id: str, as_json: bool) -> None:
    """Void a token, by its id.

    \b
    Example:
      forge users revoke ada 1f2e3d4c5b6a
    """
    from agent_forge.worker.commands import accounts

    _with_store(lambda store: accounts.revoke(store, name, token_id))
    emit({"id": token_id}) if as_json else click.echo(f"token {token_id} is void")


@users_command.command("remove")
@click.argument("name")
@json_option
def remove_user(name: str, as_json: bool) -> None:
    """Remove a user: the tokens become void, the runs stay.

    \b
    Example:
      forge users remove ada
    """
    from agent_forge.worker.commands import accounts

    _with_store(lambda store: accounts.remove(store, name))
    emit({"name": name}) if as_json else click.echo(f"{name} is removed")
