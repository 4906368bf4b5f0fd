"""The page of a run of any kind: its head and its typed panels, live, exported, of 100,000 points."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.runs.panels import tables
from agent_forge.worker import append
from agent_forge.worker.commands import accounts, submit
from testing.miniatures import cognate_runs
from testing.panels import EVERY
from testing.toy import long_kind, shown_kind, toy_kind, toy_runs
from testing.worlds import dashboard_world
from testing.worlds.dashboard_world import Site
from tests.acceptance.dashboard.test_pages import accept
from tests.golden.record_cognate import texts

#: A run with every panel, two toy runs that go on, a real cognate run, one with 100,000 points.
SHOWN, LIVE, PAUSED, TRAINED, LONG = "shown", "counting", "asked", "trained", "long"
#: Little text and few tokens: the machinery is real, the models learn little.
QUICK = {"base_tokens": 4000, "specialist_tokens": 4000, "batch": 4}
WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A server whose log has these runs."""
    kinds = f"{toy_kind.KNOWN},{shown_kind.KNOWN},{long_kind.KNOWN}"
    settings = {"FORGE_KINDS": kinds, "FORGE_LEASE_SECONDS": "3600"}
    with dashboard_world.environment(**settings) as home:
        with closing(home.open_store()) as store:
            submit.submit(store, submit.plan(RunRequest("shown", {"steps": 2})), SHOWN)
            submit.submit(store, submit.plan(RunRequest("long", {})), LONG)
            accounts.add(store, "ada", "admin")
            tokens = {"ada": accounts.issue(store, "ada", "laptop")[1]}
        toy_runs.finish(home, SHOWN)
        toy_runs.finish(home, LONG)
        for run in (LIVE, PAUSED):
            toy_runs.submit(home, run, steps=3)
            toy_runs.carry_until(home, lambda state: len(state.steps) == 1, run)
        cognate_runs.submit(home, TRAINED, None, texts(home.folder.parent), **QUICK)
        cognate_runs.finish(home, TRAINED)
        with closing(home.open_store()) as store:
            append.project(store)
        found = Site(home.folder, tokens, ())
        yield found
        found.close()


def panel_of(page: Any, kind: str) -> Any:
    """Return the frame of a panel of `EVERY`."""
    return page.locator(f"[data-panel={EVERY[kind].name}]")


@pytest.mark.slow
def test_a_kind_that_the_page_does_not_know_is_shown_whole_by_its_panels(
    visit: Callable[..., Any], site: Site
) -> None:
    """Head, every panel with its title and its sentence, every telling part of each."""
    page = visit(f"/runs/{SHOWN}")
    told = {
        "lines": ("median of 2 seeds", "1.125 (1.000 … 1.250)", "good enough", "As a table"),
        "front": ("2 points on the front, 1 dominated", "size, lower is better"),
        "matrix": ("0.7500", "0.7000 … 0.8000", "50.0 % better than other", "▾"),
        "arms": ("✓ better", "≈ level", "+0.2500", "limit 0.1250", "baseline, to beat"),
        "shares": ("easy 25.0 %", "hard 75.0 %"),
        "units": ("yes", "level", "0.7500"),
        "samples": ("2 + 2?", "✓ pass", "✗ fail"),
        "gates": ("✓ pass", "overridden by ada: a first try", "1.800 … 2.200", "≤ 2.5"),
        "strip": ("✓ ended", "growth passes", "0.7500", "◔ running 25 %, 3 min 05 s left", "○ waiting"),
        "timeline": ("runs", "2 join", "devices", "host/cpu0", "✗ failed"),
    }
    for kind, words in told.items():
        frame = panel_of(page, kind)
        frame.get_by_role("heading", name=EVERY[kind].title).wait_for()
        shown = " ".join((frame.text_content() or "").split())
        for text in (EVERY[kind].says, *words):
            assert text in shown, (kind, text)
    assert panel_of(page, "samples").locator("mark").get_attribute("title") == "right"
    head = page.locator(".headline").inner_text()
    assert f"{toy_runs.state(site.home, SHOWN).total:,}" in head
    assert "higher is better" in head
    accept(page, "every panel")
    page.emulate_media(color_scheme="dark")
    accept(page, "every panel, dark", "color-contrast")
    page.get_by_role("tab", name="Lineage").click()
    page.locator(".node", has_text="champion").wait_for()
    accept(page, "lineage")


@pytest.mark.slow
def test_a_panel_is_written_as_a_file_of_each_format(visit: Callable[..., Any], site: Site) -> None:
    page = visit(f"/runs/{SHOWN}")
    panel = EVERY["lines"]
    got = {}
    for word in ("PNG picture", "SVG picture", "CSV table", "JSON data"):
        page.get_by_label(f"Export {panel.title}", exact=True).click()
        with page.expect_download() as coming:
            page.get_by_role("group", name=f"Formats of {panel.title}").get_by_text(word).click()
        got[word] = Path(coming.value.path()).read_bytes()
        assert coming.value.suggested_filename == f"{SHOWN}-{panel.name}.{word[:4].strip().lower()}"
    assert got["PNG picture"].startswith(b"\x89PNG")
    assert b"<svg" in got["SVG picture"]
    assert got["CSV table"].decode() == tables.to_csv(panel)
    assert type(panel).model_validate_json(got["JSON data"]) == panel


