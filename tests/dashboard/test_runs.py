"""The list of runs: ten thousand of them, live, filtered, chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.dashboard.canned import _row
from tests.dashboard.server import Canned


@pytest.fixture(scope="module")
def many() -> int:
    return 10_000


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


def test_of_ten_thousand_runs_only_those_in_sight_are_in_the_page(
    visit: Callable[..., Any], server: Canned
) -> None:
    page = visit("/runs")
    page.get_by_text("10,006 runs").wait_for()
    assert rows_in_page(page) < 60
    for pixels in (20_000, 90_000, 200_000):
        scroll(page, pixels)
        page.locator(".runs [aria-busy]").first.wait_for(state="detached")
        assert rows_in_page(page) < 60
    assert page.evaluate("document.querySelectorAll('*').length") < 2000
    assert page.locator(".runs").get_attribute("aria-rowcount") == "10007"


def test_the_last_run_can_be_reached(visit: Callable[..., Any], server: Canned) -> None:
    page = visit("/runs")
    page.get_by_text("10,006 runs").wait_for()
    scroll(page, 10_000_000)
    page.get_by_role("link", name=server.world.others[-1]["run"]).wait_for()


def test_news_do_not_move_what_is_in_sight(visit: Callable[..., Any], server: Canned) -> None:
    page = visit("/runs")
    page.get_by_text("10,006 runs").wait_for()
    scroll(page, 44 * 50)
    page.wait_for_timeout(100)
    before = first_in_sight(page)
    fresh = {**_row(77_777), "run": "20261122-fffff0", "submitted_at": "2026-11-22T10:00:00+00:00"}
    server.world.others.append(fresh)
    server.position += 1
    server.broadcast({"type": "event", "position": server.position, "run": fresh["run"],
                      "place": 1, "event": {"place": 1, "type": "submitted"}})  # fmt: skip
    page.get_by_text("10,007 runs").wait_for()
    assert first_in_sight(page) == before
    scroll(page, 0)
    page.get_by_role("link", name="20261122-fffff0").wait_for()
    server.world.others.remove(fresh)


def test_filters_stand_in_the_address(visit: Callable[..., Any]) -> None:
    page = visit("/runs")
    page.get_by_label("Status").select_option("running")
    page.get_by_text("1 run", exact=True).wait_for()
    assert page.url.endswith("#/runs?status=running")
    page.get_by_role("button", name="Clear").click()
    page.get_by_label("Search runs").fill("c4e1")
    page.get_by_text("1 run", exact=True).wait_for()
    assert page.url.endswith("#/runs?q=c4e1")
    page.reload()
    page.get_by_text("1 run", exact=True).wait_for()


def test_an_empty_list_says_what_to_do(visit: Callable[..., Any]) -> None:
    page = visit("/runs?q=nothing-is-called-so")
    page.get_by_text("No run is like that").wait_for()


def test_chosen_runs_are_compared(visit: Callable[..., Any]) -> None:
    page = visit("/runs")
    for run in ("20261121-a9fb60", "20261120-77d0aa"):
        page.get_by_label(f"Choose {run}").check()
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("heading", name="Can their scores be compared?").wait_for()
    page.locator(".note.good").get_by_text("yes").wait_for()
    assert "seed" in page.get_by_role("region", name="Table of settings").inner_text()
    page.get_by_label("Run to add").fill("20261121-c4e107")
    page.get_by_role("button", name="Add").click()
    page.get_by_text("they were measured on other data").wait_for()


def test_a_run_is_reached_by_keyboard(visit: Callable[..., Any]) -> None:
    page = visit("/runs?q=a9fb60")
    page.get_by_text("1 run", exact=True).wait_for()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "20261121-a9fb60":
            break
    page.keyboard.press("Enter")
    page.get_by_role("tab", name="Overview").focus()
    for name in ("Population", "Lineage"):
        page.keyboard.press("ArrowRight")
        assert page.get_by_role("tab", name=name).get_attribute("aria-selected") == "true"
    assert page.url.endswith("/20261121-a9fb60/lineage")
