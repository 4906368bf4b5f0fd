"""Options, output helpers and config files (JSON, TOML or YAML, of bounded size) of all commands."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import tomllib
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent_forge.runs.errors import ConfigError, did_you_mean
from agent_forge.runs.system import bounded_files
from agent_forge.runs.system.bounded_files import read_json, read_text
from agent_forge.runs.system.plain_text import escaped, visible

if TYPE_CHECKING:
    from agent_forge.events import Envelope
    from agent_forge.runs.home import Home
    from agent_forge.runs.kinds.state import State


class SuggestingGroup(click.Group):
    """A group of commands that suggests similar names for an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return (name, command, rest of the arguments). Raises UsageError for an unknown command."""
        name, names = args[0], self.list_commands(ctx)
        if name not in names and not name.startswith("-") and not ctx.resilient_parsing:
            hint = did_you_mean(name, names)
            raise click.UsageError(f"there is no command {name!r}{hint}.", ctx)
        return super().resolve_command(ctx, args)


#: A JSON object.
Json = dict[str, Any]

set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting; KEY=@FILE reads it from JSON, or a list from JSONL.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Try the work here and say what it will cost; start nothing."
)


def emit(data: object, indent: int | None = 2) -> None:
    """Print data as JSON on stdout; control characters are escaped in JSON's way."""
    text = json.dumps(data, indent=indent, ensure_ascii=False, default=str)
    click.echo("\n".join(escaped(line, "\\u{:04x}") for line in text.split("\n")))


def home() -> Home:
    """Return the Home that the environment names, or the default; its module is imported here."""
    from agent_forge.runs.home import Home

    return Home.default()


def say(text: str, err: bool = False) -> None:
    """Print text that may have foreign text in it: control characters are escaped, line by line."""
    click.echo("\n".join(map(visible, text.split("\n"))), err=err)


def screen_width() -> int:
    """Return the number of columns of the terminal; 80 without one."""
    return shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 80