@pytest.mark.slow
def test_lines_of_100_000_points_are_drawn_by_few_and_keep_their_extremes(
    visit: Callable[..., Any],
) -> None:
    """Dragging zooms, 0 shows all; a table has the newest rows and says so."""
    count = 100_000

    def large(route: Any) -> None:
        told = route.fetch().json()
        panel = next(panel for panel in told["panels"] if panel["kind"] == "lines")
        y = [1 + (step % 7) / 100 for step in range(count)]
        y[70_001] = 5
        series = {**panel["series"][0], "x": list(range(count)), "y": y, "low": None, "high": None}
        told["panels"] = [{**panel, "series": [series], "limits": []}]
        route.fulfill(json=told)

    page = visit(f"/runs/{SHOWN}", before=lambda page: page.route(f"**/{SHOWN}/panels", large))
    line = page.locator("path.line")
    line.wait_for(state="attached")
    points = """(path) => path.getAttribute('d').match(/[-\\d.]+,[-\\d.]+/g)
        .map((point) => point.split(',').map(Number))"""
    wide = page.locator("figure.chart svg[role=img]").first.bounding_box()["width"]
    drawn = line.evaluate(points)
    assert len(drawn) < 6 * wide
    heights = sorted(y for _, y in drawn)
    assert heights[0] < 60 < 150 < heights[1], "one point alone is high"
    box = page.locator(".chart-focus").bounding_box()
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 50, steps=4)
    page.mouse.up()
    page.get_by_role("button", name="Reset zoom").wait_for()
    inside = [y for x, y in line.evaluate(points) if 0 <= x <= wide]
    assert max(inside) - min(inside) > 50, "the axis fits what is seen"
    page.locator(".chart-focus").press("0")
    page.get_by_role("button", name="Reset zoom").wait_for(state="detached")
    page.get_by_text("As a table").click()
    page.get_by_text("the last 500 of 100,000 rows").wait_for()
    page.unroute_all(behavior="ignoreErrors")


@pytest.mark.slow
def test_zooming_into_100_000_points_asks_the_server_for_those_in_between(
    visit: Callable[..., Any],
) -> None:
    """All points of the part are drawn; zooming out and 0 show all again."""
    seen: list[str] = []
    page = visit(f"/runs/{LONG}")
    page.on("request", lambda one: seen.append(one.url))
    panel = page.locator("[data-panel=long]")
    panel.get_by_text(f"This is a part of {long_kind.POINTS:,}").wait_for()
    chart, line = panel.locator(".chart-focus"), panel.locator("path.line")
    count = "(path) => path.getAttribute('d').split(/[ML]/).length"
    box = chart.bounding_box()
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 50)
    chart.focus()

    def narrow(response: Any) -> bool:
        """Return True for the part after the last step: a slow page asks for earlier ones, too."""
        ends = re.search(r"long\.json\?from=([\d.]+)&to=([\d.]+)", response.url)
        return ends is not None and float(ends[2]) - float(ends[1]) < 500

    with page.expect_response(narrow) as coming:
        for _ in range(8):
            chart.press("+")
        coarse = line.evaluate(count)
    told = coming.value.json()["series"][0]["x"]
    assert told == list(range(int(told[0]), int(told[-1]) + 1)), "every step in between"
    assert 300 < len(told) < 500
    page.wait_for_function(
        "([n]) => document.querySelector('[data-panel=long] path.line')"
        ".getAttribute('d').split(/[ML]/).length > 5 * n",
        arg=[coarse],
    )
    chart.press("0")
    panel.get_by_role("button", name="Reset zoom").wait_for(state="detached")
    assert line.evaluate(count) > 500
    assert sum("from=" in url for url in seen) == 1, "asked once, after the last key"


@pytest.mark.slow
def test_seeds_are_a_band_around_their_median(visit: Callable[..., Any]) -> None:
    """Two arms of five seeds: two lines and bands, ten faint lines, two entries of the legend."""
    page = visit(f"/runs/{LONG}")
    panel = page.locator("[data-panel=seeds]")
    panel.get_by_text("(median of 5 seeds)").first.wait_for()
    assert panel.get_by_text("(median of 5 seeds)").count() == 2
    assert panel.locator("path.line-band").count() == 2
    assert panel.locator("path.line[data-thin=true]").count() == 10
    assert panel.locator("path.line").count() == 12
    panel.get_by_text("As a table").click()
    heads = panel.locator("th").all_inner_texts()
    assert "muon, seed 4" in heads
    assert "muon, median" in heads
    accept(page, "seeds")


@pytest.mark.slow
def test_an_axis_is_logarithmic_where_the_panel_says_so_and_can_be_changed(
    visit: Callable[..., Any],
) -> None:
    page = visit(f"/runs/{SHOWN}")
    box = panel_of(page, "lines").get_by_label("log loss")
    box.wait_for()
    assert box.is_checked()
    line = panel_of(page, "lines").locator("path.line").first
    before = line.get_attribute("d")
    box.uncheck()
    page.wait_for_function(
        "(d) => document.querySelector('path.line').getAttribute('d') !== d", arg=before
    )


