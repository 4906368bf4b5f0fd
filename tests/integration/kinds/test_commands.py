"""Toy runs on the terminal: the commands that every kind of run shares, and the plain view."""

from __future__ import annotations

import io
import json
import os
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from agent_forge.cli import kind_views, live
from agent_forge.cli.main import forge
from agent_forge.cli.runs.progress import ProgressFollower
from agent_forge.events import EventStore
from agent_forge.runs import kinds
from agent_forge.runs.home import Home
from agent_forge.worker.queue.device_table import Hand
from testing.services import wandb_files
from testing.services.cluster import FORGE
from testing.toy import toy_runs
from testing.toy.toy_state import ToyConfig, ToyState, digest_of
from testing.toy.toy_world import ToyWorld
from testing.waiting import PATIENCE
from testing.worlds.runs import REPOSITORY


def call(home: Home, *words: str, code: int = 0) -> Result:
    """Return what `forge WORDS` says in a home."""
    env = {"FORGE_HOME": str(home.folder), "FORGE_DATABASE_URL": "", "FORGE_WANDB": ""}
    result = CliRunner(env=env).invoke(forge, list(words))
    assert getattr(result.exception, "exit_code", result.exit_code) == code, result.output
    return result


def called(home: Home, run: str) -> str:
    """Return what a run is called, which is not its id."""
    rows = told(home, "runs")
    (name,) = (row["name"] for row in rows if row["run"] == run)
    assert name != run
    return name


def told(home: Home, *words: str) -> dict:
    """Return the JSON that `forge WORDS --json` prints."""
    return json.loads(call(home, *words, "--json").stdout)


# ---- start -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.toml", "steps = 1\nwidth = 2\n"),
        ("run.json", '{"steps": 1, "width": 2}'),
        ("run.yml", "steps: 1\nwidth: 2\n"),
    ],
)
def test_a_run_of_any_kind_is_started_carried_and_announced(
    home: Home, tmp_path: Path, name: str, content: str
) -> None:
    (tmp_path / name).write_text(content)
    out = tmp_path / "out"
    result = call(
        home,
        "start",
        "toy",
        "--config",
        str(tmp_path / name),
        "--set",
        "seed=3",
        "--output-dir",
        str(out),
        "--key",
        "one",
    )
    ((run, state),) = every(home)
    assert state.submitted.config.model_dump() == {
        "steps": 1,
        "width": 2,
        "seed": 3,
        "device": "auto",
        "slow": 0.0,
        "failing": "",
        "poison": "",
        "divergent": "",
    }
    assert result.stdout.splitlines() == [
        f"run {called(home, run)} completed: {digest_of(state.total)[:12]}  total of step 0",
        f"folder:   {out}",
        f"total {state.total:,}",
    ]
    assert "step 0 done, 1 in all" in result.stderr
    assert json.loads((out / "total.json").read_text())["total"] == state.total
    assert call(home, "verify", str(out)).stdout.splitlines()[-1] == "verified."


def test_a_run_of_any_kind_is_printed_as_markdown(ended: Home) -> None:
    """Head and every panel; one panel is another matter."""
    total = toy_runs.state(ended).total
    lines = call(ended, "show", "r", "--report").stdout.splitlines()
    assert lines[0] == "# Run r"
    assert [line for line in lines if line.startswith("## ")] == ["## Totals", "## Steps", "## Tasks"]
    assert f"| 1 | {total} |" in lines
    assert told(ended, "show", "r", "--report")["report"].splitlines() == lines
    assert (
        "leave --panel and --all out"
        in call(ended, "show", "r", "--report", "--panel", "x", code=2).output
    )


def every(home: Home) -> list[tuple[str, ToyState]]:
    """Return every run's name and state."""
    with closing(home.open_store()) as store:
        names = _runs(store)
    return [(name, toy_runs.state(home, name)) for name in names]


def _runs(store: EventStore) -> list[str]:
    return [name.partition("/")[2] for name in store.names()]


def test_a_run_without_a_result_writes_no_folder(home: Home, tmp_path: Path) -> None:
    result = told(home, "start", "toy", "--set", "steps=0", "--output-dir", str(tmp_path / "out"))
    assert (result["total"], "folder" in result) == (0, False)
    assert not (tmp_path / "out").exists()


