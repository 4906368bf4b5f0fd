"""A run's page: the time slider under all tabs, dialogs, charts, live events."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.dashboard.server import Canned

DONE, BUSY = "20261121-a9fb60", "20261121-c4e107"


def ends(server: Canned, run: str) -> list[int]:
    """The places where the run's generations end."""
    events, found = server.world.stories[run].events, []
    for place, event in enumerate(events, 1):
        after = events[place]["type"] if place < len(events) else ""
        if event["type"] in ("generation_completed", "champion_changed") and after not in (
            "generation_completed", "champion_changed", "converged",
        ):  # fmt: skip
            found.append(place)
    return found


def test_the_slider_shows_the_whole_page_as_it_was(
    visit: Callable[..., Any], server: Canned
) -> None:
    """Header, charts, population, events: everything follows one place."""
    place = ends(server, DONE)[2]
    page = visit(f"/runs/{DONE}")
    page.locator(".verdict").wait_for()
    now = page.locator(".headline-champion b").inner_text()
    slider = page.get_by_role("slider", name="Event")
    slider.wait_for()
    slider.fill(str(place))
    page.get_by_text(f"as it was at event {place}").wait_for()
    assert page.url.endswith(f"?at={place}")
    assert page.locator(".verdict").count() == 0
    assert page.locator(".headline-champion b").inner_text() != now
    chart = page.get_by_role("slider", name="Fitness by generation, cursor")
    assert chart.get_attribute("aria-valuemax") == "2"
    page.get_by_role("tab", name="Population").click()
    page.locator(".population .who").get_by_text("2/0", exact=True).wait_for()
    page.get_by_role("tab", name="Events").click()
    page.get_by_text(f"{place} events").wait_for()
    page.get_by_role("button", name="Back to live").click()
    page.get_by_text("157 events").wait_for()
    assert "at=" not in page.url


def test_the_slider_is_moved_by_keys_and_jumps_to_generations(
    visit: Callable[..., Any], server: Canned
) -> None:
    begun = ends(server, DONE)[2] + 3
    page = visit(f"/runs/{DONE}?at={begun}")
    slider = page.get_by_role("slider", name="Event")
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.get_by_text(f"as it was at event {begun + 1}").wait_for()
    page.locator(".dock-marks span").nth(7).wait_for(state="attached")
    before = ends(server, DONE)[2]
    page.get_by_role("button", name="Previous generation's end").click()
    page.get_by_text(f"as it was at event {before}").wait_for()
    page.get_by_role("button", name="Play").click()
    page.get_by_text(f"as it was at event {before + 2}").wait_for()
    page.get_by_role("button", name="Stop").click()


def test_a_place_inside_of_one_append_is_left_for_the_next_that_is_one(
    visit: Callable[..., Any], server: Canned
) -> None:
    end = ends(server, DONE)[1]
    page = visit(f"/runs/{DONE}?at={end - 1}", expected=("422",))
    page.get_by_text(f"as it was at event {end}").wait_for()
    assert "in the middle of one append" in page.locator(".dock-caption").inner_text()


def test_live_events_move_the_page_and_leave_the_past_alone(
    visit: Callable[..., Any], server: Canned
) -> None:
    page = visit(f"/runs/{BUSY}")
    page.locator(".live[data-state=live]").wait_for()
    story = server.world.stories[BUSY]
    server.advance(BUSY, 3)
    page.locator(".dock-caption b").get_by_text(f"/ {story.visible}").wait_for()
    page.get_by_role("slider", name="Event").fill("100")
    page.get_by_text("as it was at event 100").wait_for()
    server.advance(BUSY, 2)
    page.locator(".dock-caption b").get_by_text(f"/ {story.visible}").wait_for()
    assert page.get_by_text("as it was at event 100").count() == 1


def test_a_connection_that_broke_goes_on_after_the_last_event(
    visit: Callable[..., Any], server: Canned
) -> None:
    page = visit(f"/runs/{BUSY}", expected=("WebSocket",))
    page.locator(".live[data-state=live]").wait_for()
    server.advance(BUSY)
    last = server.position
    page.wait_for_timeout(200)
    server.drop()
    page.locator(".live[data-state=reconnecting]").wait_for()
    page.locator(".live[data-state=live]").wait_for()
    assert server.subscribed[-1] == last


def test_cancelling_needs_a_reason(visit: Callable[..., Any], server: Canned) -> None:
    page = visit(f"/runs/{BUSY}")
    page.get_by_role("button", name="Cancel", exact=True).click()
    dialog = page.get_by_role("dialog")
    asked = len(server.posts)
    dialog.get_by_role("button", name="Cancel the run").click()
    dialog.get_by_text("Say why").wait_for()
    assert len(server.posts) == asked
    dialog.get_by_label("Reason (required)").fill("wrong data")
    dialog.get_by_role("button", name="Cancel the run").click()
    dialog.wait_for(state="detached")
    assert server.posts[-1] == ("POST", f"/runs/{BUSY}/cancel", {"reason": "wrong data"})


