"""Back leads to the page before, whatever was clicked; an address that leads nowhere says so."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from testing.worlds.dashboard_world import DONE, WAITING, Site


def select(page: Any, label: str, value: str) -> None:
    page.get_by_label(label, exact=True).select_option(value)


#: What is clicked, one after the other, and what of the page changes by it.
CLICKS: list[tuple[str, Callable[[Any], None]]] = [
    ("a kind", lambda page: select(page, "Kind", "evomerge")),
    ("an order", lambda page: page.get_by_role("button", name="Result").click()),
    ("a run", lambda page: page.get_by_role("link", name=DONE, exact=True).first.click()),
    ("a tab", lambda page: page.get_by_role("tab", name="Events").click()),
    ("a type of events", lambda page: select(page, "Type", "evaluated")),
    ("a place", lambda page: page.locator(".event-place").nth(3).click()),
    ("another tab", lambda page: page.get_by_role("tab", name="Population").click()),
    ("a generation", lambda page: select(page, "Generation", "1")),
    ("another page", lambda page: page.get_by_role("link", name="Models").click()),
]


@pytest.mark.slow
def test_back_after_each_click_returns_to_the_page_before(visit: Callable[..., Any]) -> None:
    page = visit("/runs")
    page.get_by_role("link", name=DONE, exact=True).first.wait_for()
    for what, click in CLICKS:
        before = page.evaluate("location.hash")
        click(page)
        page.wait_for_function("before => location.hash !== before", arg=before)
        after = page.evaluate("location.hash")
        page.go_back()
        page.wait_for_function("before => location.hash === before", arg=before)
        page.go_forward()
        page.wait_for_function("after => location.hash === after", arg=after)
        assert page.evaluate("location.hash") == after, what


@pytest.mark.slow
def test_back_closes_a_dialog_and_a_closed_dialog_leaves_no_trace(
    visit: Callable[..., Any], site: Site
) -> None:
    """Back leads from the page below to the one before, and never to the dialog again."""
    page = visit("/runs")
    page.goto(f"{site.url}/#/runs/{DONE}")
    page.get_by_role("button", name="Fork").click()
    page.get_by_role("dialog").wait_for()
    page.go_back()
    page.get_by_role("dialog").wait_for(state="detached")
    assert page.evaluate("location.hash") == f"#/runs/{DONE}"
    page.get_by_role("button", name="Export").click()
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    page.get_by_role("dialog").wait_for(state="detached")
    page.locator(".headline-champion button.link").first.click()
    page.get_by_role("dialog").wait_for()
    assert "candidate=" in page.url
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    page.get_by_role("dialog").wait_for(state="detached")
    page.wait_for_function("!location.hash.includes('candidate')")
    page.go_back()
    page.wait_for_function("location.hash === '#/runs'")


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("/nosuch", "There is no such page"),
        ("/queue/nosuch", "There is no such page"),
        (f"/runs/{DONE}/nosuch", "There is no such page"),
        ("/pipelines/nosuch", "There is no such run"),
        ("/runs/nosuch", "There is no such run"),
        ("/models/nosuch", "There is no such model"),
    ],
)
@pytest.mark.slow
def test_an_address_that_leads_nowhere_says_so(
    visit: Callable[..., Any], where: str, words: str
) -> None:
    page = visit(where, expected=("404",))
    page.get_by_role("heading", name=words).wait_for()
    assert page.get_by_role("link", name=re.compile("All (runs|models)")).count() == 1


@pytest.mark.slow
def test_a_run_that_only_waits_has_no_empty_tabs(visit: Callable[..., Any]) -> None:
    """Nor a generation 0, or a fork of nothing."""
    page = visit(f"/runs/{WAITING}")
    page.get_by_text("Waiting for a worker").wait_for()
    assert page.get_by_role("tab").all_inner_texts() == ["Overview", "Events", "Settings"]
    assert page.get_by_role("button", name="Fork").count() == 0