def test_a_run_is_submitted_and_another_process_carries_it(home: Home) -> None:
    run = told(home, "start", "toy", "--detach", "--key", "k", "--priority", "4")["run"]
    assert told(home, "start", "toy", "--detach", "--key", "k", "--priority", "4")["run"] == run
    (row,) = json.loads(call(home, "queue", "--json").stdout)
    assert (row["run"], row["kind"], row["priority"]) == (run, "toy", 4)
    assert "or --resume RUN" in call(home, "start", code=2).output
    refused = call(home, "start", "--resume", run, "--set", "steps=1", code=2)
    assert "leave out set" in str(refused.exception)
    result = call(home, "start", "--resume", run, "--output-dir", str(home.folder / "out"))
    assert f"run {called(home, run)} completed" in result.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("start", "abacus"), 3, "runs of kind 'abacus' are not known"),
        (("start", "toy", "--set", "width=0"), 2, "settings of a toy run: width"),
        (("start", "toy", "--set", "colour=1"), 2, "colour"),
        (("start", "toy", "--model", "base=x"), 2, "takes neither models nor data"),
        (("start", "toy", "--config", "nowhere.toml"), 2, "cannot be read"),
    ],
)
def test_what_cannot_be_started_is_refused_before_anything_is_recorded(
    home: Home, words: tuple[str, ...], code: int, said: str
) -> None:
    result = call(home, *words, code=code)
    assert said in str(result.exception)
    assert every(home) == []


