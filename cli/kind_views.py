"""Terminal views of the kinds of run: the table of views, and the view that suits every kind.

Commands for runs of any kind print through `of(kind)` and import no kind. A kind that has more to show
has a class of its own in the table.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click
from typing_extensions import override

from agent_forge.cli import live, panels
from agent_forge.cli.options import Json, name_of, named, say, screen_width, short
from agent_forge.runs import kinds
from agent_forge.runs.kinds.view import overview
from agent_forge.runs.kinds.wording import figure_text
from agent_forge.runs.panels.head import Panels
from agent_forge.runs.panels.tables import renamed

if TYPE_CHECKING:
    from rich.console import Group

    from agent_forge.events import Envelope
    from agent_forge.runs.kinds.state import State
    from agent_forge.worker.queue.device_table import Hand

#: Kind of run → its class of views, imported when it is asked for. Studies are shown by
#: `StudyTextView`, other kinds by `TextView`.
VIEWS = {"evomerge": "agent_forge.cli.evomerge.view:EvoMergeView"}


#: Lines of a screen of `forge show`, and more lines than any run has.
SCREEN, ALL = 40, 1_000_000
#: Approximate number of lines for events that a run's kind counts.
TENTHS = 10


class TextView:
    """Plain texts of a run, from what every kind of run has."""

    def __init__(self, kind: str) -> None:
        self.kind = kinds.of(kind)

    # ---- `forge show` and the end of a run ---------------------------------------------------

    def summary(self, state: State, rows: list[Envelope]) -> Json:
        """Return a started run as JSON data: its report if completed, else a snapshot of its state."""
        return self.kind.view.report(state, rows) if state.completed else self.kind.view.snapshot(state)

    def about(self, state: State) -> list[tuple[str, str]]:
        """Return (word, text) pairs that `forge show` adds for this kind below its head; none here."""
        return []

    def show(self, state: State, look: Callable[[], Panels], everything: bool = False) -> None:
        """Print a started run: its head and the panels, which `look` returns.

        Panels that do not fit on one screen are named, unless `everything` is wanted.
        """
        page, width = look(), screen_width()
        name, head = name_of(state.run), panels.head_lines(page.head)
        words = [("run", f"{named(state.run)}  {state.status}")]
        words += [(word, renamed(text, state.run, name)) for word, text in head]
        words += self.about(state)
        if result := self._result(state):
            words.append(("model", result))
        top = panels.told(words, width)
        room = ALL if everything else SCREEN - len(top) - 1
        ordered = page.panels
        if state.ended:  # results come before the course of the run
            ordered = sorted(ordered, key=lambda panel: panel.kind not in panels.RESULTS)
        shown, footer = panels.fitting(ordered, name, width, room)
        say("\n".join(top))
        for lines in (*shown, footer):
            if lines:
                say("\n".join(["", *lines]))

    def announce(self, state: State, data: Json, name: str) -> None:
        """Print the result and figures of a completed run that is called `name`.

        `data` is the report, with `folder` if it has one.
        """
        result = self._result(state)
        say(f"run {name} completed{f': {result}' if result else ''}".rstrip())
        if "folder" in data:
            say(f"folder:   {data['folder']}")
        figures = self.kind.figures(state)
        for figure, value in figures.items():
            if figure in self.kind.figures_of:
                count = "" if value.n is None else f"  on {value.n} documents"
                say(f"{figure_text(self.kind, figure, value)}{count}")

    def _result(self, state: State) -> str:
        """Return one text of the run's result, its short id and its name; empty if there is none."""
        if (result := self.kind.models.result(state)) is None:
            return ""
        return f"{short(result.recipe_id)}  {self.kind.view.names(state).get(result.recipe_id, '')}"

    # ---- progress ----------------------------------------------------------------------------

    #: A sentence before the first line of `unit` that explains the lines; empty: not needed.
    legend = ""

    def unit(self, state: State, row: Envelope) -> str | None:
        """Return a line for an event that ends a unit; None for every other event."""
        number_ = self.kind.view.unit_of(row)
        if number_ is None:
            return None
        _, of = self.kind.view.progress(state)
        return self.done(number_, of)

    def done(self, number_: int, of: int | None) -> str:
        """Return a line: which unit is done, and of how many."""
        return f"{self.kind.unit} {number_} done" + (f", {of} in all" if of is not None else "")

    def frame(
        self,
        state: State,
        began: str,
        newest: str,
        hands: Sequence[Hand],
        news: Sequence[str],
        curve: Sequence[float | None] = (),
        rehearsal: object = None,
    ) -> live.Frame:
        """Return the Frame that a terminal draws of the state; `curve` is that of the run list."""
        page = overview(state, curve)
        return replace(live.frame(state, began, newest, hands, news, rehearsal), seen=page)

    def draw(self, shown: live.Frame, width: int, height: int, plain: bool) -> Group:
        """Return the picture of a frame, of `height` lines at most."""
        return live.draw(shown, width, height, live.utc(), plain)

    # ---- `forge replay`, `diff` ---------------------------------------------------

    def snapshot(self, data: Json) -> None:
        """Print a run at a place of its history: status, progress, pending tasks."""
        say(f"run         {named(data['run'])}  {data['status']}  after event {data['place']}")
        say(f"done        {data['done']}" + (f" of {data['of']}" if data["of"] else ""))
        say(f"pending     {', '.join(data['pending'])}".rstrip())

    def after(self, state: State, group: Sequence[Envelope]) -> str | None:
        """Return a line about the state after an append, for `forge replay --follow`; here, None."""
        return None

    def differences(self, data: Json) -> None:
        """Print the settings in which two runs differ, and whether their lineage does."""
        for name, (first, second) in data["settings"].items():
            say(f"setting {name}: {first} | {second}")
        click.echo(f"lineage: {'the same' if data['same_lineage'] else 'different'}")


