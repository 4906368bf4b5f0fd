"""The page of a pipeline: its phases, its runs beside it, one slider for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_forge.runs.errors import RunFailedError
from agent_forge.runs.home import Home
from agent_forge.worker import append
from agent_forge.worker.commands import accounts
from agent_forge.worker.queue.device_table import DeviceTable
from agent_forge.worker.queue.leases import myself
from testing.miniatures import cognate_runs, pipeline_runs
from testing.toy import toy_pipelines, toy_runs
from testing.toy.toy_kind import KNOWN
from testing.worlds import dashboard_world
from testing.worlds.dashboard_world import Site
from tests.acceptance.dashboard.test_pages import accept
from tests.acceptance.dashboard.test_panels import WIDE

#: A pipeline that has ended, one whose second phase is under way, one that a gate has stopped; and one
#: of real models, which only the test that takes the pictures carries out.
DONE, GOING, STOPPED, REAL = "done", "going", "stopped", "speedrun"
THREE = [*toy_pipelines.TWO, toy_pipelines.phase("third", seed=3)]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A server whose log has these pipelines."""
    settings = {"FORGE_KINDS": KNOWN, "FORGE_LEASE_SECONDS": "3600"}
    settings["PYTHONPATH"] = str(Path(__file__).parents[3])
    with dashboard_world.environment(**settings) as home:
        toy_pipelines.submit(home, THREE, DONE)
        toy_runs.finish(home, DONE)
        toy_pipelines.submit(home, THREE, GOING)
        _carry_on(home, 1)
        gate = {"metric": "total", "at_least": 1e12}
        toy_pipelines.submit(home, [toy_pipelines.phase("first", gate)], STOPPED)
        with pytest.raises(RunFailedError):
            toy_runs.finish(home, STOPPED)
        with closing(home.open_store()) as store:
            accounts.add(store, "ada", "admin")
            tokens = {"ada": accounts.issue(store, "ada", "laptop")[1]}
            append.project(store)
        found = Site(home.folder, tokens, ())
        yield found
        found.close()


def _carry_on(home: Home, steps: int) -> None:
    """Carry the pipeline that goes on until its second phase has done some of its three steps."""

    def there(state: Any) -> bool:
        return state.run == f"{GOING}.2-second" and len(state.steps) == steps

    toy_runs.carry_until(home, there, GOING)


def cells(page: Any) -> list[str]:
    """Return the text of each phase in the strip."""
    page.locator(".strip-cell").first.wait_for()
    return [" ".join(text.split()) for text in page.locator(".strip-cell").all_inner_texts()]


@pytest.mark.slow
def test_phases_stand_in_a_row_and_lead_to_their_runs(visit: Callable[..., Any]) -> None:
    """State, gate and figure of each; from a run back to the pipeline and on to its neighbours."""
    page = visit(f"/runs/{GOING}")
    first, second, third = cells(page)
    assert first.startswith("1 first toy ✓ ended no phase is given its model 1 gate passes total ")
    assert second == "2 second toy ◔ running 33 %"
    assert third == "3 third toy ○ waiting"
    accept(page, "a pipeline")
    page.emulate_media(color_scheme="dark")
    accept(page, "a pipeline, dark", "color-contrast")
    page.locator(".strip-cell").nth(1).get_by_role("link").click()
    crumbs = page.get_by_role("navigation", name="Pipeline")
    crumbs.get_by_text("2 second").wait_for()
    accept(page, "a phase's run")
    page.keyboard.press("[")
    page.get_by_role("heading", name=f"{GOING}.1-first").wait_for()
    crumbs.get_by_role("link", name="next phase").wait_for()
    page.keyboard.press("]")
    page.get_by_role("heading", name=f"{GOING}.2-second").wait_for()
    crumbs.get_by_role("link", name=GOING, exact=True).click()
    page.get_by_role("heading", name=GOING, exact=True).wait_for()


