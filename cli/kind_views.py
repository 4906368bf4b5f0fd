"""Terminal views of the kinds of run: the table of views, and the view that suits every kind.

Commands for runs of any kind print through `of(kind)` and import no kind. A kind that has more to
show has a class of its own in the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import click

from cli import live, panels, screen
from cli.options import name_of, named, say, screen_width, short
from runs import kinds
from runs.panels.head import Panels
from runs.panels.markdown import renamed

#: Kind of run → its class of views, imported when it is asked for; other kinds are shown by `View`.
VIEWS = {
    "compression": "cli.phases.compression_view:CompressionView",
    "evomerge": "cli.evomerge.view:EvoMergeView",
    "measure": "cli.phases.measure_view:MeasureView",
}


#: Lines of a screen of `forge show`, and more lines than any run has.
SCREEN, ALL = 40, 1_000_000


class View:
    """Plain texts of a run, by what every kind of run has."""

    def __init__(self, kind: str) -> None:
        self.kind = kinds.of(kind)

    # ---- `forge show` and the end of a run ---------------------------------------------------

    def summary(self, state: Any, rows: list[Any]) -> dict[str, Any]:
        """Return a started run as plain data: the report if it has completed, else how far it is."""
        return self.kind.report(state, rows) if state.completed else self.kind.snapshot(state)

    def about(self, state: Any) -> list[tuple[str, str]]:
        """Return (word, text) for what `forge show` says of a kind beside its head."""
        return []

    def show(self, state: Any, look: Callable[[], Panels], everything: bool = False) -> None:
        """Print a started run: head and panels, which `look` returns.

        Panels that do not fit on one screen are named, unless `everything` is wanted.
        """
        page, width = look(), screen_width()
        name, head = name_of(state.run), panels.head_lines(page.head)
        words = [("run", f"{named(state.run)}  {state.status}")]
        words += [(word, renamed(text, state.run, name)) for word, text in head]
        words += self.about(state)
        if result := self.kind.result_id(state):
            words.append(("model", f"{short(result)}  {self.kind.names(state).get(result, '')}"))
        top = screen.told(words, width)
        room = ALL if everything else SCREEN - len(top) - 1
        ordered = screen.results_first(page.panels) if state.ended else page.panels
        shown, footer = screen.fitting(ordered, name, width, room)
        say("\n".join(top))
        for lines in (*shown, footer):
            if lines:
                say("\n".join(["", *lines]))

    def announce(self, state: Any, data: dict[str, Any], name: str) -> None:
        """Print the result of a completed run that is called `name`.

        `data` is the report, with `folder` if it has one.
        """
        result = self.kind.result_id(state)
        words = f": {short(result)}  {self.kind.names(state).get(result, '')}" if result else ""
        say(f"run {name} completed{words}".rstrip())
        if "folder" in data:
            say(f"folder:   {data['folder']}")

    # ---- progress ----------------------------------------------------------------------------

    #: What the lines of `unit` mean, in a sentence before the first of them; empty: they say it.
    legend = ""

    def unit(self, state: Any, row: Any) -> str | None:
        """Return a line for an event that ends a unit; None for every other event."""
        number_ = self.kind.unit_of(row)
        if number_ is None:
            return None
        _, of = self.kind.progress(state)
        return f"{self.kind.unit} {number_} done" + (f", {of} in all" if of is not None else "")

    def frame(
        self,
        state: Any,
        began: str,
        newest: str,
        hands: Any,
        news: Any,
        curve: Any = (),
        rehearsal: Any = None,
    ) -> Any:
        """Return what a terminal draws of the state; `curve` is that of the run list."""
        page = self.kind.overview(state, curve)
        return replace(live.frame(state, began, newest, hands, news, rehearsal), seen=page)

    def draw(self, shown: Any, width: int, height: int, plain: bool) -> Any:
        """Return the picture of a frame."""
        return live.draw(shown, width, height, live.utc(), plain)

    # ---- `forge replay`, `diff` ---------------------------------------------------

    def snapshot(self, data: dict[str, Any]) -> None:
        """Print a run at a place of its history."""
        say(f"run         {named(data['run'])}  {data['status']}  after event {data['place']}")
        say(f"done        {data['done']}" + (f" of {data['of']}" if data["of"] else ""))
        say(f"pending     {', '.join(data['pending'])}".rstrip())

    def after(self, state: Any, group: Any) -> str | None:
        """Return a line about the state after an append, for `forge replay --follow`; or None."""
        return None

    def differences(self, data: dict[str, Any]) -> None:
        """Print how one run differs from another."""
        for name, (first, second) in data["settings"].items():
            say(f"setting {name}: {first} | {second}")
        click.echo(f"lineage: {'the same' if data['same_lineage'] else 'different'}")


def of(kind: str) -> View:
    """Return the view of a kind of run. Raises UnknownKindError."""
    study = hasattr(kinds.of(kind), "script")
    usual = "cli.phases.training_view:TrainingView" if study else f"{__name__}:View"
    module, _, name = VIEWS.get(kind, usual).partition(":")
    return getattr(import_module(module), name)(kind)
