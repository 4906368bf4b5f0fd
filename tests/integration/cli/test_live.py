"""The terminal's view of a run: what it shows, that it fits, and where it gives way to plain lines."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from contextlib import closing
from datetime import datetime
from fcntl import ioctl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from agent_forge.cli.evomerge import view
from agent_forge.cli.options import number, short
from agent_forge.cli.runs import progress as run_progress
from agent_forge.cli.runs.progress import ProgressFollower
from agent_forge.evomerge.reports import candidate_rows, generation_rows
from agent_forge.evomerge.run.state import RunState, fold
from agent_forge.evomerge.run.views.wording import task as doing
from agent_forge.runs import kinds
from agent_forge.runs.home import Home
from agent_forge.worker.queue.device_table import DeviceTable, WorkFinder
from agent_forge.worker.queue.leases import Leases, myself
from testing.waiting import PATIENCE
from testing.worlds import fake_runs
from testing.worlds.fake_world import World, small
from testing.worlds.runs import REPOSITORY
from tests.integration.cli.test_forge import call

NOW = datetime.fromisoformat("2026-01-01T01:02:03+00:00")


def world(**settings: object) -> World:
    """A run in its third generation, half of it measured."""
    made = World(small(generations=5, **settings))
    while len(made.state.generations) < 2 or len(made.state.slots(2)) < 2:
        made.step(lambda tasks: sorted(tasks, key=lambda task: task.key)[:1])  # builds come first
    return made


def shown(made: World, **more: object) -> view.LiveValues:
    """What is shown of it."""
    rows = made.rows
    return view.snapshot(made.state, rows[0].recorded_at, rows[-1].recorded_at, **more)  # pyright: ignore


def drawn(snapshot: view.LiveValues, width: int = 100, height: int = 40, plain: bool = False) -> str:
    """The picture as text."""
    console = Console(record=True, width=width, height=height, file=io.StringIO())
    console.print(view.draw(snapshot, width, height, NOW, plain))
    return console.export_text()


def test_the_head_says_which_run_how_far_and_how_long() -> None:
    made = world()
    first = drawn(shown(made)).splitlines()[0]
    words = ["run", "run-1", "running", "generation", "2", "of", "5", "for", "1:02:03"]
    assert first.split() == words


@pytest.mark.parametrize("width", [60, 80])
def test_how_far_it_is_and_the_time_left_are_said_below_it(width: int) -> None:
    """In the page's words, with a bar if there is room; and which scores are of which items."""
    made = world()
    rehearsal = kinds.of("evomerge").view.rehearse(made.state)
    seen = kinds.of("evomerge").view.outlook(made.state, rehearsal)
    assert seen.eta_s is not None
    lines = drawn(shown(made, rehearsal=rehearsal), width).splitlines()
    text = " ".join(" ".join(lines[1:3]).split())
    assert seen.words() in text
    assert lines[1].startswith("█") == (len(seen.words()) + 7 <= width)
    assert " ".join(view.LEGEND.split()) in " ".join(" ".join(lines).split())


def test_without_a_terminal_a_generation_says_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    """While the run goes on; the lines of one that has ended say no "0.0 s left"."""
    made, progress = World(small(generations=3)), ProgressFollower()
    made.run_until(lambda state: len(state.generations) == 2)
    progress._rehearsals.of(made.state)
    progress._rehearsals.close(wait=True)
    progress.watch(made.state, made.rows)
    lines = capsys.readouterr().err.splitlines()
    lines = [line for line in lines if line.startswith("generation ")]
    assert len(lines) == 2
    assert all(line.endswith(" left at most)") for line in lines)
    made.run()
    ProgressFollower().watch(made.state, made.rows)
    assert " left" not in capsys.readouterr().err


def test_the_clock_stops_where_the_run_does() -> None:
    made = World(small())
    made.run()
    text = drawn(shown(made)).splitlines()[0]
    assert text.split() == ["run", "run-1", "completed", "generation", "2", "of", "2", "in", "0:00:00"]