@pytest.mark.slow
def test_the_page_of_a_pipeline_follows_its_runs(visit: Callable[..., Any], site: Site) -> None:
    page = visit(f"/runs/{GOING}")
    page.locator(".live[data-state=live]").wait_for()
    page.get_by_text("running 33 %").wait_for()
    _carry_on(site.home, 2)
    page.get_by_text("running 67 %").wait_for()


@pytest.mark.slow
def test_one_slider_moves_the_pipeline_and_its_runs(visit: Callable[..., Any], site: Site) -> None:
    """A link opens the run as it was at the same moment; one that had not begun says so."""
    moments = site.get(f"runs/{DONE}/moments")["moments"]
    step = next(
        n
        for n, one in enumerate(moments, 1)
        if (one["run"], one["type"]) == (f"{DONE}.1-first", "step_completed")
    )
    page = visit(f"/runs/{DONE}", expected=("404",))  # of a run that had not begun
    slider = page.get_by_role("slider", name="Event")
    page.locator(".dock-caption").get_by_text(f"/ {len(moments)}").wait_for()
    slider.fill(str(step))
    page.get_by_text("running 50 %").wait_for()
    assert cells(page)[1:] == ["2 second toy ○ waiting", "3 third toy ○ waiting"]
    assert f"upto={moments[step - 1]['position']}" in page.url
    page.get_by_role("tab", name="Events").click()
    page.get_by_text(f"{step} events").wait_for()
    page.get_by_role("tab", name="Overview").click()
    page.locator(".strip-cell").first.get_by_role("link").click()
    page.get_by_text(f"as it was at event {moments[step - 1]['place']}", exact=True).wait_for()
    page.get_by_role("button", name="Next step's end").click()
    page.get_by_role("link", name=DONE, exact=True).click()
    page.get_by_text("running 99 %").wait_for()  # it has not completed
    page.goto(f"{site.url}/#/runs/{DONE}.2-second?upto={moments[step - 1]['position']}")
    page.get_by_text(f"{DONE}.2-second had not begun").wait_for()
    page.get_by_role("link", name="Show it as it is now").click()
    page.get_by_role("heading", name=f"{DONE}.2-second").wait_for()


@pytest.mark.slow
def test_work_stands_in_rows_and_models_in_lanes(visit: Callable[..., Any]) -> None:
    """A row for each run and for each device; a lane for each phase, from which its run opens."""
    page = visit(f"/runs/{DONE}")
    rows = page.locator("[data-panel=timeline] .timeline-lane")
    rows.first.wait_for()
    assert (rows.first.text_content() or "").startswith("1 first")
    assert rows.count() == 4
    page.get_by_role("tab", name="Lineage").click()
    page.locator(".lineage-head", has_text="2 second").wait_for()
    accept(page, "a family")
    page.locator(".node", has_text="third:").click()
    page.get_by_role("heading", name=f"{DONE}.3-third").wait_for()


@pytest.mark.slow
def test_a_stopped_gate_is_a_decision_with_its_ways_on(visit: Callable[..., Any]) -> None:
    """Figure and limit in a sentence, and the buttons beside it; no retry, which would not help."""
    page = visit(f"/runs/{STOPPED}")
    assert "! gate stopped gate not met total" in cells(page)[0]
    page.locator(".run-title").get_by_text("needs a decision").wait_for()
    decision = page.locator(".decision")
    decision.get_by_text("and must be at least 1,000,000,000,000").wait_for()
    assert decision.get_by_role("button").all_inner_texts() == ["Override", "Fork", "Give up"]
    assert page.get_by_role("button", name="Retry").count() == 0
    accept(page, "a decision")
    gates = page.locator("[data-panel=gates]")
    gates.get_by_text("≥ 1,000,000,000,000").wait_for()
    gates.get_by_role("button", name="Override").wait_for()


