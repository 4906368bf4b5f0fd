"""A run's page: the time slider under all tabs, dialogs, charts, live events."""

from __future__ import annotations

import re
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_forge.evomerge.run.state import RunState
from agent_forge.runs.history import repository
from agent_forge.weights.folders.checkpoint import digest, open_checkpoint
from testing.waiting import wait_until
from testing.worlds import fake_runs
from testing.worlds.dashboard_world import (
    CANCELLED,
    DONE,
    FAILED,
    FORK,
    LABEL,
    PAUSED,
    REAL,
    TESTING,
    WAITING,
    Site,
)
from testing.worlds.dashboard_world import FRONT as BUSY
from tests.integration.worker.test_streams import tamper

HASH = re.compile(r"[0-9a-f]{40}")


@pytest.mark.slow
def test_the_slider_shows_the_whole_page_as_it_was(visit: Callable[..., Any], site: Site) -> None:
    """Header, charts, population, events: everything follows one place."""
    place = site.ends(DONE)[2]
    page = visit(f"/runs/{DONE}")
    page.locator(".verdict").wait_for()
    now = page.locator(".headline-champion").inner_text()
    assert "test score" in now
    slider = page.get_by_role("slider", name="Event")
    slider.wait_for()
    slider.fill(str(place))
    page.get_by_text(f"as it was at event {place}").wait_for()
    assert page.url.endswith(f"?at={place}")
    assert page.locator(".verdict").count() == 0
    then = page.locator(".headline-champion").inner_text()
    assert then != now
    assert "selection score" in then
    assert page.locator(".run-title .buttons > button").all_inner_texts() == ["Fork"]
    assert page.locator(".now").count() == 0
    chart = page.get_by_role("slider", name="Score of the champion, cursor")
    assert chart.get_attribute("aria-valuemax") == "2"
    page.get_by_role("tab", name="Population").click()
    page.locator(".population .who").get_by_text("2/0", exact=True).wait_for()
    page.get_by_role("tab", name="Events").click()
    page.get_by_text(f"{place} events").wait_for()
    page.get_by_role("button", name="Back to live").click()
    page.get_by_text(f"{site.places(DONE)} events").wait_for()
    assert "at=" not in page.url


@pytest.mark.slow
def test_the_slider_is_moved_by_keys_and_jumps_to_generations(
    visit: Callable[..., Any], site: Site
) -> None:
    begun = site.ends(DONE)[2] + 3
    page = visit(f"/runs/{DONE}?at={begun}")
    slider = page.get_by_role("slider", name="Event")
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.get_by_text(f"as it was at event {begun + 1}").wait_for()
    page.locator(".dock-marks span").nth(4).wait_for(state="attached")
    before = site.ends(DONE)[2]
    page.get_by_role("button", name="Previous generation's end").click()
    page.get_by_text(f"as it was at event {before}").wait_for()
    page.get_by_role("button", name="Play").click()
    # A slow machine sees the click return when the page is at a later place already.
    told = "Number(document.querySelector('.tag.past').textContent.match(/\\d+/)[0])"
    page.wait_for_function(f"(least) => {told} >= least", arg=before + 2)
    page.get_by_role("button", name="Stop").click()


@pytest.mark.slow
def test_a_place_inside_of_one_append_is_left_for_the_next_that_is_one(
    visit: Callable[..., Any], site: Site
) -> None:
    end = site.ends(DONE)[1]
    page = visit(f"/runs/{DONE}?at={end - 1}", expected=("422",))
    page.get_by_text(f"as it was at event {end}").wait_for()
    assert "in the middle of one append" in page.locator(".dock-caption").inner_text()


@pytest.mark.slow
def test_live_events_move_the_page_and_leave_the_past_alone(
    visit: Callable[..., Any], site: Site
) -> None:
    page = visit(f"/runs/{BUSY}")
    page.locator(".live[data-state=live]").wait_for()
    past = site.ends(BUSY)[0] + 2
    site.advance(BUSY, 3)
    page.locator(".dock-caption b").get_by_text(f"/ {site.places(BUSY)}").wait_for()
    page.get_by_role("slider", name="Event").fill(str(past))
    page.get_by_text(f"as it was at event {past}").wait_for()
    site.advance(BUSY, 2)
    page.locator(".dock-caption b").get_by_text(f"/ {site.places(BUSY)}").wait_for()
    assert page.get_by_text(f"as it was at event {past}").count() == 1


