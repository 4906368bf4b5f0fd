"""The list of pipelines, what waits for the user, and a pipeline that is started from the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from agent_forge.worker.queue.device_table import DeviceTable
from testing.toy import toy_runs
from testing.worlds.dashboard_world import Site
from tests.acceptance.dashboard.test_pages import accept
from tests.acceptance.dashboard.test_pipelines import DONE, GOING, STOPPED, site

__all__ = ["site"]

expect = pytest.importorskip("playwright.sync_api").expect

FILE = """\
# Two phases that count.
[[phase]]
name = "first"
kind = "toy"
settings = { seed = 1 }
gate = { metric = "total", at_least = 1 }

[[phase]]
name = "second"
kind = "toy"
"""


def row(page: Any, run: str) -> Any:
    """Return the row of a pipeline in the list."""
    return page.locator("table.pipelines tbody tr", has=page.get_by_role("link", name=run))


def marks(page: Any, run: str) -> list[str]:
    """Return each phase's mark in words."""
    return row(page, run).locator(".marks .hidden-text").all_inner_texts()


def overflows(page: Any) -> bool:
    return page.evaluate("document.documentElement.scrollWidth > innerWidth + 1")


@pytest.mark.slow
def test_pipelines_are_listed_with_their_phases_as_marks(visit: Callable[..., Any]) -> None:
    page = visit("/pipelines")
    page.get_by_text("3 pipelines").wait_for()
    assert marks(page, DONE) == [
        f"{n} {name}, toy: ended" for n, name in enumerate(("first", "second", "third"), 1)
    ]
    assert marks(page, GOING)[1:] == ["2 second, toy: running", "3 third, toy: waiting"]
    assert marks(page, STOPPED) == ["1 first, toy: gate stopped by total"]
    assert "first: gate total not met" in row(page, STOPPED).inner_text()
    shapes = {
        page.locator(f".stage-mark[data-state='{state}']").first.inner_html()
        for state in ("ended", "running", "waiting", "gate stopped")
    }
    assert len(shapes) == 4
    accept(page, "the list of pipelines")
    page.emulate_media(color_scheme="dark")
    accept(page, "the list of pipelines, dark", "color-contrast")
    names = page.locator("table.pipelines tbody th a")
    page.get_by_role("button", name="Pipeline", exact=True).click()
    page.locator("th[aria-sort=descending]").wait_for()
    assert names.all_inner_texts() == sorted([DONE, GOING, STOPPED], reverse=True)
    page.get_by_role("button", name="Pipeline").click()
    page.locator("th[aria-sort=ascending]").wait_for()
    expect(names.first).to_have_text(DONE)
    page.get_by_label("Status").select_option("failed")
    page.get_by_text("1 pipeline", exact=True).wait_for()
    assert names.all_inner_texts() == [STOPPED]
    row(page, STOPPED).locator("a.mark").click()
    page.get_by_role("heading", name=f"{STOPPED}.1-first").wait_for()


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 820])
def test_the_list_of_pipelines_fits_a_narrow_window(visit: Callable[..., Any], width: int) -> None:
    page = visit("/pipelines", width=width, height=844)
    page.get_by_text("3 pipelines").wait_for()
    assert not overflows(page)
    accept(page, f"the list of pipelines, {width} wide")
    page = visit("/runs", width=width, height=844)
    page.get_by_role("heading", name="Needs you").wait_for()
    assert not overflows(page)
    accept(page, f"what waits for the user, {width} wide")


@pytest.mark.slow
def test_a_pipeline_is_started_from_the_page(visit: Callable[..., Any], site: Site) -> None:
    """Pasted, checked with the line of what is wrong, started, and asked for again."""
    page = visit("/pipelines", expected=("422",))
    page.get_by_role("link", name="New pipeline").click()
    field = page.get_by_label("File (TOML)")
    field.fill(FILE.replace("at_least", "at_leats"))
    page.get_by_text("the file, line 6: a gate has no 'at_leats'").wait_for()
    start = page.get_by_role("button", name="Submit the pipeline")
    assert start.is_disabled()
    field.fill(FILE)
    page.get_by_text("This can be submitted.").wait_for()
    assert "1 first" in page.locator(".check-panel").inner_text()
    accept(page, "a new pipeline")
    page.emulate_media(color_scheme="dark")
    accept(page, "a new pipeline, dark", "color-contrast")
    start.click()
    page.locator(".strip-cell").first.wait_for()
    run = page.evaluate("location.hash").split("/")[2]
    page.get_by_role("link", name="Again with changes").click()
    expect(page.get_by_label("File (TOML)")).to_have_value(re.compile("seed = 1"))
    page.get_by_text("This can be submitted.").wait_for()
    assert toy_runs.finish(site.home, run).completed


@pytest.mark.slow
def test_a_file_is_read_from_this_machine(visit: Callable[..., Any]) -> None:
    page = visit("/new?kind=pipeline")
    page.get_by_role("button", name="Use the example").wait_for()
    file = {"name": "two.toml", "mimeType": "text/plain", "buffer": FILE.encode()}
    page.locator("input[type=file]").set_input_files(file)
    page.get_by_text("This can be submitted.").wait_for()
    assert page.get_by_label("File (TOML)").input_value() == FILE


@pytest.mark.slow
def test_what_waits_for_the_user_is_told_and_acted_on(visit: Callable[..., Any], site: Site) -> None:
    """A stopped gate is overridden in place; what is hidden stays hidden until there is news of it."""
    with closing(site.home.open_store()) as store:
        dead = "host:1:dead"
        roster = DeviceTable(store.database)
        roster.enter("cpu-1", dead, "cpu")
        roster.say("cpu-1", dead, "busy", run=f"{GOING}.2-second", beat=0.0)
    page = visit("/runs")
    needs = page.get_by_role("region", name="Needs you")
    needs.get_by_text("cpu-1").wait_for()
    assert needs.get_by_role("listitem").count() == 2
    assert "Phase first has ended, and its gate holds the pipeline" in needs.inner_text()
    accept(page, "what waits for the user")
    page.emulate_media(color_scheme="dark")
    accept(page, "what waits for the user, dark", "color-contrast")
    page.emulate_media(color_scheme="light")
    needs.get_by_role("button", name="Hide cpu-1").click()
    needs.get_by_text("cpu-1").wait_for(state="detached")
    page.reload()
    needs.get_by_text(STOPPED, exact=True).wait_for()
    assert needs.get_by_role("listitem").count() == 1
    needs.get_by_role("button", name="Override").click()
    page.get_by_label("Reason").fill("good enough")
    page.get_by_role("button", name="Go on behind this gate").click()
    needs.get_by_text(STOPPED, exact=True).wait_for(state="detached")
    needs.get_by_role("button", name="Show 1 hidden entry").click()
    needs.get_by_text("cpu-1").wait_for()
    assert "gate_overridden" in [one.type for one in toy_runs.rows(site.home, STOPPED)]