@pytest.mark.slow
def test_a_pipeline_says_what_its_phase_does_and_where(visit: Callable[..., Any], site: Site) -> None:
    """A device works on the second phase: the pipeline waits for nothing."""
    with closing(site.home.open_store()) as store:
        roster, owner = DeviceTable(store.database), myself("cpu0")
        roster.enter("vm/cpu0", owner, "cpu")
        roster.say("vm/cpu0", owner, "busy", run=f"{GOING}.2-second", task="count/2/0")
    now = visit(f"/runs/{GOING}").get_by_role("region", name="Now")
    now.get_by_text("Phase 2 of 3, second: count slot 0 of step 2").wait_for()
    now.get_by_text("1 of 3 phases have ended").wait_for()
    now.get_by_text("vm/cpu0").wait_for()
    assert "Waiting" not in now.inner_text()


@pytest.mark.slow
def test_the_report_opens_in_a_tab_and_is_saved(visit: Callable[..., Any]) -> None:
    """With a table of contents that leads to the phases."""
    page = visit(f"/runs/{DONE}")
    menu = page.locator("details.report")
    menu.locator("summary").click()
    with page.context.expect_page() as opened:
        menu.get_by_role("button", name="Open").click()
    report = opened.value
    report.get_by_role("navigation", name="Contents").get_by_text("2. second").click()
    assert report.evaluate("location.hash").startswith("#section-")
    menu.locator("summary").click()
    with page.expect_download() as saved:
        menu.get_by_role("button", name="Download as HTML").click()
    assert saved.value.suggested_filename == f"{DONE}.html"


@pytest.mark.slow
def test_nine_phases_stand_in_one_row_of_a_wide_window(visit: Callable[..., Any], site: Site) -> None:
    names = [f"phase-{number}" for number in range(1, 10)]
    toy_pipelines.submit(site.home, [toy_pipelines.phase(name) for name in names], "nine")
    page = visit("/runs/nine", width=1440)
    cells(page)
    tops = {box["y"] for one in page.locator(".strip-cell").all() if (box := one.bounding_box())}
    assert len(tops) == 1


@pytest.mark.slow
def test_a_pipeline_fits_a_phone(visit: Callable[..., Any]) -> None:
    page = visit(f"/runs/{DONE}", width=360, height=740)
    cells(page)
    page.locator(".timeline-lane").first.wait_for()
    assert page.evaluate(WIDE) == 0


@pytest.mark.soak
@pytest.mark.slow
def test_a_pipeline_of_real_models_is_shown_whole(visit: Callable[..., Any], site: Site) -> None:
    """Quality, bytes, gates, timeline and family of measured models; no long digits anywhere."""
    pipeline_runs.submit(site.home, pipeline_runs.PHASES, REAL)
    cognate_runs.finish(site.home, REAL)
    page = visit(f"/runs/{REAL}", width=1440, height=2000)
    for title in ("Quality along the way", "Bytes along the way", "Gates", "Timeline", "Phases"):
        page.get_by_role("heading", name=title, exact=True).wait_for()
    page.get_by_text("passed unchanged").first.wait_for()
    text = page.locator(".run").inner_text()
    assert not [word for word in text.split() if len(word) >= 40 and word.isalnum()]
    accept(page, "a pipeline of real models")
    page.emulate_media(color_scheme="dark")
    accept(page, "a pipeline of real models, dark", "color-contrast")
    page.set_viewport_size({"width": 1440, "height": 700})
    page.get_by_role("tab", name="Lineage").click()
    page.locator(".lineage-head", has_text="2 merge").wait_for()
    page.emulate_media(color_scheme="light")
    [champion] = site.get("models", q=f"{REAL}.2-merge", kind="champion")["models"]
    page.goto(f"{site.url}/#/models/{champion['id']}")
    page.locator(".lineage-head", has_text="1 specialists").wait_for()
    page.locator(".lineage-head", has_text="2 merge").wait_for()
    accept(page, "a model with a family")