@pytest.mark.slow
def test_an_event_that_comes_while_the_run_is_read_is_not_missed(
    visit: Callable[..., Any], site: Site
) -> None:
    """The answer under way is older than the event: the run is read once more after it."""
    held = {"once": True}

    def late(route: Any) -> None:
        if not held.pop("once", None):
            route.continue_()
            return
        answer = route.fetch()
        time.sleep(0.7)  # the live connection is there
        site.advance(BUSY, 1)
        time.sleep(0.7)  # its event too
        route.fulfill(response=answer)

    page = visit(f"/runs/{BUSY}", before=lambda page: page.route(f"**/runs/{BUSY}", late))
    page.locator(".run").wait_for()
    page.locator(".dock-caption b").get_by_text(f"/ {site.places(BUSY)}").wait_for()
    assert not held
    page.unroute_all(behavior="ignoreErrors")


@pytest.mark.slow
def test_a_connection_that_broke_goes_on_after_the_last_event(
    visit: Callable[..., Any], site: Site
) -> None:
    """What happened in between is there, though nobody told it while the server was away."""
    page = visit(f"/runs/{BUSY}", expected=("WebSocket", "Failed to load", "net::"))
    page.locator(".live[data-state=live]").wait_for()
    site.stop()
    page.locator(".live[data-state=reconnecting]").wait_for()
    fake_runs.finish(site.store, BUSY, _later(site), varied=True)
    site.start()
    page.locator(".live[data-state=live]").wait_for()
    page.locator(".dock-caption b").get_by_text(f"/ {site.places(BUSY)}").wait_for()


def _later(site: Site) -> Callable[[RunState], bool]:
    place = repository.load(site.store, BUSY).place
    return lambda state: state.place > place + 1


