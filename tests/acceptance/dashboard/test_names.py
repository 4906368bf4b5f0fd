"""Names, notes and tags of a run, changed on its page and found in the list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agent_forge.runs.record.events import Described
from agent_forge.worker.commands.control import control
from testing.worlds.dashboard_world import DONE, FAILED, REAL, Site

pytestmark = pytest.mark.slow


def test_a_run_is_named_on_its_page_and_found_by_its_tag(visit: Callable[..., Any], site: Site) -> None:
    page = visit(f"/runs/{DONE}", expected=("400", "422"))
    page.get_by_role("button", name="Change name, note and tags").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("two words")
    dialog.get_by_role("button", name="Save").click()
    dialog.get_by_text("cannot be called 'two words'").wait_for()
    dialog.get_by_label("Name", exact=True).fill("first-try")
    dialog.get_by_label("Note").fill("with care")
    dialog.get_by_label("Tags").fill("paper, best")
    dialog.get_by_role("button", name="Save").click()
    page.get_by_role("heading", name="first-try").wait_for()
    page.get_by_text("with care", exact=True).wait_for()
    assert page.title().startswith("first-try")
    run = site.get(f"runs/{DONE}")
    assert (run["name"], run["note"], run["tags"]) == ("first-try", "with care", ["paper", "best"])
    page.get_by_role("link", name="paper").click()
    page.get_by_role("link", name="first-try").wait_for()
    page.get_by_text("1 run", exact=True).wait_for()
    page.get_by_role("link", name="first-try").click()
    page.wait_for_url(f"**/#/runs/{DONE}")


def test_only_the_owner_changes_a_runs_name(visit: Callable[..., Any]) -> None:
    page = visit(f"/runs/{DONE}", who="linus")
    page.get_by_role("heading", level=1).wait_for()
    assert page.get_by_role("button", name="Change name, note and tags").count() == 0


def test_models_are_called_after_their_runs_name_and_found_by_their_tag(
    visit: Callable[..., Any], site: Site
) -> None:
    """Links to the run have its name, with the id as a tooltip; note and tags are the model's own.

    The run is one that no other run continues: what a fork measures again stands with the fork.
    """
    control(site.store, REAL, Described(name="second-try"))
    page = visit("/models")
    page.get_by_role("link", name="champion of second-try").click()
    page.get_by_role("heading", name="champion of second-try").wait_for()
    source = page.locator("dl.facts").get_by_role("link", name="second-try")
    assert source.get_attribute("title") == REAL
    page.get_by_text("Made and measured in run second-try").wait_for()
    page.get_by_text("In run second-try", exact=True).wait_for()
    page.get_by_role("button", name="Change note and tags").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Note").fill("for the paper")
    dialog.get_by_label("Tags").fill("keep")
    dialog.get_by_role("button", name="Save").click()
    page.get_by_text("for the paper", exact=True).wait_for()
    page.get_by_role("link", name="keep").click()
    page.get_by_text("1 model", exact=True).wait_for()
    page.get_by_role("link", name="champion of second-try").wait_for()


def test_what_waits_for_the_user_is_told_by_name(visit: Callable[..., Any], site: Site) -> None:
    """Addresses have the id."""
    control(site.store, FAILED, Described(name="third-try"))
    page = visit("/runs")
    link = page.get_by_role("region", name="Needs you").get_by_role("link", name="third-try")
    assert link.get_attribute("title") == FAILED
    link.click()
    page.wait_for_url(f"**/#/runs/{FAILED}")