def wrapped(text: str, columns: int, indent: str = "") -> list[str]:
    """Return a text as lines of at most `columns` columns; `indent` begins all but the first.

    A word that is longer than a line, such as a path, is left whole.
    """
    parts = textwrap.wrap(
        text, max(20, columns), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return parts or [""]


def tell(text: str) -> None:
    """Print sentences; on a terminal they are wrapped between words."""
    for line in text.split("\n"):
        fits = len(line) <= screen_width() or not sys.stdout.isatty()
        say(line if fits else "\n".join(wrapped(line, screen_width(), "  ")))


def warn_skipped(state: State) -> None:
    """Print a warning that names the events of a newer version, which are not shown."""
    if state.skipped:
        kinds = ", ".join(sorted(set(state.skipped)))
        name = name_of(state.run)
        click.echo(
            f"warning: {len(state.skipped)} events of run {name} ({kinds}) are of a newer version "
            "and are left out. Upgrade agent-forge to see all.",
            err=True,
        )


def load_run(run: str, kind: type[State] | None = None) -> tuple[Any, list[Envelope]]:
    """Return (state for display, rows) of a run, without events of a newer version.

    Raises ConfigError if `kind` is given and the run is of another kind.
    """
    from agent_forge.runs.history.repository import history
    from agent_forge.runs.lists.finding import full_name, load, load_of

    with closing(home().open_store()) as store:
        name = full_name(store, run)
        state = load_of(kind, store, name, True) if kind else load(store, name, showing=True)
        warn_skipped(state)
        return state, [row for row in history(store, name) if state.registry.knows(row)]


def names_of(runs: Sequence[str]) -> dict[str, str]:
    """Return {run id: name} of those runs that the log knows."""
    from agent_forge.runs.lists import queries

    with closing(home().open_store()) as store:
        return queries.names(store, runs)


def named(run: str) -> str:
    """Return a run's name, followed by its id in parentheses if they differ."""
    name = name_of(run)
    return run if name == run else f"{name} ({run})"


def name_of(run: str) -> str:
    """Return a run's name; its id if the log does not know it."""
    return names_of([run]).get(run, run)


def short(recipe_id: str | None) -> str:
    """Return the first twelve digits of an id; "-" if it is None."""
    return recipe_id[:12] if recipe_id else "-"


def number(value: float | None, form: str = ".4f") -> str:
    """Return a number as text in this format; "-" if it is None."""
    return "-" if value is None else format(value, form)


def table(
    columns: list[str], rows: list[list[str]], title: str | None = None, droppable: Sequence[str] = ()
) -> None:
    """Print a table on stdout, for people and programs; `show_table` is for people alone.

    Where a terminal is too narrow, columns are left out, in the order of `droppable`. Without a
    terminal it is tab-separated lines: a title as `# TITLE`, the columns' names, the rows. A list,
    which has one column, is its lines alone.
    """
    if not sys.stdout.isatty():
        if title:
            click.echo(f"# {visible(title)}")
        for row in (columns, *rows) if len(columns) > 1 else rows:
            click.echo("\t".join(map(visible, row)))
        return
    places = _fitting(columns, rows, droppable, screen_width())
    shown = [[row[place] for place in places] for row in rows]
    show_table([columns[place] for place in places], shown, title)
    if left := [column for place, column in enumerate(columns) if place not in places]:
        click.echo(f"wider, or with --json: {', '.join(left)}", err=True)


def _fitting(
    columns: Sequence[str], rows: Sequence[Sequence[str]], droppable: Sequence[str], width: int
) -> list[int]:
    """Return the indices of the columns that stay: `droppable` ones leave, in order, until all fit."""
    from rich.cells import cell_len

    places = list(range(len(columns)))
    widths = [max(map(cell_len, column)) for column in zip(columns, *rows, strict=True)]
    for name in droppable:
        if sum(widths[place] for place in places) + 2 * (len(places) - 1) <= width:
            break
        places.remove(columns.index(name))
    return places


#: Least width of a table's column in letters, and the blanks between two columns.
LEAST, BETWEEN = 6, 2


def grid(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return a table for people as lines of at most `width` columns, if words and names let them.

    The first column names what a next command needs: it is never cut. No word of a head is, and no
    word of a cell where the width suffices.
    """
    from io import StringIO

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[visible(text) for text in column] for column in zip(columns, *rows, strict=True)]
    drawn, sizes = Table(box=None, pad_edge=False, padding=(0, BETWEEN, 0, 0)), _sizes(cells, width)
    for column, size in zip(cells, sizes, strict=True):
        drawn.add_column(Text(column[0]), overflow="fold", width=size)
    for row in zip(*(column[1:] for column in cells), strict=True):
        drawn.add_row(*map(Text, row))
    text = StringIO()
    room = sum(sizes) + BETWEEN * len(sizes)
    Console(file=text, width=room, color_system=None).print(drawn)
    return [line.rstrip() for line in text.getvalue().splitlines()]


def _sizes(cells: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the width of each column in letters; the first text of a column is its head."""
    whole = [max(map(len, column)) for column in cells]
    words = [max(map(_longest, column)) for column in cells]
    heads = [max(LEAST, _longest(column[0])) for column in cells]
    room = width - BETWEEN * (len(cells) - 1)
    least = [whole[0], *(words if whole[0] + sum(words[1:]) <= room else heads)[1:]]
    sizes = [min(size, full) for size, full in zip(least, whole, strict=True)]
    for place, full in enumerate(whole):
        sizes[place] += max(0, min(full - sizes[place], room - sum(sizes)))
    return sizes


def _longest(text: str) -> int:
    return max(map(len, text.split()), default=0)


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
    """Print a table for people on stdout: aligned under its heads, in a log as on a terminal."""
    if title:
        say(title)
    for line in grid(columns, rows, screen_width()):
        say(line)


def split(value: str | None) -> list[str]:
    """Return the parts of a comma-separated list, stripped; empty parts are dropped."""
    return [part.strip() for part in (value or "").split(",") if part.strip()]


def setting(text: str) -> tuple[str, object]:
    """Return (name, value) of KEY=VALUE, "_" for "-" in the name; the value is JSON, text or @FILE's.

    A file is JSON, or JSONL if its name says so: a list of its lines.
    """
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.UsageError(f"--set takes KEY=VALUE, not {text!r}.")
    if value.startswith("@"):
        return name.replace("-", "_"), _content(name, Path(value[1:]))
    try:
        return name.replace("-", "_"), json.loads(value)
    except ValueError:
        return name.replace("-", "_"), value


def _content(name: str, file: Path) -> object:
    """Return the content of a JSON file, or the list of a JSONL file's lines. Raises ConfigError."""
    if file.suffix.lower() != ".jsonl":
        return read_json(file, error=ConfigError)
    rows = []
    for number, line in enumerate(read_text(file, error=ConfigError).split("\n"), 1):
        try:
            rows += [json.loads(line)] if line.strip() else []
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"--set {name}=@{file}: line {number}: {error}") from error
    return rows


#: Slices that something is measured on, the last first.
SLICES = ("test", "selection", "search")

#: Names of the arguments that `queue_options` adds to a command.
QUEUED = ("name", "priority", "labels", "key", "quarantine")

#: Range of priorities, which every database can hold.
PRIORITY = click.IntRange(-1_000_000, 1_000_000)


def together(*options: Callable[[Callable], Callable]) -> Callable[[Callable], Callable]:
    """Return a decorator that adds all of these options to a command, in their order."""

    def add(command: Callable) -> Callable:
        for option in reversed(options):
            command = option(command)
        return command

    return add


#: Options of the queue (priority, labels, …).
queue_options = together(
    click.option(
        "--name", help="What to call the run (default: the file's or the kind's name, and the day)."
    ),
    click.option("--priority", type=PRIORITY, help="Of one user's runs, high ones first (default 0)."),
    click.option("--label", "labels", multiple=True, help="What a worker must offer."),
    click.option(
        "--key",
        help="The run of this key, begun if there is none. Without it: the run of the same "
        "settings and inputs.",
    ),
    click.option(
        "--quarantine",
        type=click.Choice(["fail", "worst-fitness"]),
        help="When a task has killed its process three times: the run fails (default), "
        "or goes on without.",
    ),
)
#: Options of what measures windows of text, and of what computes on a device.
context_option = click.option(
    "--context",
    type=click.IntRange(8, 1 << 20),
    default=512,
    show_default=True,
    help="Tokens of a window; the model's own limit where that is smaller.",
)
device_option = click.option(
    "--device", default="auto", show_default=True, help="cpu or cuda:N; auto: a GPU if there is one."
)


#: Bytes of the largest config file.
MOST_BYTES = 4 << 20


def read(path: str | None) -> Json:
    """Return the settings in a config file as a dict, empty without a path. Raises ConfigError."""
    if path is None:
        return {}
    from agent_forge.runs.system import yaml_reader

    file = Path(path)
    try:
        text = bounded_files.read_text(file, MOST_BYTES, ConfigError)
    except ConfigError as error:
        raise ConfigError(f"config file {file} cannot be read: {error}") from error
    try:
        data = _parsed(file.suffix.lower(), text)
    except ConfigError as error:
        raise ConfigError(f"config file {file}: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"config file {file} is nested too deep.") from error
    except yaml_reader.UNREADABLE as error:
        raise ConfigError(f"config file {file} is not valid: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"config file {file} must hold one object of settings.")
    return data


def _parsed(suffix: str, text: str) -> object:
    """Return `text` parsed as YAML, JSON or, by default, TOML. Raises ConfigError and others."""
    if suffix in (".yml", ".yaml"):
        from agent_forge.runs.system import yaml_reader

        documents = yaml_reader.load(text)
        if len(documents) > 1:
            raise ConfigError("it holds several documents. Give one.")
        return documents[0] if documents else None
    return json.loads(text) if suffix == ".json" else tomllib.loads(text)
