"""A run of a kind that has no page of its own: what every run has is shown, and nothing breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_forge.runs.errors import RunFailedError
from agent_forge.runs.home import Home
from agent_forge.worker import append
from agent_forge.worker.commands import accounts
from testing.toy import toy_pipelines, toy_runs
from testing.toy.toy_kind import KNOWN
from testing.worlds.dashboard_world import Site


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A server whose log has a finished run that counts, and a pipeline that a gate has stopped."""
    monkeypatch.setenv("FORGE_KINDS", KNOWN)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))  # the kind is in testing/
    monkeypatch.setenv("FORGE_LEASE_SECONDS", "3600")
    monkeypatch.setenv("FORGE_HOME", str(tmp_path / "home"))
    home = Home(tmp_path / "home")
    toy_runs.submit(home, "counted", steps=3)
    toy_runs.finish(home, "counted")
    toy_pipelines.submit(home, [toy_pipelines.phase("first", {"metric": "total", "at_least": 1e12})])
    with pytest.raises(RunFailedError):
        toy_runs.finish(home, "p")
    store = home.open_store()
    accounts.add(store, "ada", "admin")
    tokens = {"ada": accounts.issue(store, "ada", "laptop")[1]}
    append.project(store)
    store.close()
    found = Site(home.folder, tokens, ())
    yield found
    found.close()


@pytest.mark.slow
def test_a_run_of_another_kind_has_a_page(visit: Callable[..., Any], site: Site) -> None:
    """Overview, events, settings and the slider are those of every run."""
    page = visit("/runs")
    page.locator(".runs-row .c-kind").get_by_text("toy").first.wait_for()
    page.get_by_role("link", name="counted").click()
    page.get_by_role("heading", name="counted").wait_for()
    assert page.get_by_role("tab").all_inner_texts() == ["Overview", "Events", "Settings"]
    head = page.locator(".headline")
    head.get_by_text("of 3", exact=True).wait_for()
    assert "steps\n3\nof 3" in head.inner_text()
    facts = page.locator(".panels")
    facts.get_by_role("heading", name="Steps").wait_for()
    assert "toy" in facts.inner_text()
    page.get_by_role("tab", name="Events").click()
    page.get_by_text(f"{site.places('counted')} events").wait_for()
    page.get_by_role("tab", name="Settings").click()
    page.get_by_role("rowheader", name="steps").wait_for()
    page.get_by_role("slider", name="Event").fill("1")
    page.get_by_text("as it was at event 1").wait_for()
    page.get_by_role("tab", name="Overview").click()
    page.locator(".headline").get_by_text("none yet").wait_for()
    assert "steps\n0\nof 3" in head.inner_text()
    page.get_by_role("button", name="Next step's end").click()
    events = site.get("runs/counted/events")["events"]
    end = next(event["place"] for event in events if event["unit"] == 0)
    page.get_by_text(f"as it was at event {end}", exact=True).wait_for()


@pytest.mark.slow
def test_the_list_sorts_filters_by_kind_and_keeps_views(visit: Callable[..., Any]) -> None:
    """The order and the filter are in the address; a saved view brings them back."""
    page = visit("/runs")
    page.get_by_label("Kind").select_option("toy")
    page.get_by_role("button", name="Status").click()
    page.get_by_role("columnheader", name="Status").and_(
        page.locator("[aria-sort=descending]")
    ).wait_for()
    page.get_by_text("Columns", exact=True).click()
    page.get_by_role("checkbox", name="Owner").uncheck()
    page.locator(".c-owner").first.wait_for(state="detached")
    page.get_by_text("Columns", exact=True).click()
    page.get_by_role("button", name="Save view").click()
    page.get_by_label("Name of the view").fill("counting")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("button", name="Clear").click()
    page.get_by_role("button", name="Submitted").click()
    page.get_by_label("Saved view").select_option("counting")
    page.locator("[aria-sort=descending]").get_by_text("Status").wait_for()
    assert page.get_by_label("Kind").input_value() == "toy"
    assert "kind=toy" in page.url
    assert "sort=status" in page.url


@pytest.mark.slow
def test_a_run_of_any_kind_is_asked_for_again(visit: Callable[..., Any], site: Site) -> None:
    """The form has its settings; what the kind does not take is not asked for."""
    page = visit("/runs/counted")
    page.get_by_role("link", name="Again with changes").click()
    page.get_by_role("heading", name="New run").wait_for()
    page.get_by_label("Steps").wait_for()
    assert page.get_by_label("Kind").input_value() == "toy"
    assert page.get_by_label("Steps").input_value() == "3"
    assert page.get_by_label("Base").count() == 0
    page.get_by_label("Steps").fill("2")
    page.get_by_role("button", name="Submit the run").click()
    page.locator(".panels").get_by_text("0 of 2").wait_for()
    page.get_by_role("link", name="Runs", exact=True).click()
    page.get_by_role("checkbox", name="Choose").and_(
        page.locator("[aria-label^='Choose toy-']")  # the new one is named by its kind and date
    ).check()
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("textbox", name="Reason").fill("one is enough")
    page.get_by_role("button", name="Cancel 1 run").click()
    page.locator(".runs-row").get_by_text("cancelled").wait_for()


@pytest.mark.slow
def test_a_stopped_gate_is_overridden_with_a_reason(visit: Callable[..., Any], site: Site) -> None:
    """The button stands at the gate that has stopped the run, and is gone afterwards."""
    page = visit("/runs/p")
    gates = page.locator("[data-panel=gates]")
    page.locator(".decision").get_by_text("and must be at least").wait_for()
    gates.get_by_role("button", name="Override").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Go on behind this gate").click()
    dialog.get_by_text("Give a reason").wait_for()
    dialog.get_by_label("Reason (required)").fill("good enough")
    dialog.get_by_role("button", name="Go on behind this gate").click()
    dialog.wait_for(state="detached")
    events = site.get("runs/p/events")["events"]
    (actor,) = [one["actor"] for one in events if one["type"] == "gate_overridden"]
    gates.get_by_text(f"overridden by {actor}: good enough").wait_for()
    assert gates.get_by_role("button", name="Override").count() == 0
