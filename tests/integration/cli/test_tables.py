"""Tables at a narrow terminal: columns are left out, no cell is cut."""

from __future__ import annotations

import sys

import click
import pytest

from agent_forge.cli.options import grid, table
from agent_forge.cli.runs.inspect import _runs_table, _under_parents

NAMES = ["speedrun-1128-12.5-learned-test", "mini-1128", "a-long-name-that-somebody-has-typed-1128"]


WIDTHS = pytest.mark.parametrize("width", [60, 80, 200])


def on_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """Let stdout be a terminal of this width. Called in the test itself, whose stdout is captured."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)


def row(run: str, name: str, part_of: str | None = None) -> dict[str, object]:
    """A row of the run list."""
    return {
        "run": run,
        "name": name,
        "part_of": part_of,
        "kind": "compression",
        "status": "completed",
        "submitted_at": "2026-11-28T09:00:00+00:00",
        "generation": 3,
        "metric": "fitness",
        "value": 1.25,
        "unit": "",
        "better": "up",
        "champion": "c" * 64,
        "tags": "paper",
        "owner": "somebody",
        "parent": None,
    }


@WIDTHS
def test_the_name_is_whole_at_any_width(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_terminal(monkeypatch, width)
    rows = [row(f"key-{i:012d}", name) for i, name in enumerate(NAMES)]
    _runs_table(_under_parents(rows))
    told = capsys.readouterr()
    lines = click.unstyle(told.out).splitlines()
    assert len(lines) == 1 + len(rows)
    assert [line for line in lines if len(line) > width] == []
    assert all(name in told.out for name in NAMES)
    assert "…" not in told.out
    assert ("key-" in told.out) == (width == 200)
    assert ("id" in told.err) == (width < 200)


def test_phases_stand_below_their_pipeline_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    """The list has the newest first; the phases of one pipeline have the oldest first."""
    rows = [
        row("p.2", "p.2-merge", "p"),
        row("p.1.t", "p.1-base-test", "p.1"),
        row("p.1", "p.1-base", "p"),
        row("q", "q"),
        row("p", "p"),
        row("o.3", "o.3-late", "o"),
    ]
    _runs_table(_under_parents(rows))
    lines = [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()]
    tree = ["q", "p", "  p.1-base", "    p.1-base-test", "  p.2-merge", "o.3-late"]
    assert lines == ["name", *tree]


@WIDTHS
def test_a_table_that_fits_has_all_columns(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_terminal(monkeypatch, width)
    table(["a", "b"], [["1", "2"]], droppable=["b"])
    told = capsys.readouterr()
    assert (click.unstyle(told.out).split(), told.err) == (["a", "b", "1", "2"], "")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_word_of_a_head_is_cut(width: int) -> None:
    """The heads of what each model solves broke into `question` and `s`."""
    figures = ("bits per byte", "questions right of 400")
    columns = ["", *(f"{part}: {text}" for part in ("code", "data", "math") for text in figures)]
    lines = grid(columns, [["task-arithmetic-0.5", *["1.8803"] * 6]], width)
    words = " ".join(lines).split()
    assert [words.count(word) for word in ("questions", "right", "per")] == [3, 3, 3]


def test_a_word_of_a_cell_is_cut_only_where_it_must_be() -> None:
    """A verdict and a limit were cut in two at 80 columns, which suffice: 65 letters, 7 gaps."""
    columns = ["gate", "value", "95 % interval", "baseline", "limit", "verdict", "by", "reason"]
    row = ["first total", "2,004", "", "-", "1,000,000,000", "overridden", "root", "good enough"]
    text = "\n".join(grid(columns, [row], 80))
    assert "1,000,000,000" in text
    assert "overridden" in text
    assert max(map(len, text.splitlines())) <= 80
    narrow = grid(columns, [row], 60)
    assert all(word in "\n".join(narrow) for word in ("first total", "interval", "reason"))
