"""The report of a pipeline for people: from the log alone, at any time, checked by `forge verify`."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from agent_forge.pipeline import folder
from agent_forge.pipeline.events import GateOverridden
from agent_forge.runs import kinds
from agent_forge.runs.errors import ForgeError
from agent_forge.runs.home import Home
from agent_forge.runs.panels import report_html
from agent_forge.runs.record import events
from testing.toy import toy_pipelines, toy_runs
from testing.toy.toy_pipelines import TWO, phase
from tests.integration.kinds.test_commands import call
from tests.integration.pipeline.test_whole_pipelines import ask


def report(home: Home, run: str = "p") -> str:
    """Return a pipeline's report."""
    return folder.documents(home, run)[folder.MARKDOWN].decode()


def section(text: str, title: str) -> str:
    """Return the part of a report under a heading."""
    return text.partition(f"## {title}\n")[2].partition("\n## ")[0]


def stopped(home: Home, phases: list[dict[str, Any]] = TWO) -> None:
    """Carry a pipeline on to its failure."""
    toy_pipelines.submit(home, phases)
    with suppress(ForgeError):
        toy_runs.finish(home, "p")


# ---- what it says ----------------------------------------------------------------------------


def test_a_report_has_a_section_for_each_phase_and_says_what_came_of_it(honest_home: Home) -> None:
    """What was asked, the run, its models, its figures, its own words, its gates."""
    text = report(honest_home)
    first, second = (toy_runs.state(honest_home, run) for run in ("p.1-first", "p.2-second"))
    assert text.startswith("# Pipeline p: first → second\n\n**The pipeline has completed.**")
    assert f"`second:total` (weights `{second.completed.digest[:12]}`)" in text
    told = section(text, "1. first")
    assert "`seed = 1`" in told
    assert "Run `p.1-first` completed after" in told
    assert f"| total | – | `{first.completed.digest[:16]}` |" in told
    assert f"- total {first.total:,.0f}: that of all steps (`total`)" in told
    assert f"- total is {first.total:,.0f}, and must be at least 1: **passed**" in told
    assert f"Total: {first.total:,.0f}." in told
    assert "Gates:" not in section(text, "2. second")
    assert f"`{toy_runs.state(honest_home, 'p').head}`" in section(text, "How to check this report")


def test_it_is_written_from_the_log_alone(honest_home: Home, tmp_path: Path) -> None:
    """A copy of the log, without anything that was made, gives the same text."""
    there = Home(tmp_path / "there")
    there.folder.mkdir()
    for file in honest_home.folder.glob(f"{honest_home.database.name}*"):
        shutil.copy(file, there.folder)
    assert report(there) == report(honest_home)


def test_a_pipeline_under_way_says_what_is_known_so_far(home: Home) -> None:
    toy_pipelines.submit(home)
    toy_runs.carry_until(home, lambda s: s.run == "p.2-second" and len(s.steps) == 1, "p")
    text = report(home)
    assert "**The pipeline is running:** 1 of 2 phases has ended." in text
    assert "Run `p.2-second` is running: 1 of 3 steps done." in section(text, "2. second")
    assert "| 2 | second | toy | under way |" in text
    assert "Lineage digest" not in text
    toy_pipelines.submit(home, run="q")
    assert "| 1 | first | toy | not begun | – | open |" in report(home, "q")


def test_a_pipeline_that_a_gate_has_stopped_says_why_and_what_to_do(home: Home) -> None:
    gate = {"metric": "total", "at_least": 1e9}
    stopped(home, [phase("first", gate, seed=1), TWO[1]])
    text = report(home)
    assert "stopped.** Phase first has ended, and its gate holds the pipeline: total is" in text
    assert "`forge override p first --reason WHY`" in text
    assert "must be at least 1,000,000,000: **stops**" in section(text, "1. first")
    assert "| 1 | first | toy | ended, stopped |" in text
    assert "| 2 | second | toy | not begun |" in text


def test_an_override_is_told_with_its_reason_and_who_decided(home: Home) -> None:
    stopped(home, [phase("first", {"metric": "total", "at_least": 1e9}, seed=1), TWO[1]])
    ask(home, GateOverridden(phase=1, reason="good enough"))
    ask(home, events.Retried())
    toy_runs.finish(home, "p")
    text = report(home)
    owner = toy_runs.state(home, "p").submitted.owner
    assert f"- {owner} let the pipeline go on: “good enough”" in section(text, "1. first")
    assert "| 1 | first | toy | ended, overridden |" in text


def test_a_phase_that_failed_is_told_with_its_reason(home: Home) -> None:
    stopped(home, [TWO[0], phase("second", failing="count/0/1")])
    text = report(home)
    assert "| 2 | second | toy | failed |" in text
    assert "Run `p.2-second` failed: task count/0/1 failed 3 times" in section(text, "2. second")