class StudyTextView(TextView):
    """Plain texts of a run that a script decides."""

    @override
    def unit(self, state: State, row: Envelope) -> str | None:
        """Return a line for a segment, a measurement, or an event that the kind lists; else None.

        Of types that the kind counts there is a line for every tenth of all tasks.
        """
        from agent_forge.studies.study import LISTED

        kind: Any = self.kind  # a study
        data, names = json.loads(row.data), kind.view.names(state)
        if row.type in kind.counted:
            number_, of = kind.view.progress(state)
            return None if number_ % math.ceil((of or 1) / TENTHS) else self.done(number_, of)
        if row.type == "advanced":
            return self.segment(names.get(data["recipe_id"], ""), data) if data["curve"] else None
        is_listed = row.type == "observed" or row.type in kind.listed - LISTED - {kind.completed.type}
        if not is_listed or data.get("recipe_id", "") not in {"", *names}:
            return None
        words = kind.view.summary_line(row.type, data, names)
        if row.type == "observed":
            return f"measured {words}"
        return f"{row.type.replace('_', ' ')}: {words}" if words else None

    def segment(self, name: str, data: Json) -> str:
        """Return a line for a segment of the training `name`: step, loss, gradient, rate, speed."""
        last, speed = data["curve"][-1], data["tokens"] / max(data["seconds"], 1e-9)
        return (
            f"{name.partition(' ')[0]:14s} step {data['step']}  loss {last['loss']:.3f}  gradient "
            f"{last['norm']:.2f}  rate {last['rate']:.1e}  {speed:,.0f} tokens/s"
        )

    @override
    def announce(self, state: State, data: Json, name: str) -> None:
        kind: Any = self.kind  # a study
        roles = kind.roles(state.submitted.config)
        if not roles:
            super().announce(state, data, name)
            return
        for line in kind.lines(state):
            say(line)
        if folder := data.get("folder"):
            first, *rest = (
                f"{word}: {', '.join(f'{folder}/{part}' for part in parts)}"
                for word, parts in kind.contents(state.submitted.config).items()
            )
            further = [value for key, value in data.items() if key.endswith("_folder") and value]
            say("; ".join([", ".join([first, *further]), *rest]))
        names = [f"{name}:{role}" for role in roles] if len(roles) > 1 else [name]
        say(f"as {'models' if len(roles) > 1 else 'a model'}: {', '.join(names)}")
        for command in kind.prose.next_steps(kind.run(state), name):
            say(f"next: {command}")


def of(kind: str) -> TextView:
    """Return the view object of a kind of run. Raises UnknownKindError."""
    if kind in VIEWS:
        module, _, name = VIEWS[kind].partition(":")
        return getattr(import_module(module), name)(kind)
    return StudyTextView(kind) if hasattr(kinds.of(kind), "lines") else TextView(kind)