def test_curves_have_a_letter_a_generation_on_the_scale_of_their_items() -> None:
    """Best and mean are of each generation's draw, the champion of the selection slice."""
    made = World(small(generations=5, seed=4))
    made.run()
    rows, lines = generation_rows.rows(made.state), drawn(shown(made)).splitlines()
    for name in ("best", "mean", "champion"):
        together = ("champion",) if name == "champion" else ("best", "mean")
        every = [row[other] for row in rows for other in together]
        low, high = min(every), max(every)
        line = next(line for line in lines if line.startswith(view.CURVES[name]))
        curve = line.removeprefix(view.CURVES[name]).split()[0]
        assert len(curve) == len(rows) == 6
        for letter, row in zip(curve, rows, strict=True):
            place = (row[name] - low) / (high - low)
            assert abs(view.LEVELS.index(letter) / 7 - place) <= 1 / 14 + 1e-9
        assert number(rows[-1][name]) in line
    text = "".join(lines)
    assert "█" in text
    assert "▁" in text
    champion = next(line for line in lines if line.startswith("champion"))
    assert short(made.state.champion) in champion
    diversity = next(line for line in lines if line.startswith("diversity"))
    assert number(rows[-1]["diversity"], ".2f") in diversity
    assert rows[-1]["level"] in diversity


def test_a_value_that_is_missing_is_a_gap() -> None:
    assert view.spark([1.0, None, 2.0], 1.0, 2.0) == "▁ █"
    assert view.spark([3.0, 3.0], 3.0, 3.0) == "▁▁"


def test_the_population_is_a_row_a_slot() -> None:
    """Slot, scores, kind and pipeline, as `forge replay` has them; what is not measured is a dash."""
    made = world()
    lines = drawn(shown(made)).splitlines()
    start = next(i for i, line in enumerate(lines) if line.split()[:2] == ["slot", "search"])
    rows = candidate_rows.newest(made.state)
    assert len(rows) > 2
    for row, line in zip(rows, lines[start + 1 :], strict=False):
        told = [
            str(row["slot"]),
            number(row["search"]),
            number(row["selection"]),
            row["kind"],
            row["pipeline"],
        ]
        assert line.split()[:5] == told
    assert any(row["search"] is None for row in rows)


def test_who_is_at_what_and_what_happened_last() -> None:
    measuring = f"evaluate/search/2/{'a' * 64}"
    hands = [view.Hand("gpu1/cuda0", "build/2/3", 12.4), view.Hand("gpu1/cuda1", measuring)]
    text = drawn(shown(world(), hands=hands, news=["10:00:00 paused", "10:00:01 resumed"]))
    lines = [line.rstrip() for line in text.splitlines()]
    assert "now  building 2/3  gpu1/cuda0  12 s" in lines
    assert "     measuring aaaaaaaaaaaa on search  gpu1/cuda1" in lines
    assert lines[-2:] == ["last 10:00:00 paused", "     10:00:01 resumed"]


@pytest.fixture(scope="module")
def large() -> World:
    """Twelve slots, forty generations."""
    made = World(small(population_size=12, elite_size=3, generations=40))
    made.run_until(lambda s: len(s.generations) == 39 and len(s.slots(39)) == 12)
    return made


@pytest.mark.parametrize("height", [1, 3, 5, 8, 12, 24, 60])
@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_it_fits_whatever_the_terminal(large: World, width: int, height: int) -> None:
    """No line is longer than the terminal is wide, and there are no more than it has."""
    hands = [view.Hand(f"host{n}/cuda0", "start", 1.0) for n in range(9)]
    news = [f"10:00:0{n} evaluated {'x' * 90}" for n in range(6)]
    lines = drawn(shown(large, hands=hands, news=news), width, height).splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    if height == 60:
        assert len([line for line in lines if re.match(r" +\d+ ", line)]) == 12


