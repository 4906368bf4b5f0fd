"""Head and panels of toy runs on the terminal, of every kind of panel, and of a kind with no words."""

from __future__ import annotations

import csv
import io
import json
from contextlib import closing
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from fastapi.testclient import TestClient
from rich.console import Console

from agent_forge.api.app import create
from agent_forge.api.options import LOOPBACK, Options
from agent_forge.cli import kind_views, panels
from agent_forge.cli.options import grid
from agent_forge.cli.runs.progress import ProgressFollower
from agent_forge.runs import kinds
from agent_forge.runs.errors import NotFoundError
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.runs.kinds.view import Curve, overview
from agent_forge.runs.lists import queries
from agent_forge.worker.commands import accounts, submit
from agent_forge.worker.exports import panel_picture
from testing.panels import EVERY
from testing.toy import bare_kind, shown_kind, toy_kind, toy_runs
from testing.toy.toy_state import digest_of
from testing.toy.toy_world import ToyWorld
from tests.integration.kinds.test_commands import call

# ---- forge show ------------------------------------------------------------------------------


def test_show_draws_head_and_panels_from_the_data_of_the_api(ended: Home) -> None:
    """Head, then each panel: its title, its sentence, curves, table."""
    state = toy_runs.state(ended)
    first, second = (done.total for done in state.steps)
    assert call(ended, "show", "r").stdout.splitlines() == [
        "run       r  completed",
        "kind      a toy run",
        "done      2 of 2 steps",
        f"result    total {second:,}  {digest_of(second)[:12]}",
        "facts     arithmetic sum@1",
        f"model     {digest_of(second)[:12]}  total of step 1",
        "",
        f"Totals: The total is {second} after 2 of 2 steps.",
        f"total  ▁█  {second:,}",
        f"step 0 to 1; total {first:,} to {second:,}",
        "",
        "Steps: 2 steps of 3 tasks are closed.",
        "step  total",
        f"0     {first:,}",
        f"1     {second:,}",
        "",
        "Tasks: 6 done.",
        "what                    state  failed attempts  task",
        *(
            f"count slot {slot} of step {step}  done   0                count/{step}/{slot}"
            for step in range(2)
            for slot in range(3)
        ),
    ]


def test_one_panel_is_exported_in_each_format(ended: Home) -> None:
    totals = [done.total for done in toy_runs.state(ended).steps]
    show = ("show", "r", "--panel", "totals", "--format")
    rows = list(csv.DictReader(io.StringIO(call(ended, *show, "csv").stdout)))
    assert [float(row["total"]) for row in rows] == totals
    told = json.loads(call(ended, *show, "json").stdout)
    assert told["series"][0]["y"] == totals
    assert json.loads(call(ended, "show", "r", "--panel", "totals", "--json").stdout) == told
    assert call(ended, *show, "text").stdout.splitlines()[-1].split("\t")[3:5] == ["1", f"{totals[1]}"]
    svg = call(ended, *show, "svg").stdout_bytes
    assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    assert call(ended, *show, "png").stdout_bytes.startswith(b"\x89PNG\r\n")


def test_an_unknown_panel_and_a_format_of_no_panel_are_refused(ended: Home) -> None:
    said = call(ended, "show", "r", "--panel", "loss", code=NotFoundError.exit_code).exception
    assert "totals, steps, tasks" in str(said)
    assert "--panel" in call(ended, "show", "r", "--format", "csv", code=2).stderr


def test_show_says_what_a_run_waits_for(home: Home) -> None:
    """From the tables of devices and leases: a run that has ended says no such thing."""
    toy_runs.submit(home)
    toy_runs.carry_until(home, lambda state: len(state.answers) == 1)
    lines = call(home, "show", "r").stdout.splitlines()
    assert "now       waits for a worker (none is connected)" in lines
    assert "Tasks: 1 done, 2 open." in lines