def test_a_reused_phase_names_the_run_and_the_work_that_was_not_done_again(
    honest_home: Home, tmp_path: Path
) -> None:
    home = Home(Path(shutil.copytree(honest_home.folder, tmp_path / "copied")))
    toy_pipelines.submit(home, run="q", reuse=True)
    toy_runs.finish(home, "q")
    text = report(home, "q")
    assert "It took over 2 runs that had ended:" in text
    told = section(text, "1. first")
    assert told.strip().startswith("**Reused.**")
    assert "Run `p.1-first` had ended after" in told
    assert "and began no run." in told


def test_a_stranger_s_words_are_shown_and_not_obeyed(home: Home) -> None:
    """A reason may have Markdown, HTML and control characters in it."""
    toy_pipelines.submit(home)
    toy_runs.carry_until(home, lambda s: s.run == "p.1-first" and s.place > 2, "p")
    odd = "<script>x</script> | [a](https://x) **b** ![c](d)"
    ask(home, events.Cancelled(reason=odd))
    page = folder.documents(home, "p")[report_html.NAME].decode()
    body = page.partition("<body>")[2]
    assert "&lt;script&gt;x&lt;/script&gt; | [a](https://x) **b** ![c](d)" in body
    assert "<script" not in body
    assert body.count("href") == body.count('href="#section-')


def test_the_page_has_every_table_and_heading_of_the_text(honest_home: Home) -> None:
    files = folder.documents(honest_home, "p")
    tokens = MarkdownIt("commonmark").enable("table").parse(files[folder.MARKDOWN].decode())
    page = files[report_html.NAME].decode()
    for kind, tag in (("table_open", "<table>"), ("heading_open", "<h")):
        assert page.partition("<body>")[2].count(tag) >= sum(t.type == kind for t in tokens) > 0


# ---- where it is had -------------------------------------------------------------------------


def test_the_command_prints_it_or_writes_both_files(honest_home: Home, tmp_path: Path) -> None:
    assert call(honest_home, "pipeline", "report", "p").stdout.rstrip() == report(honest_home).rstrip()
    call(honest_home, "pipeline", "report", "p", "--out", str(tmp_path / "there"))
    assert (tmp_path / "there" / "report.md").read_text() == report(honest_home)
    assert (tmp_path / "there" / "report.html").read_text().startswith("<!doctype html>")
    refused = call(honest_home, "pipeline", "report", "p.1-first", code=2)
    assert "this needs a pipeline" in str(refused.exception)


@pytest.fixture
def out(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a completed pipeline's result."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "one.toml"
    file.write_text('[[phase]]\nname = "first"\nkind = "toy"\n')
    call(home, "pipeline", "run", str(file), "--output-dir", str(tmp_path / "out"))
    return tmp_path / "out"


@pytest.mark.parametrize("name", ["report.md", "report.html"])
def test_the_result_s_folder_has_it_and_a_changed_one_is_found(
    home: Home, out: Path, name: str
) -> None:
    call(home, "verify", str(out))
    file = out / name
    file.write_text(file.read_text().replace("completed", "excelled"))
    assert f"{name} is not what the log says" in call(home, "verify", str(out), code=1).output
    file.unlink()
    assert name in call(home, "verify", str(out), code=1).output


def test_a_report_of_another_version_cannot_be_compared(
    home: Home, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have other words; nothing is wrong with it."""
    monkeypatch.setattr(folder, "CODE_VERSION", "agent-forge 99")
    found = call(home, "verify", str(out), code=3).output
    assert "report.md was written by agent-forge 0" in found


def test_what_happens_after_the_end_changes_no_report_that_was_written(
    home: Home, out: Path, tmp_path: Path
) -> None:
    """An export is one more event of the run; the folder was written before it."""
    run = json.loads((out / "pipeline.json").read_text())["run"]
    before = len(toy_runs.rows(home, run))
    call(home, "export", run, "--out", str(tmp_path / "again"))
    assert len(toy_runs.rows(home, run)) == before + 1
    call(home, "verify", str(out))


def test_where_only_the_pipeline_s_own_log_is_read_the_report_has_the_rest(honest_home: Home) -> None:
    """As MCP clients get it: without the phases' own words and times."""
    state = toy_runs.state(honest_home, "p")
    text = kinds.of("pipeline").view.markdown(state, toy_runs.rows(honest_home, "p"))
    assert text.startswith("# Pipeline p: first → second\n\n**The pipeline has completed.**")
    assert "Run `p.1-first` completed." in section(text, "1. first")
    assert "| 1 | first | toy | ended | – | 1 of 1 passed |" in text