def test_where_there_is_no_room_the_best_stay() -> None:
    made = World(small(population_size=12, elite_size=3))
    made.run_until(lambda s: len(s.generations) == 1)
    scores = sorted((r["search"] for r in candidate_rows.newest(made.state)), reverse=True)
    text = drawn(shown(made), 100, 12)
    told = [number(score) in text for score in scores]
    assert told == sorted(told, reverse=True), "a worse one is shown and a better one is not"
    assert any(told)
    assert f"{told.count(False)} more" in text


def test_names_of_others_move_no_cursor() -> None:
    """A run's name, a reason: whatever it holds is text."""
    hands = [view.Hand("\x1b[2Jevil", "start")]
    text = drawn(shown(world(), hands=hands, news=["10:00:00 cancelled reason=[red]\x07\x1b]0;x"]))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[red]" in text


def test_plain_letters_where_the_terminal_has_no_others() -> None:
    made = World(small())
    made.run()
    text = drawn(shown(made), plain=True)
    assert text.isascii() or "…" in text
    assert not set(text) & set(view.LEVELS)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("start", "reading models and data"),
        ("profile", "measuring speed and memory"),
        ("baseline/mean", "building mean"),
        ("layers/1/2", "choosing layers for 1/2"),
        ("build/1/2", "building 1/2"),
        (f"evaluate/test/all/{'b' * 64}", "measuring bbbbbbbbbbbb on test"),
        ("generation_completed", ""),
    ],
)
def test_tasks_are_told_in_words(task: str, words: str) -> None:
    assert doing(task) == words


def test_devices_and_processes_at_work_are_found(tmp_path: Path) -> None:
    """By the roster, and by leases where a process carries the run itself; of this run only."""
    with closing(Home(tmp_path).open_store()) as store:
        roster, leases = DeviceTable(store.database), Leases(store.database)
        roster.enter("host/cpu0", myself("cpu0"), "cpu")
        roster.say("host/cpu0", myself("cpu0"), "busy", run="r", task="build/1/0")
        assert leases.claim("r/build/1/0")
        assert leases.claim("r/build/1/1")
        assert leases.claim("other/build/1/1")
        found = WorkFinder(store, "r")()
    assert (found[0].who, found[0].task) == ("host/cpu0", "build/1/0")
    assert len(found) == 2
    assert found[1].task == "build/1/1"
    assert found[1].who.endswith(f"process {os.getpid()}")


# ---- where it is shown ---------------------------------------------------------------------


def terminal(home: Path, *words: str, **env: str) -> str:
    """What `forge WORDS` writes to a terminal of 80 by 24."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    process = subprocess.Popen(
        [sys.executable, "-c", "from agent_forge.cli.main import main; main()", *words],
        env={**kept, "FORGE_HOME": str(home), "TERM": "xterm-256color", "LANG": "C.UTF-8", **env},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=REPOSITORY,
    )
    os.close(theirs)
    seen, end = b"", time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if not select.select([ours], [], [], 0.2)[0]:
            continue
        try:
            piece = os.read(ours, 1 << 16)
        except OSError:
            break
        if not piece:
            break
        seen += piece
    os.close(ours)
    assert process.wait(PATIENCE) == 0, seen.decode(errors="replace")
    return seen.decode()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A home with a finished run r."""
    with closing(Home(tmp_path).open_store()) as store:
        fake_runs.whole(store, "r")
    return tmp_path


@pytest.mark.slow
def test_on_a_terminal_it_is_drawn_and_left_as_it_was_found(place: Path) -> None:
    """No second screen, so that what was there can be scrolled to; the cursor is shown again."""
    seen = terminal(place, "watch", "r")
    assert "run r" in re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", seen)
    assert set(seen) & set(view.LEVELS)
    assert "\x1b[?1049h" not in seen
    assert seen.rfind("\x1b[?25h") > seen.rfind("\x1b[?25l")
    assert seen.rstrip().endswith("run r completed")