def test_show_fits_a_screen_and_names_the_rest(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty lines of eighty columns: what is shown is whole, what is not is named, `--all` has it."""
    monkeypatch.setenv(kinds.FURTHER, f"{toy_kind.KNOWN},{shown_kind.KNOWN}")
    with closing(home.open_store()) as store:
        submit.submit(store, submit.plan(RunRequest("shown", {})), "r")
    toy_runs.finish(home)
    text, every = (call(home, "show", "r", *more).stdout for more in ((), ("--all",)))
    lines = text.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    told = " ".join(text.partition("\nmore ")[2].split())
    names, colon, hint = told.partition(": ")
    assert (colon, hint) == (": ", "forge show r --panel NAME, or --all")
    for panel in EVERY.values():
        whole = panels.whole(panel, "r", 80)
        assert ("\n".join(whole) in text) != (panel.name in names.split(", "))
        assert "\n".join(whole) in every
    assert "--all" in call(home, "show", "r", "--all", "--panel", "x", code=2).stderr


# ---- every kind of panel ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("plain", [False, True])
def test_a_panel_is_drawn_within_its_room(kind: str, plain: bool) -> None:
    """Whole, or by its name; and texts of strangers steer no terminal."""
    panel = EVERY[kind]
    whole = panels.whole(panel, "r", 72, plain)
    for room in range(len(whole) + 3):
        shown, others = panels.fitting([panel], "r", 72, room, plain)
        assert shown in ([], [whole])
        assert bool(others) == (not shown)
        assert sum(map(len, shown)) <= room
    assert shown == [whole]
    text = "\n".join(whole)
    assert "\x1b" not in text
    assert all(len(row) <= 72 for row in text.splitlines())
    assert text.startswith(panel.title)


def test_a_name_in_the_first_column_is_never_cut() -> None:
    """It is what the next command needs, whatever the width of the terminal."""
    name = "20261128-fc90ae.12-a-phase-with-a-long-name"
    for width in (40, 60, 80):
        lines = grid(["run", "why"], [[name, "a reason in several words " * 5]], width)
        assert lines[1].startswith(name)
        assert "…" not in "".join(lines)


def test_tables_have_the_figures_and_curves_their_ends() -> None:
    told = {kind: panels.picture(panel) for kind, panel in EVERY.items()}
    assert told["lines"].curves[0] == "adamw (seed 0)  ▇▄▁  1"
    assert told["lines"].curves[3] == "step 0 to 2; loss 1 to 4.5, logarithmic"
    assert told["front"].curves == ["1 more points are beaten by these"]
    assert told["matrix"].rows[0][1:] == ["0.75 (0.7 to 0.8)", "0.5 (0.4 to 0.6)"]
    assert told["arms"].rows[1][-2:] == ["+0.25 (+0.125 to +0.375)", "better"]
    assert told["shares"].curves[1].split()[-2:] == ["75.0%", "3"]
    assert told["units"].rows == [["1", "0.75", "yes"], ["2", "-", "no"]]
    assert told["gates"].rows[1][-3:] == ["overridden", "ada", "a first try"]
    assert told["graph"].rows[2][-1] == "code, text"
    assert told["strip"].rows[1][2].startswith("◔ running, 25 %, 3 min 05 s left")
    many = EVERY["units"].model_copy(update={"rows": tuple((i, 0.5, True) for i in range(1000))})
    made = panels.picture(many)
    assert (len(made.rows), made.more, made.rows[-1][0]) == (panels.ROWS, 980, "999")


@pytest.mark.parametrize("kind", EVERY)
def test_a_panel_is_a_picture_and_always_the_same(kind: str) -> None:
    """A $ in a name begins no formula, and no control character makes the file invalid XML."""
    panel = EVERY[kind].model_copy(update={"title": "$x^{ \x01"})
    svg = panel_picture.picture(panel, "svg")
    assert svg == panel_picture.picture(panel, "svg")
    ElementTree.fromstring(svg)
    assert panel_picture.picture(panel, "png").startswith(b"\x89PNG")


# ---- a kind with no words --------------------------------------------------------------------


@pytest.fixture
def bare(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home with run `r` of the bare kind, of which four of six tasks are done."""
    monkeypatch.setenv(kinds.FURTHER, f"{toy_kind.KNOWN},{bare_kind.KNOWN}")
    with closing(home.open_store()) as store:
        submit.submit(store, submit.plan(RunRequest("bare", {})), "r")
    toy_runs.carry_until(home, lambda state: len(state.answers) == 4)
    return home


def test_a_kind_with_no_words_shows_its_progress_on_the_terminal(bare: Home) -> None:
    """Its tasks are known to every kind, done and open."""
    lines = call(bare, "show", "r").stdout.splitlines()
    assert lines[:3] == ["run       r  running", "kind      a bare run", "done      4 steps done"]
    assert "Tasks: 4 done, 2 open." in lines
    assert [row.split()[-3] for row in lines[-6:]] == ["done"] * 4 + ["open"] * 2
    toy_runs.finish(bare)
    assert "done      6 of 6 steps" in call(bare, "show", "r").stdout.splitlines()


def test_a_kind_with_no_words_shows_its_progress_to_a_page(bare: Home, tmp_path: Path) -> None:
    with closing(bare.open_store()) as store:
        accounts.add(store, "ada", "viewer")
        token = accounts.issue(store, "ada")[1]
    options = Options((tmp_path,), rate=1e5, hosts=(*LOOPBACK, "testserver"))
    with TestClient(create(bare, options)) as client:
        client.headers["Authorization"] = f"Bearer {token}"
        told: dict[str, Any] = client.get("/runs/r/panels").json()
    assert (told["head"]["done"], told["head"]["of"]) == (4, None)
    assert told["head"]["now"]["waits_for"] == "a worker (none is connected)"
    (tasks,) = told["panels"]
    assert [row[1] for row in tasks["rows"]] == ["done"] * 4 + ["open"] * 2


def test_a_failed_task_and_the_reason_of_a_failure_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ToyWorld()
    world.step()
    world.fail("count/0/1")
    seen = overview(world.state)
    tasks = next(panel for panel in seen.panels if panel.name == "tasks")
    assert [row[1:3] for row in tasks.rows] == [("open", 0), ("open", 1), ("open", 0)]  # pyright: ignore
    while not world.state.failed:
        world.fail("count/0/1") if world.state.failures["count/0/1"].attempt < 3 else world.step()
    facts = {fact.name: fact.value for fact in overview(world.state).head.facts}
    assert facts["tasks that failed"] == 1
    assert facts["reason"] == world.state.failed.reason


# ---- the run list's curve --------------------------------------------------------------------


def test_the_curve_of_a_runs_own_rows_is_that_of_the_run_list(ended: Home) -> None:
    """A kind without panels shows the curve that the list of runs has."""
    state, kind = toy_runs.state(ended), kinds.of("toy")
    own = Curve(kind.view, state.registry)
    for row in toy_runs.rows(ended):
        own.take([row])
    with closing(ended.open_store()) as store:
        listed = queries.row(store, "r")
    assert listed
    assert own.values == json.loads(listed["curve"]) == [done.total for done in state.steps]
    shown = super(type(kind.view), kind.view).panels(state, own.values)
    assert [panel.name for panel in shown] == ["scores", "tasks"]
    assert list(shown[0].series[0].y) == own.values  # pyright: ignore


def test_a_live_view_gets_the_curve_of_the_rows_it_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    """`forge watch` draws head and panels of a run while it lives."""
    world, progress = ToyWorld(), ProgressFollower(list)
    monkeypatch.setattr(progress, "_live", object())
    while not world.state.ended:
        before = len(world.rows)
        world.step()
        progress.watch(world.state, world.rows[before:])
    shown = progress._shown[1]
    assert shown.seen.head.done == 2
    console = Console(record=True, width=80, height=24, file=io.StringIO())
    console.print(kind_views.of("toy").draw(shown, 80, 24, False))
    text = console.export_text()
    for told in ("result", "facts", "Totals", "Steps", "more      tasks", "last"):
        assert told in text
    assert len(text.splitlines()) <= 24
