"""The server goes away, comes back, is upgraded, or voids a token while somebody looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agent_forge.worker.commands import accounts
from testing.worlds.dashboard_world import DONE, Site

#: What a browser says by itself of a server that is away.
GONE = ("Failed to load resource", "WebSocket", "Failed to fetch", "net::")


@pytest.mark.slow
@pytest.mark.parametrize("tab", ["Population", pytest.param("Layers", marks=pytest.mark.soak)])
def test_a_tab_opened_while_the_server_is_away_opens_when_it_is_back(
    visit: Callable[..., Any], site: Site, tab: str
) -> None:
    """Its file is not there yet: the page once went blank, for good."""
    page = visit(f"/runs/{DONE}", expected=GONE)
    page.locator(".verdict").wait_for()
    site.stop()
    try:
        page.get_by_role("tab", name=tab).click()
        page.get_by_text("opens by itself when the server is back").wait_for()
        assert page.locator("#root > *").count() > 0
        assert page.get_by_role("heading", name=DONE).count() == 1
    finally:
        site.start()
    page.locator(".population, .heat, .sheet, .note.bad").first.wait_for()
    page.get_by_text("opens by itself when the server is back").wait_for(state="detached")
    assert page.url.endswith(f"/{tab.lower()}")


@pytest.mark.slow
def test_a_page_of_an_older_build_takes_the_new_one(visit: Callable[..., Any]) -> None:
    """Its files have other names after an upgrade: the page is loaded anew at the same address."""
    page = visit("/runs", expected=GONE)
    page.get_by_text("runs").first.wait_for()
    loads: list[str] = []
    page.on("load", lambda _: loads.append("load"))
    gone = {"once": True}

    def old(route: Any) -> None:
        if gone.pop("once", None):
            route.fulfill(status=404, body="")
        else:
            route.continue_()

    page.route("**/assets/QueuePage-*.js", old)
    page.get_by_role("link", name="Queue").first.click()
    page.get_by_role("heading", name="Workers").wait_for()
    assert loads == ["load"]
    assert page.url.endswith("#/queue")


@pytest.mark.slow
def test_a_file_that_never_comes_leaves_the_frame_and_a_way_out(visit: Callable[..., Any]) -> None:
    page = visit("/runs", expected=(*GONE, "dynamically imported", "error occurred"))
    page.get_by_text("runs").first.wait_for()
    page.route("**/assets/QueuePage-*.js", lambda route: route.fulfill(status=404, body=""))
    page.get_by_role("link", name="Queue").first.click()
    page.get_by_text("This page cannot be shown").wait_for()
    page.get_by_role("link", name="Models").first.click()
    page.get_by_role("heading", name="Models").wait_for()


@pytest.mark.slow
def test_what_failed_while_the_server_was_away_is_asked_for_again(
    visit: Callable[..., Any], site: Site
) -> None:
    page = visit("/queue", expected=GONE)
    page.get_by_text("big-gpu").first.wait_for()
    site.stop()
    try:
        page.get_by_role("link", name="Models").first.click()
        page.get_by_text("The server does not answer").first.wait_for()
    finally:
        site.start()
    page.get_by_role("heading", name="Models").wait_for()
    page.get_by_text("The server does not answer").first.wait_for(state="detached")


@pytest.mark.slow
def test_a_token_that_is_revoked_while_one_watches_leads_to_signing_in(
    visit: Callable[..., Any], site: Site
) -> None:
    """Nothing is clicked: the live connection says so."""
    accounts.add(site.store, "eve", "viewer")
    id_, site.tokens["eve"] = accounts.issue(site.store, "eve")
    page = visit(f"/runs/{DONE}", who="eve", expected=("401",))
    page.locator(".live[data-state=live]").wait_for()
    accounts.revoke(site.store, "eve", id_)
    page.get_by_role("heading", name="Sign in").wait_for()
    page.get_by_text("does not take that token").wait_for()


@pytest.mark.slow
def test_a_token_in_the_address_replaces_a_kept_one_only_when_asked(
    visit: Callable[..., Any], site: Site
) -> None:
    """A link from elsewhere must not change under whose name one works."""
    page = visit("/runs")
    page.locator(".bar-who").get_by_text("ada").wait_for()
    page.goto(f"{site.url}/#token={site.tokens['linus']}")
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Cancel").click()
    dialog.wait_for(state="detached")
    assert page.locator(".bar-who").inner_text() == "ada"
    assert "token" not in page.url
    page.goto(f"{site.url}/#token={site.tokens['linus']}")
    dialog.get_by_role("button", name="Use the new token").click()
    page.locator(".bar-who").get_by_text("linus").wait_for()


@pytest.mark.slow
@pytest.mark.parametrize("where", ["token=%", "/runs/%", "/runs/%E0%A4%A"])
def test_an_address_that_cannot_be_read_breaks_nothing(
    visit: Callable[..., Any], site: Site, where: str
) -> None:
    page = visit("/queue", expected=("404", "422"))
    page.get_by_role("heading", name="Workers").wait_for()
    page.goto(f"{site.url}/#{where}")
    page.get_by_role("link", name="Runs").first.wait_for()
    assert page.locator("#root > *").count() > 0