@pytest.mark.slow
def test_without_colour_there_is_none(place: Path) -> None:
    seen = terminal(place, "watch", "r", NO_COLOR="1")
    assert set(seen) & set(view.LEVELS)
    assert not re.search(r"\x1b\[[\d;]*3\d", seen)


def test_a_dumb_terminal_gets_lines(place: Path) -> None:
    seen = terminal(place, "watch", "r", TERM="dumb")
    assert "\x1b" not in seen
    assert seen.count("generation ") == 3
    assert "generation 2: best" in seen


def test_a_file_gets_the_same_lines(place: Path) -> None:
    result = call(place, "watch", "r")
    with closing(Home(place).open_store()) as store:
        state = fold(store.read("evomerge/r"))
    expected = [
        view.LEGEND,
        *(
            f"generation {g['generation']}: best on its draw {number(g['best'])}, mean "
            f"{number(g['mean'])}; champion {short(g['champion_id'])} on selection "
            f"{number(g['champion'])}; diversity {number(g['diversity'], '.2f')}"
            for g in generation_rows.rows(state)
        ),
    ]
    assert result.stderr.splitlines() == expected


def test_what_is_drawn_is_taken_before_the_state_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal is drawn by another thread, while the state is folded in place."""
    made, progress = world(), ProgressFollower()
    monkeypatch.setattr(progress, "_live", object())
    progress.watch(made.state, made.rows)
    snapshot = progress._shown[1]
    assert snapshot is not None
    assert [hand.split()[-1] for hand in snapshot.hands] == ["here"]
    before = drawn(snapshot)
    made.run()
    assert drawn(snapshot) == before
    progress.watch(made.state, made.rows[-1:])
    assert progress._shown is not None
    assert progress._shown[1].status == "completed"
    assert progress._shown[1].hands == ()


def test_what_was_probed_is_said_when_the_run_starts(capsys: pytest.CaptureFixture[str]) -> None:
    """Other warnings were said before."""
    made = world()
    row = next(row for row in made.rows if row.type == "started")
    said = ["probed: 64 tokens", "not probed: no compiler", "the tokenizers differ"]
    data = json.dumps({**json.loads(row.data), "warnings": said})
    own: Any = SimpleNamespace(type=row.type, recorded_at=row.recorded_at, data=data)
    ProgressFollower().watch(made.state, [own])
    assert capsys.readouterr().err.splitlines() == said[:2]


def test_a_run_that_is_only_submitted_is_shown() -> None:
    made = World(small())
    text = drawn(shown(made))
    assert text.splitlines()[0].startswith("run run-1  submitted")
    assert isinstance(made.state, RunState)


def test_a_command_that_waits_says_what_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever waits reads how far it is; what there is no word for is not said."""
    monkeypatch.setattr(run_progress, "WAIT", 0.0)
    monkeypatch.setattr(run_progress, "LOOK", 0.001)
    asked = threading.Semaphore(0)
    texts = iter(["", "sample replies: 12 of 64 pieces"])

    def words() -> str:
        asked.release()
        return next(texts, "")

    with run_progress.Waiting(words):
        for _ in range(3):  # the third look comes after the second text was printed
            assert asked.acquire(timeout=PATIENCE)
    assert capsys.readouterr().err == "  sample replies: 12 of 64 pieces\n"


def test_a_trial_says_how_long_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run tries the work for minutes, and nothing else may be said meanwhile."""
    assert run_progress.WAIT + run_progress.LOOK < 10, "a line comes before ten seconds are silent"
    monkeypatch.setattr(run_progress, "WAIT", 0.0)
    monkeypatch.setattr(run_progress, "LOOK", 0.001)
    lines: list[str] = []
    said = threading.Event()

    def say(_waiting: run_progress.Waiting, line: str) -> None:
        lines.append(line)
        said.set()

    monkeypatch.setattr(run_progress.Waiting, "say", say)
    with run_progress.lasting("trying"):
        assert said.wait(PATIENCE)
    assert lines[0].startswith("  trying for ")