@pytest.mark.parametrize("action", ["Pause", "Priority", "Fork"])
def test_every_dialog_takes_a_reason_and_gives_the_focus_back(
    visit: Callable[..., Any], action: str
) -> None:
    page = visit(f"/runs/{BUSY}")
    page.get_by_role("button", name=action, exact=True).click()
    page.get_by_role("dialog").get_by_label("Reason (optional)").wait_for()
    for _ in range(20):
        page.keyboard.press("Tab")
        assert page.evaluate(
            "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        )
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    assert page.evaluate("document.activeElement.textContent").strip() == action


def test_a_fork_is_checked_before_it_is_asked_for(
    visit: Callable[..., Any], server: Canned
) -> None:
    page = visit(f"/runs/{BUSY}?at=160")
    page.get_by_role("button", name="Fork from here").click()
    dialog = page.get_by_role("dialog")
    assert dialog.get_by_label("Event", exact=True).input_value() == "160"
    dialog.get_by_label("Setting", exact=True).fill("mutation_rate")
    dialog.get_by_label("Value of mutation_rate").fill("2")
    dialog.get_by_text("mutation_rate must be 1 or less").wait_for()
    dialog.get_by_label("Value of mutation_rate").fill("0.05")
    dialog.get_by_role("button", name="Setting").click()
    dialog.get_by_label("Setting", exact=True).nth(1).fill("objectives")
    dialog.get_by_label("Value of objectives").fill("perplexity, speed")
    dialog.get_by_label("Reason (optional)").fill("larger steps")
    dialog.get_by_role("button", name="Fork", exact=True).click()
    page.get_by_role("heading", name="20261121-f00d12").wait_for()
    assert server.posts[-1][2] == {
        "at": 160,
        "settings": {"mutation_rate": 0.05, "objectives": ["perplexity", "speed"]},
        "reason": "larger steps",
    }


def test_an_export_is_followed_to_its_folder(visit: Callable[..., Any]) -> None:
    page = visit(f"/runs/{DONE}")
    page.get_by_role("button", name="Export").click()
    page.get_by_role("button", name="Export the champion").click()
    page.get_by_text(f"/exports/{DONE}").wait_for()


def test_only_differences_hides_what_all_candidates_share(visit: Callable[..., Any]) -> None:
    """In generation 0 everything is seeded: how it was made says nothing."""
    page = visit(f"/runs/{DONE}/population")
    page.get_by_label("Generation", exact=True).select_option("0")
    head = page.get_by_role("columnheader", name="Made by")
    head.wait_for()
    page.get_by_label("Only differences").check()
    head.wait_for(state="detached")
    page.get_by_role("columnheader", name="Technique").wait_for()
    page.reload()
    page.get_by_label("Generation", exact=True).select_option("0")
    page.get_by_role("columnheader", name="Technique").wait_for()
    assert head.count() == 0
    page.get_by_label("Only differences").uncheck()
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("Accuracy").uncheck()
    page.reload()
    page.get_by_role("columnheader", name="Perplexity").wait_for()
    assert page.get_by_role("columnheader", name="Accuracy").count() == 0


def test_the_population_is_sorted_by_its_heads(visit: Callable[..., Any]) -> None:
    page = visit(f"/runs/{DONE}/population")
    page.get_by_role("button", name="Rank").click()
    ranks = page.locator(".population tbody td:nth-child(2)").all_inner_texts()
    assert ranks == sorted(ranks, key=int)
    assert page.get_by_role("columnheader", name="Rank").get_attribute("aria-sort") == "ascending"


def test_siblings_are_one_node_until_it_is_opened(visit: Callable[..., Any]) -> None:
    page = visit(f"/runs/{DONE}/lineage")
    nodes = page.locator(".node")
    nodes.first.wait_for()
    before, stack = nodes.count(), page.locator(".node[data-many=true]").first
    size = int(re.findall(r"(\d+) siblings", stack.text_content() or "")[0])
    stack.click()
    assert nodes.count() == before + size - 1
    page.locator(".node[data-champion=true]").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Recipe", exact=True).get_by_text('"kind": "merged"').wait_for()
    dialog.get_by_text(
        "8308352748119273598"
    ).wait_for()  # more digits than a number of JavaScript has
    dialog.get_by_role("button", name="YAML").click()
    dialog.get_by_text("merge_method: ties").wait_for()
    dialog.get_by_role("button", name="Copy", exact=True).click()
    dialog.get_by_text("Copied").wait_for()


def test_events_are_filtered_by_type_and_opened(visit: Callable[..., Any]) -> None:
    page = visit(f"/runs/{DONE}/events")
    page.get_by_text("157 events").wait_for()
    assert page.get_by_role("listitem").count() < 60
    page.get_by_label("Type").select_option("champion_changed")
    page.get_by_text("4 events").wait_for()
    page.locator(".event-toggle").first.click()
    page.get_by_label(re.compile("Data of event")).get_by_text('"generation": 3').wait_for()


def test_a_layer_says_its_value(visit: Callable[..., Any]) -> None:
    page = visit(f"/runs/{DONE}/layers")
    page.locator(".heat rect").first.focus()
    page.keyboard.press("ArrowRight")
    told = page.locator(".chart .legend").inner_text()
    assert "code in block 0" in told
    assert "explained" in told


def test_dragging_along_an_axis_keeps_the_candidates_in_between(visit: Callable[..., Any]) -> None:
    page = visit(f"/runs/{BUSY}")
    axis = page.locator(".parallel .reach").first
    axis.scroll_into_view_if_needed()
    page.evaluate("window.scrollBy(0, 250)")
    box = axis.bounding_box()
    x, middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, middle)
    page.mouse.down()
    page.mouse.move(x, middle + 60, steps=4)
    page.mouse.up()
    page.mouse.move(5, 5)
    kept, _, of, _ = page.locator(".parallel").locator("xpath=../../p").inner_text().split()
    assert 0 < int(kept) < int(of)
    page.get_by_role("button", name="Clear limits").click()


def test_a_run_that_is_not_there_is_said_to_be_not_there(visit: Callable[..., Any]) -> None:
    page = visit("/runs/nothing", expected=("404",))
    page.get_by_text("There is no such run").wait_for()