def test_cancelling_needs_a_reason(visit: Callable[..., Any], site: Site) -> None:
    page = visit(f"/runs/{PAUSED}")
    page.get_by_role("button", name="Cancel", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Cancel the run").click()
    dialog.get_by_text("Give a reason").wait_for()
    assert site.get(f"runs/{PAUSED}")["status"] == "paused"
    dialog.get_by_label("Reason (required)").fill("wrong data")
    dialog.get_by_role("button", name="Cancel the run").click()
    dialog.wait_for(state="detached")
    told = site.get(f"runs/{PAUSED}")
    assert (told["status"], told["reason"]) == ("cancelled", "wrong data")
    page.get_by_text("Cancelled: wrong data").wait_for()


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_fork_that_is_refused_marks_the_setting(visit: Callable[..., Any], site: Site) -> None:
    """The server checks, and answers field by field; then the dialog is still there."""
    at = site.ends(DONE)[1] + 2
    page = visit(f"/runs/{DONE}?at={at}", expected=("422",))
    page.get_by_role("button", name="Fork from here").click()
    dialog = page.get_by_role("dialog")
    assert dialog.get_by_label("Event", exact=True).input_value() == str(at)
    dialog.get_by_label("Setting", exact=True).select_option("mutation_rate")
    value = dialog.get_by_label("Value of mutation_rate")
    value.fill("2")
    dialog.get_by_role("button", name="Fork", exact=True).click()
    dialog.locator(".wrong").get_by_text("mutation_rate: Input should be less than").wait_for()
    assert value.get_attribute("aria-invalid") == "true"
    value.fill("0.05")
    dialog.locator(".wrong").wait_for(state="detached")
    dialog.get_by_role("button", name="Setting").click()
    dialog.get_by_label("Setting", exact=True).nth(1).select_option("techniques")
    dialog.get_by_label("Value of techniques").fill("linear, dare, dfs")
    dialog.get_by_label("Reason (optional)").fill("larger steps")
    dialog.get_by_role("button", name="Fork", exact=True).click()
    page.wait_for_url(lambda url: DONE not in url)
    page.locator(".run-line").get_by_text(f"at event {at}").wait_for()
    made = site.get(f"runs/{page.locator('h1').inner_text()}")
    assert made["forked_from"]["place"] == at
    assert (made["config"]["mutation_rate"], made["config"]["techniques"]) == (
        0.05,
        ["linear", "dare", "dfs"],
    )


@pytest.mark.slow
def test_an_export_ends_with_the_download(
    visit: Callable[..., Any], site: Site, tmp_path: Path
) -> None:
    """The saved file has the digest of the log; the model's page has the files, too."""
    page = visit(f"/runs/{REAL}")
    page.get_by_role("button", name="Export", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Model").select_option("champion")
    dialog.get_by_role("button", name="Export", exact=True).click()
    dialog.get_by_text(f"{site.home.folder}/exports/{REAL}").wait_for()
    with page.expect_download() as saved:
        dialog.get_by_role("button", name="Download zip").click()
    with zipfile.ZipFile(saved.value.path()) as archive:
        archive.extractall(tmp_path)
    (folder,) = tmp_path.iterdir()
    state = repository.load(site.store, REAL)
    assert digest(open_checkpoint(folder).tensors()) == state.completed.digest
    dialog.get_by_role("link", name="The model's page").click()
    page.get_by_role("row", name="model.safetensors").wait_for()
    page.get_by_text(f'from_pretrained("{folder.name}")').first.wait_for()
    page.get_by_role("link", name=REAL, exact=True).first.click()
    page.locator(".headline-champion").get_by_role("link", name="champion").click()
    page.get_by_role("heading", name=f"champion of {REAL}").wait_for()


@pytest.mark.slow
def test_a_page_says_if_the_log_can_be_trusted(visit: Callable[..., Any], site: Site) -> None:
    """A tampered log is broken, whatever an earlier check said, and stays said after it is mended."""
    page = visit(f"/runs/{CANCELLED}")
    trust = page.get_by_role("region", name="Trust in the log")
    trust.get_by_text("History not checked yet").wait_for()
    trust.get_by_role("button", name="Check", exact=True).click()
    trust.get_by_text("History intact").wait_for()
    trust.get_by_text("by ada").wait_for()
    row = site.store.read(repository.named_stream(site.store, CANCELLED))[3]
    for actor, word in (("mallory", "History broken"), (row.actor, "History intact")):
        tamper(site.store, f"UPDATE events SET actor = '{actor}' WHERE position = {row.position}")
        trust.get_by_role("button", name="Check again").click()
        trust.get_by_text(word).wait_for()
        trust.get_by_role("button", name="Check again").wait_for()
    trust.get_by_text("An earlier check found the history broken").wait_for()
    trust.get_by_text("event 4").first.wait_for()


@pytest.mark.slow
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
    head.wait_for(state="detached")
    page.get_by_label("Only differences").uncheck()
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("Accuracy").uncheck()
    page.reload()
    page.get_by_role("columnheader", name="Perplexity").wait_for()
    assert page.get_by_role("columnheader", name="Accuracy").count() == 0


@pytest.mark.slow
def test_the_population_is_sorted_by_its_heads(visit: Callable[..., Any]) -> None:
    page = visit(f"/runs/{DONE}/population")
    page.get_by_role("button", name="Rank", exact=True).click()
    page.locator("th[aria-sort=ascending]").get_by_text("Rank").wait_for()
    ranks = page.locator(".population tbody td:nth-child(2)").all_inner_texts()
    assert ranks == sorted(ranks, key=int)
    assert page.get_by_role("columnheader", name="Rank").first.get_attribute("aria-sort") == "ascending"


def test_siblings_are_one_node_until_it_is_opened(visit: Callable[..., Any]) -> None:
    page = visit(f"/runs/{DONE}/lineage")
    nodes = page.locator(".node")
    nodes.first.wait_for()
    before, stack = nodes.count(), page.locator(".node[data-many=true]").first
    size = int(re.findall(r"(\d+) siblings", stack.get_by_text("siblings").text_content() or "")[0])
    stack.click()
    assert nodes.count() == before + size - 1
    page.locator(".node[data-champion=true]").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Recipe", exact=True).get_by_text('"kind":').wait_for()
    dialog.get_by_role("button", name="Copy", exact=True).click()
    dialog.get_by_text("Copied").wait_for()


def test_events_are_filtered_by_type_and_opened(visit: Callable[..., Any], site: Site) -> None:
    events = site.get(f"runs/{DONE}/events", limit=1000)["events"]
    changes = [event for event in events if event["type"] == "champion_changed"]
    page = visit(f"/runs/{DONE}/events")
    page.get_by_text(f"{len(events)} events").wait_for()
    assert page.get_by_role("listitem").count() < 60
    page.get_by_label("Type").select_option("champion_changed")
    page.get_by_text(f"{len(changes)} events").wait_for()
    page.get_by_text(changes[0]["gist"]).wait_for()
    page.locator(".event-toggle").first.click()
    page.get_by_label(re.compile("Data of event")).get_by_text('"recipe_id"').wait_for()


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_numbers_on_layers_can_be_read(visit: Callable[..., Any], dark: bool) -> None:
    """Real coefficients, all positive: they once stood dark on dark, at 2.4 : 1."""
    page = visit(f"/runs/{REAL}/layers", width=1440, dark=dark)
    page.locator(".heat rect").first.wait_for()
    pairs = page.evaluate(
        """() => [...document.querySelectorAll('.heat g')].flatMap((row) => {
            const grounds = [...row.querySelectorAll('rect')].map((one) => getComputedStyle(one).fill);
            return [...row.querySelectorAll('text.value')].map((one, n) => [
                one.textContent, getComputedStyle(one).fill, grounds[n]]);
        })"""
    )
    assert len(pairs) > 5
    for text, ink, ground in pairs:
        if text:
            assert contrast(ink, ground) >= 4.5, (text, ink, ground)
    page.locator(".heat rect").first.focus()
    page.keyboard.press("ArrowRight")
    told = page.locator(".chart .legend").inner_text()
    assert "source0 in block 0" in told
    assert "explained" in told


def contrast(one: str, other: str) -> float:
    """WCAG 2's contrast of two colours as `rgb(r, g, b)`."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.slow
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


def test_a_healthy_run_in_its_test_phase_shows_no_error(visit: Callable[..., Any]) -> None:
    """It once stood in red, with one word: generations."""
    page = visit(f"/runs/{TESTING}")
    page.get_by_text("The search has ended: all generations are done.").wait_for()
    assert page.locator(".note.bad").count() == 0
    page.goto(page.url.replace(TESTING, FAILED))
    page.locator(".note.bad").get_by_text("Failed:").wait_for()
    page.goto(page.url.replace(FAILED, CANCELLED))
    page.get_by_text("Cancelled: wrong data").wait_for()
    assert page.locator(".note.bad").count() == 0


@pytest.mark.slow
def test_a_live_run_says_what_it_does_how_far_it_is_and_its_clock_runs(
    visit: Callable[..., Any], site: Site
) -> None:
    task = site.get(f"runs/{BUSY}")["pending"][0]
    leave = site.worker("here/cpu0", BUSY, task)
    page = visit(f"/runs/{BUSY}")
    page.locator(".now-doing").get_by_text("here/cpu0").wait_for()
    page.get_by_text("left at most").wait_for()
    bar = page.get_by_role("progressbar", name="Time that the work takes")
    assert 0 < int(bar.get_attribute("aria-valuenow") or 0) < 100
    clock = page.get_by_text("s elapsed")
    before = clock.inner_text()
    wait_until(lambda: page.wait_for_timeout(100) or clock.inner_text() != before, "its clock runs")
    leave()
    for run in (BUSY, DONE, FAILED, FORK):
        page.goto(f"{site.url}/#/runs/{run}")
        page.get_by_role("heading", name=site.get(f"runs/{run}")["name"], exact=True).wait_for()
        page.locator(".run-facts").wait_for()
        assert not HASH.search(page.locator("body").inner_text()), run


@pytest.mark.slow
def test_a_label_that_no_worker_has_is_named(visit: Callable[..., Any], site: Site) -> None:
    """Beside a living worker, which takes other runs."""
    leave = site.worker("here/cpu1")
    page = visit(f"/runs/{WAITING}")
    told = f"a worker with the label {LABEL} (none is connected)"
    page.get_by_text(f"Waiting for {told}").wait_for()
    page.goto(f"{site.url}/#/queue")
    page.get_by_text(told).wait_for()
    leave()


@pytest.mark.slow
def test_axes_side_by_side_are_the_strongest_genes_by_the_same_names(
    visit: Callable[..., Any], site: Site
) -> None:
    """Genes that always have the same value share an axis: "weights code (5 parts)"."""
    genes = [row["gene"] for row in site.get(f"runs/{BUSY}")["genes"]]
    page = visit(f"/runs/{BUSY}")
    page.locator(".parallel .name").first.wait_for()
    named = page.locator(".parallel .name").all_text_contents()
    words = [name.partition(" (")[0] for name in named[:6]]
    assert genes[0].endswith(words[0])
    assert all(any(gene.endswith(word) for gene in genes) for word in words)