@pytest.mark.slow
def test_panels_follow_the_events_and_stay_as_they_were_in_the_past(
    visit: Callable[..., Any], site: Site
) -> None:
    """Words of the workers are marked as theirs; no error stands anywhere meanwhile."""
    page = visit(f"/runs/{LIVE}")
    rows = page.locator("[data-panel=steps] tbody tr")
    rows.first.wait_for()
    page.get_by_text("from the workers, not from the log").wait_for()
    page.locator(".live[data-state=live]").wait_for()
    place = site.places(LIVE)
    toy_runs.carry_until(site.home, lambda state: len(state.steps) == 2, LIVE)
    rows.nth(1).wait_for()
    assert page.locator(".note.bad").count() == 0
    page.goto(f"{site.url}/#/runs/{LIVE}?at={place}")
    page.get_by_text(f"as it was at event {place}").wait_for()
    rows.nth(1).wait_for(state="detached")
    assert rows.count() == 1
    assert page.locator(".now").count() == 0
    assert page.locator(".note.bad").count() == 0


def test_a_run_of_any_kind_is_paused_and_resumed(visit: Callable[..., Any], site: Site) -> None:
    page = visit(f"/runs/{PAUSED}")
    for action, status in (("Pause", "paused"), ("Resume", "running")):
        page.get_by_role("button", name=action, exact=True).click()
        page.get_by_role("dialog").get_by_role("button", name=f"{action} the run").click()
        page.get_by_role("dialog").wait_for(state="detached")
        assert site.get(f"runs/{PAUSED}")["status"] == status


@pytest.mark.slow
def test_an_ended_run_of_any_kind_is_forked_before_its_end(
    visit: Callable[..., Any], site: Site
) -> None:
    """After its end a fork has no future."""
    place = site.places(SHOWN) - 1
    page = visit(f"/runs/{SHOWN}")
    page.get_by_role("button", name="Fork", exact=True).click()
    dialog = page.get_by_role("dialog")
    assert dialog.get_by_label("Event", exact=True).input_value() == str(place)
    dialog.get_by_label("Setting", exact=True).select_option("steps")
    dialog.get_by_label("Value of steps").fill("3")
    dialog.get_by_role("button", name="Fork", exact=True).click()
    page.locator(".run-line").get_by_text("forked from").wait_for()
    made = site.get(f"runs/{page.locator('h1').inner_text()}")
    assert made["forked_from"] == {**made["forked_from"], "run": SHOWN, "place": place}
    assert made["progress"]["of"] == 3


@pytest.mark.slow
def test_a_cognate_run_is_shown_with_curves_figures_and_lineage(
    visit: Callable[..., Any], site: Site
) -> None:
    page = visit(f"/runs/{TRAINED}", width=1440)
    for title in ("Loss", "Norm of the gradient", "Learning rate", "Quality by domain", "Models"):
        page.get_by_role("heading", name=title, exact=True).wait_for()
    assert "fewer bits per byte" in page.locator(".headline").inner_text()
    assert page.locator("[data-panel=loss] path.line").count() == 3
    accept(page, "cognate")
    page.get_by_role("tab", name="Lineage").click()
    page.locator(".node").nth(4).wait_for()
    assert page.locator(".note.bad").count() == 0


@pytest.mark.slow
def test_panels_fit_a_phone(visit: Callable[..., Any], site: Site) -> None:
    page = visit(f"/runs/{SHOWN}", width=360, height=740)
    for run, title in ((SHOWN, "Gates"), (TRAINED, "Models")):
        page.goto(f"{site.url}/#/runs/{run}")
        page.get_by_role("heading", name=title, exact=True).wait_for()
        assert page.evaluate(WIDE) == 0, run


@pytest.mark.slow
def test_a_model_has_a_page(visit: Callable[..., Any], site: Site) -> None:
    """Figures, ancestors and a link to a new run; axe finds nothing."""
    page = visit("/models")
    page.get_by_role("link", name=f"{TRAINED}-sums").click()
    page.get_by_role("heading", name=f"{TRAINED}-sums").wait_for()
    page.get_by_role("row", name="sums").first.wait_for()
    page.get_by_text("steps of lm@1").first.wait_for()
    page.get_by_text("qwen2-init@1, seed 0").wait_for()
    page.get_by_role("button", name="Write its files").wait_for()
    accept(page, "a model's page")
    again = page.get_by_role("link", name="Train specialists of it").get_attribute("href") or ""
    assert again.startswith("#/new?kind=cognate&base=")
    for words, kind in (("Train a student of it", "student"), ("Measure it", "measure")):
        link = page.get_by_role("link", name=words).get_attribute("href") or ""
        assert link.startswith(f"#/new?kind={kind}&source=")
    page.get_by_role("link", name="Measure it").click()
    model = page.get_by_role("combobox", name="Model")
    model.wait_for()
    assert model.input_value() == link.rpartition("=")[2]