def test_a_run_that_fails_says_so_and_is_tried_again(home: Home, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    words = ("--set", "failing=count/1/1", "--output-dir", out)
    result = call(home, "start", "toy", *words, code=1)
    assert "count/1/1 failed 3 times" in str(result.exception)
    ((run, _),) = every(home)
    assert told(home, "show", run)["reason"].startswith("task count/1/1 failed 3 times")
    call(home, "retry", run)
    assert toy_runs.state(home, run).status == "running"


# ---- reading ---------------------------------------------------------------------------------


def test_lists_and_events_are_told_in_the_kinds_words(ended: Home) -> None:
    state = toy_runs.state(ended)
    names, cells = (line.split("\t") for line in call(ended, "runs").stdout.splitlines())
    assert names[:3] == ["name", "kind", "status"]
    assert len(names) == len(cells)
    assert cells[:3] == ["r", "toy", "completed"]
    assert cells[4:7] == ["1", f"{state.total:,} total", digest_of(state.total)[:12]]
    lines = call(ended, "events", "r").stdout.splitlines()
    assert len(lines) == state.place
    assert lines[2].endswith(f"step 0, slot 0: {state.answers['count/0/0'].value}")


def test_a_run_is_shown_whatever_it_does(ended: Home) -> None:
    state = toy_runs.state(ended)
    toy_runs.submit(ended, "half")
    assert told(ended, "show", "half") == {"run": "half", "status": "submitted"}
    toy_runs.carry_until(ended, lambda state: len(state.answers) == 4, "half")
    total = state.steps[0].total
    assert call(ended, "show", "half").stdout.splitlines()[:8] == [
        "run       half  running",
        "kind      a toy run",
        "done      1 of 2 steps",
        f"result    total {total:,}  {digest_of(total)[:12]}",
        "facts     arithmetic sum@1",
        "now       waits for a worker (none is connected)",
        "helps     forge worker",
        f"model     {digest_of(total)[:12]}  total of step 0",
    ]
    assert told(ended, "show", "half")["pending"] == ["count/1/1", "count/1/2"]
    assert told(ended, "show", "r")["total"] == state.total


def test_replay_diff_and_compare_go_by_places(ended: Home) -> None:
    assert call(ended, "replay", "r", "--to", "4").stdout.splitlines() == [
        "run         r  running  after event 4",
        "done        0 of 2",
        "pending     count/0/2",
    ]
    assert told(ended, "replay", "r", "--generation", "0")["done"] == 1
    assert len(call(ended, "replay", "r", "--follow").stdout.splitlines()) == 11
    toy_runs.submit(ended, "other", steps=1)
    toy_runs.finish(ended, "other")
    expected = ["setting steps: 2 | 1", "lineage: different"]
    assert call(ended, "diff", "r", "other").stdout.splitlines() == expected
    compared = call(ended, "compare", "r", "other").stdout.splitlines()
    assert compared[0] == "comparable r and other: yes"
    assert "steps\t2\t1" in compared
    assert "Totals: 2 runs over each other." in compared
    assert "panels in common: totals, steps, tasks" in compared
    steps = call(ended, "compare", "r", "other", "--panel", "steps").stdout
    assert steps.index("Steps, r:") < steps.index("Steps, other:")
    unknown = call(ended, "compare", "r", "other", "--panel", "x", code=5)
    assert "They have: totals, steps, tasks." in str(unknown.exception)
    assert told(ended, "diff", "r", "r")["same_lineage"] is True


def test_a_run_is_watched_line_by_line(ended: Home) -> None:
    result = call(ended, "watch", "r")
    assert result.stderr.splitlines() == ["step 0 done, 2 in all", "step 1 done, 2 in all"]
    assert result.stdout == "run r completed\n"


def test_on_a_terminal_a_frame_says_how_far_the_run_is() -> None:
    """Head, who is at what in words, what happened last."""
    world = ToyWorld()
    while len(world.state.steps) < 1:
        world.step()
    view = kind_views.of("toy")
    stamp = "2026-01-01T00:00:00+00:00"
    hands = [Hand("host/cpu0", "count/1/2", 3.0), Hand("here", "\x1b[2J", None)]
    shown = view.frame(world.state, stamp, stamp, hands, ("counted step 0",))
    console = Console(record=True, width=60, height=20, file=io.StringIO())
    console.print(view.draw(shown, 60, 20, plain=True))
    first, *rest = console.export_text().splitlines()
    assert first.startswith("run toy-1  running  step 1 of 2  ")
    lines = [line.rstrip() for line in rest]
    total = world.state.total
    assert lines[:3] == [
        f"{'#' * 15}{'.' * 15}  1 of 2 steps",
        f"result    total {total:,}  {digest_of(total)[:12]}",
        "facts     arithmetic sum@1",
    ]
    assert lines[3:5] == [f"Totals: The total is {total} after 1 of 2 steps.", f"total  _  {total:,}"]
    assert lines[-3:] == [
        "now  count slot 2 of step 1  host/cpu0  3 s",
        "     ?[2J  here",
        "last counted step 0",
    ]
    assert live.draw(shown, 60, 2, live.utc()) is not None


def test_the_next_task_of_a_run_that_is_carried_here_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    world, progress = ToyWorld(), ProgressFollower()
    world.step()
    monkeypatch.setattr(progress, "_live", object())
    progress.watch(world.state, world.rows)
    assert progress._shown[1].hands == ("count slot 0 of step 0  here",)


def test_every_kind_has_a_view_and_every_view_a_kind() -> None:
    """A name in a table of strings is only found wrong when it is used."""
    assert all(isinstance(kind_views.of(kind), kind_views.TextView) for kind in kinds.table())
    assert set(kind_views.VIEWS) <= set(kinds.KINDS)
    assert type(kind_views.of("toy")) is kind_views.TextView


# ---- asking, histories -----------------------------------------------------------------------


def test_wishes_are_recorded_with_their_reasons(home: Home) -> None:
    toy_runs.submit(home)
    for words, status in (
        (("pause", "r", "--reason", "lunch"), "paused"),
        (("resume", "r"), "submitted"),
        (("priority", "r", "9"), "submitted"),
        (("cancel", "r"), "cancelled"),
    ):
        call(home, *words)
        assert toy_runs.state(home).status == status
    assert call(home, "pause", "r", code=6).exception


def test_a_fork_is_carried_on_and_archived_and_imported(
    ended: Home, home: Home, tmp_path: Path
) -> None:
    out, file = str(tmp_path / "out"), str(tmp_path / "fork.forge")
    done = told(ended, "fork", "r", "--generation", "1", "--set", "steps=3", "--output-dir", out)
    assert json.loads((tmp_path / "out" / "total.json").read_text())["total"] == done["total"]
    run = done["run"]
    call(ended, "archive", run, file)
    assert call(home, "verify", file).stdout.splitlines()[-1] == "verified."
    assert f"run {called(ended, run)}: " in call(home, "import", file).stdout
    assert call(home, "verify", "--all").stdout.splitlines()[-1] == "verified."
    assert toy_runs.state(home, run).total == done["total"]


def test_results_are_made_again_by_verify_and_a_foreign_folder_is_found(
    ended: Home, tmp_path: Path
) -> None:
    result = call(ended, "verify", "r", "--rebuild", "all")
    assert result.stdout.splitlines()[-1] == "verified."
    assert result.stderr.count(" is ") == 6
    assert call(ended, "verify", "r", "--rebuild", "nothing", code=5).exception
    out = tmp_path / "out"
    call(ended, "export", "r", "--out", str(out))
    document = json.loads((out / "total.json").read_text())
    (out / "total.json").write_text(json.dumps({**document, "total": 1}))
    assert "the folder says 1, the log" in call(ended, "verify", str(out), code=1).stdout


def test_the_tables_of_a_run_are_exported(ended: Home, tmp_path: Path) -> None:
    done = told(ended, "export", "r", "--parquet", str(tmp_path / "tables"))
    assert done["rows"] == {"steps": 2, "events": 11}


@pytest.mark.slow
def test_a_tracker_is_sent_the_kinds_rows_and_its_result(ended: Home, tmp_path: Path) -> None:
    """By a process of its own, into files; steps are the kind's units."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
    own = {f"WANDB_{n}_DIR": str(tmp_path / n) for n in ("DATA", "CACHE", "CONFIG", "ARTIFACT")}
    env = {**kept, **own, "FORGE_HOME": str(ended.folder), "WANDB_ERROR_REPORTING": "false"}
    done = subprocess.run(
        [*FORGE, "wandb", "sync", "r", "--offline", "--json"],
        env=env,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    written = wandb_files.read(Path(json.loads(done.stdout)["place"]))
    state = toy_runs.state(ended)
    assert written.history == [
        (one.step, {"step": one.step, "total": one.total}) for one in state.steps
    ]
    assert written.metrics["*"] == "step"
    assert written.config["width"] == 3
    ((name, metadata, files),) = written.artifacts
    assert (name, metadata) == ("r-result", {"run": "r", "total": state.total})
    assert json.loads(files["total.json"]) == metadata


def test_kinds_and_their_settings_are_listed(ended: Home) -> None:
    """With what the environment adds; a name within the settings chooses."""
    listed = json.loads(call(ended, "kinds", "--json").stdout)
    assert {row["name"] for row in listed} == set(kinds.table())
    assert all(row["line"] and row["unit"] for row in listed)
    settings = json.loads(call(ended, "settings", "toy", "--json").stdout)
    assert {row["name"]: row["default"] for row in settings} == ToyConfig().model_dump()
    assert [
        line.split("\t")[0] for line in call(ended, "settings", "toy", "po").stdout.splitlines()
    ] == ["setting", "poison"]
    assert "forge settings toy" in str(call(ended, "settings", "toy", "x", code=2).exception)


def test_a_model_s_ancestors_are_the_kind_s_own_matter(ended: Home) -> None:
    """The newest total comes first; its name chooses another; JSON has what each is."""
    result = call(ended, "lineage", "r")
    assert [line.split()[1:3] for line in result.stdout.splitlines()] == [["step", "1"], ["step", "0"]]
    first = result.stdout.splitlines()[1].split()[0]
    assert len(call(ended, "lineage", "r", first).stdout.splitlines()) == 1
    assert [one["step"] for one in told(ended, "lineage", "r").values()] == [0, 1]


@pytest.mark.parametrize("words", [("recipe", "r"), ("items", "r"), ("layers", "r")])
def test_commands_of_merging_runs_refuse_a_run_of_another_kind(
    ended: Home, words: tuple[str, ...]
) -> None:
    """In words, and not by a traceback."""
    result = call(ended, *words, code=2)
    assert "run r is a toy run: this needs a merging run" in str(result.exception)


@pytest.mark.parametrize("name", sorted(set(kinds.KINDS) - {"pipeline"}))
def test_every_kind_knows_settings_that_were_asked_for(name: str) -> None:
    """A pipeline's verification asks this of each phase; it failed for a kind without domains."""
    kind, given = kinds.of(name), {"prompts": ("x",)} if name == "bake" else {}
    config = kind.settings.parse(given)
    assert kind.settings.fit(given, config)
    assert not kind.settings.fit({**given, "seed": 12345}, config)
