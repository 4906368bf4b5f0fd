"""The list of runs: ten thousand of them, live, filtered, chosen."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from agent_forge.worker import append
from testing.worlds import fake_runs
from testing.worlds.dashboard_world import DONE, FAILED, FRONT, Site

MANY = 10_000


class Long:
    """A list of ten thousand runs: the real server's rows, again and again under other names."""

    def __init__(self, site: Site) -> None:
        self._site = site
        real = site.get("runs", limit=500)["runs"]
        self.rows = [
            {**real[n % len(real)], "run": f"20250101-{n:06x}", "name": f"20250101-{n:06x}"}
            for n in range(MANY, 0, -1)
        ]

    def install(self, page: Any) -> None:
        """Answer for the list; everything else is the server's."""
        page.route(re.compile(r"/runs\?"), self._answer)

    def _answer(self, route: Any) -> None:
        query = {k: v[0] for k, v in parse_qs(urlsplit(route.request.url).query).items()}
        fresh = [r for r in self._site.get("runs", limit=500)["runs"] if r["run"] == "news"]
        rows, start = [*fresh, *self.rows], int(query.get("before", 0))
        end = start + int(query.get("limit", 50))
        more = str(end) if end < len(rows) else None
        route.fulfill(json={"runs": rows[start:end], "total": len(rows), "next": more})


@pytest.fixture(scope="module")
def long(site: Site) -> Long:
    return Long(site)


def rows_in_page(page: Any) -> int:
    return page.locator(".runs [role=row]").count()


def first_in_sight(page: Any) -> str:
    """The first run that is wholly below the head."""
    return page.evaluate(
        """() => {
            const edge = document.querySelector('.runs-head').getBoundingClientRect().bottom;
            return [...document.querySelectorAll('.runs-row:not(.runs-head)')]
                .map((row) => [row.getBoundingClientRect().top, row.querySelector('a')?.textContent])
                .filter(([top, name]) => top >= edge && name).sort((a, b) => a[0] - b[0])[0][1];
        }"""
    )


def scroll(page: Any, pixels: int) -> None:
    page.locator(".runs").evaluate("(box, y) => { box.scrollTop = y; }", pixels)


@pytest.mark.slow
def test_of_ten_thousand_runs_only_those_in_sight_are_in_the_page(
    visit: Callable[..., Any], long: Long
) -> None:
    page = visit("/runs", before=long.install)
    page.get_by_text("10,000 runs").wait_for()
    assert rows_in_page(page) < 60
    for pixels in (20_000, 90_000, 200_000):
        scroll(page, pixels)
        page.locator(".runs [aria-busy]").first.wait_for(state="detached")
        assert rows_in_page(page) < 60
    assert page.evaluate("document.querySelectorAll('*').length") < 2000
    assert page.locator(".runs").get_attribute("aria-rowcount") == "10001"


@pytest.mark.slow
def test_the_last_run_can_be_reached(visit: Callable[..., Any], long: Long) -> None:
    page = visit("/runs", before=long.install)
    page.get_by_text("10,000 runs").wait_for()
    scroll(page, 10_000_000)
    page.get_by_role("link", name=long.rows[-1]["run"]).wait_for()


@pytest.mark.slow
def test_news_do_not_move_what_is_in_sight(visit: Callable[..., Any], long: Long, site: Site) -> None:
    page = visit("/runs", before=long.install)
    page.get_by_text("10,000 runs").wait_for()
    scroll(page, 44 * 50)
    page.wait_for_timeout(100)
    page.locator(".runs [aria-busy]").first.wait_for(state="detached")
    before = first_in_sight(page)
    fake_runs.submit(site.store, "news")
    append.project(site.store)
    page.get_by_text("10,001 runs").wait_for()
    assert first_in_sight(page) == before
    scroll(page, 0)
    page.get_by_role("link", name="news").wait_for()


def test_filters_stand_in_the_address(visit: Callable[..., Any]) -> None:
    page = visit("/runs")
    page.get_by_label("Status").select_option("failed")
    page.get_by_text("1 run", exact=True).wait_for()
    assert page.url.endswith("#/runs?status=failed")
    page.get_by_role("button", name="Clear").click()
    page.get_by_label("Search runs").fill("-front")
    page.get_by_text("1 run", exact=True).wait_for()
    assert page.url.endswith("#/runs?q=-front")
    page.reload()
    page.get_by_text("1 run", exact=True).wait_for()


def test_an_empty_list_says_what_to_do(visit: Callable[..., Any]) -> None:
    page = visit("/runs?q=nothing-is-called-so")
    page.get_by_text("No runs match").wait_for()


@pytest.mark.smoke
@pytest.mark.slow
def test_chosen_runs_are_compared(visit: Callable[..., Any]) -> None:
    page = visit("/runs")
    for run in (DONE, FRONT):
        page.get_by_label(f"Choose {run}").check()
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("heading", name="Can their results be compared?").wait_for()
    page.locator(".note.warn").get_by_text("one result is of the test slice").wait_for()
    assert "strategy" in page.get_by_role("region", name="Table of settings").inner_text()
    page.get_by_role("combobox", name="Run to add").fill(FAILED[-6:])
    page.get_by_role("option", name=FAILED).click()
    page.get_by_role("link", name=FAILED).first.wait_for()


@pytest.mark.slow
def test_a_run_is_reached_by_keyboard(visit: Callable[..., Any]) -> None:
    page = visit(f"/runs?q={FAILED}")
    page.get_by_text("1 run", exact=True).wait_for()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == FAILED:
            break
    page.keyboard.press("Enter")
    page.get_by_role("tab", name="Overview").focus()
    for name in ("Population", "Lineage"):
        page.keyboard.press("ArrowRight")
        assert page.get_by_role("tab", name=name).get_attribute("aria-selected") == "true"
    assert page.url.endswith(f"/{FAILED}/lineage")
