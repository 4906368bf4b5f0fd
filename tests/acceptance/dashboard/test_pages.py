"""Every page renders, in light and dark, wide and narrow; nobody is shut out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testing.models.toys import Toys
from testing.worlds.dashboard_world import DONE, FAILED, REAL, WAITING, Site
from testing.worlds.dashboard_world import FRONT as BUSY

expect = pytest.importorskip("playwright.sync_api").expect

AT = 70
#: Name → address, and a text that is there when the page is.
PAGES = {
    "runs": ("/runs", re.compile(r"\d runs")),
    "run": (f"/runs/{DONE}", "test score"),
    "front": (f"/runs/{BUSY}", "Candidates side by side"),
    "past": (f"/runs/{BUSY}?at={AT}", f"as it was at event {AT}"),
    "population": (f"/runs/{BUSY}/population", re.compile(r"\d candidates")),
    "lineage": (f"/runs/{DONE}/lineage", re.compile(r"\d ancestors")),
    "layers": (f"/runs/{REAL}/layers", "point at a cell"),
    "events": (f"/runs/{DONE}/events", re.compile(r"\d events")),
    "settings": (f"/runs/{DONE}/settings", "not the default"),
    "waiting": (f"/runs/{WAITING}", "Waiting for a worker"),
    "compare": (f"/compare?a={DONE}&b={FAILED}", "Settings that differ"),
    "queue": ("/queue", "someone to resume it"),
    "models": ("/models", "champion of"),
    "new-run": ("/new", "Advanced settings"),
    "users": ("/users", "New token"),
}


def accept(page: Any, where: str, only: str | None = None) -> None:
    """No violation that axe-core knows of, of one rule or of any."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    found = axe.Axe().run(page, options=options | ({"runOnly": [only]} if only else {}))
    told = [
        f"{where}: {v['id']}: {v['help']}: {v['nodes'][0]['html'][:200]}"
        for v in found.response["violations"]
    ]
    assert told == []


def see(page: Any, site: Site, name: str) -> None:
    where, text = PAGES[name]
    page.goto(f"{site.url}/#{where}")
    page.get_by_text(text).first.wait_for()
    page.get_by_text("Loading …").first.wait_for(state="detached")


@pytest.mark.slow
def test_every_page_renders_and_is_accessible(visit: Callable[..., Any], site: Site) -> None:
    """In the dark only colours are other ones."""
    page = visit("/runs", width=1440)
    for name in PAGES:
        see(page, site, name)
        assert page.locator("style").count() == 0, "a library writes styles of its own"
        accept(page, name)
        page.emulate_media(color_scheme="dark")
        accept(page, f"{name}, dark", "color-contrast")
        page.emulate_media(color_scheme="light")


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_dialogs_are_accessible(visit: Callable[..., Any], dark: bool) -> None:
    page = visit(f"/runs/{BUSY}", dark=dark)
    for name in ("Cancel", "Fork", "Priority"):
        page.get_by_role("button", name=name, exact=True).click()
        accept(page, name)
        page.keyboard.press("Escape")
    page.locator(".headline .link").click()
    page.get_by_role("dialog").get_by_text("Recipe", exact=True).wait_for()
    accept(page, "recipe")


@pytest.mark.slow
def test_narrow_windows_scroll_in_one_direction_only(visit: Callable[..., Any], site: Site) -> None:
    page = visit("/runs", width=360, height=740)
    for name in PAGES:
        see(page, site, name)
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(wide) == 0, name
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("link", name="Queue").click()
    page.get_by_text("someone to resume it").wait_for()
    accept(page, "narrow")


@pytest.mark.slow
def test_a_chosen_theme_stays(visit: Callable[..., Any]) -> None:
    page = visit("/queue")
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    page.get_by_role("button", name="Dark colours").click()
    dark = page.evaluate(colour)
    assert dark != light
    page.reload()
    page.get_by_role("button", name="Light colours").wait_for()
    assert page.evaluate(colour) == dark


def test_a_token_in_the_address_signs_in_and_leaves_the_address(
    visit: Callable[..., Any], site: Site
) -> None:
    page = visit("/", who=None)
    page.get_by_text("forge serve").wait_for()
    accept(page, "sign in")
    page.goto(f"{site.url}/#token={site.tokens['ada']}")
    page.get_by_text(re.compile(r"\d runs")).wait_for()
    assert page.url == f"{site.url}/#/runs"
    page.reload()
    page.get_by_text(re.compile(r"\d runs")).wait_for()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", name="Sign in").wait_for()


def test_a_refused_token_leads_back_to_signing_in(visit: Callable[..., Any]) -> None:
    page = visit("/", who=None, expected=("401",))
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("does not take that token").wait_for()


def test_viewers_are_offered_nothing_that_they_may_not_do(
    visit: Callable[..., Any], site: Site
) -> None:
    page = visit(f"/runs/{BUSY}", who="linus")
    page.get_by_role("tab", name="Overview").wait_for()
    page.locator(".bar-who").wait_for()
    assert page.locator(".run-title button:not(.report *)").count() == 0
    assert page.get_by_role("link", name="New run").count() == 0
    page.goto(f"{site.url}/#/users")
    page.get_by_text("For admins only").wait_for()


@pytest.mark.slow
def test_a_new_run_is_checked_as_one_types(visit: Callable[..., Any], site: Site, toys: Toys) -> None:
    page = visit("/new", expected=("422",))
    submit = page.get_by_role("button", name="Submit the run")
    page.get_by_label("Model 1").fill(toys.sources[0].name)
    page.get_by_label("Model 2").fill(toys.sources[1].name)
    page.get_by_label("Items 1", exact=True).fill(str(toys.data))
    page.get_by_label("Priority").fill("high")
    page.get_by_text("must be a whole number").wait_for()
    page.get_by_text("Fix the marked fields first.").wait_for()
    assert submit.is_disabled()
    page.get_by_label("Priority").fill("")
    page.get_by_label("Generations", exact=True).fill("-3")
    said = page.locator(".field", has=page.get_by_label("Generations", exact=True)).locator(".wrong")
    said.get_by_text("should be greater than or equal to 0").wait_for()
    assert submit.is_disabled()
    page.get_by_label("Generations", exact=True).fill("12")
    page.get_by_text("Search 24", exact=True).click()
    page.get_by_label("Target of mutations", exact=True).select_option("genes")
    page.get_by_label("Search settings").fill("fitness_weights")
    weights = page.get_by_label("Weights of fitness", exact=True)
    weights.fill("everything")
    said = page.locator(".field", has=weights)
    said.locator(".wrong").get_by_text("should be a valid dictionary").wait_for()
    weights.fill("")
    page.get_by_label("Labels").fill("demo, nightly")
    page.get_by_text("This can be submitted").wait_for()
    page.get_by_text("The run would wait for a worker").wait_for()
    page.get_by_role("region", name="Items").wait_for()
    page.wait_for_timeout(800)
    submit.click()
    page.get_by_role("tab", name="Overview").wait_for()
    assert re.fullmatch(r"evomerge-\d{4}(-\d+)?", page.locator("h1").inner_text())
    run = page.url.rpartition("/")[2]
    assert re.fullmatch(r"20\d{6}-[0-9a-f]{12}", run)
    made = site.get(f"runs/{run}")
    assert made["labels"] == ["demo", "nightly"]
    assert (made["config"]["mutation"], made["config"]["generations"]) == ("genes", 12)


def test_a_run_whose_check_takes_long_is_submitted_unchecked(
    visit: Callable[..., Any], site: Site, toys: Toys
) -> None:
    """The page said `Checking …` for minutes, and nothing else could be done."""
    detail = "Reading model 2 of 3 (mine), or building it: 12 s so far. Ask again."
    problem = json.dumps({"title": "Service Unavailable", "status": 503, "detail": detail})

    def answer(route: Any) -> None:
        route.fulfill(status=503, headers={"Retry-After": "600"}, body=problem)

    page = visit("/new", expected=("503",), before=lambda p: p.route("**/runs/check", answer))
    page.get_by_label("Model 1").fill(toys.sources[0].name)
    page.get_by_label("Model 2").fill(toys.sources[1].name)
    page.get_by_text("Reading model 2 of 3 (mine), or building it: 12 s so far.", exact=True).wait_for()
    page.get_by_text("This page asks again by itself.").wait_for()
    assert page.get_by_role("button", name="Submit the run").is_disabled()
    page.get_by_role("button", name="Submit anyway: the worker checks").click()
    page.get_by_role("tab", name="Overview").wait_for()
    made = site.get(f"runs/{page.url.rpartition('/')[2]}")
    assert made["kind"] == "evomerge"
    page.goto(f"{site.url}/#/new")
    assert page.get_by_label("Model 1").input_value() == "", "the draft is gone once it is a run"


def test_a_draft_survives_a_reload_and_the_browser_s_way_back(visit: Callable[..., Any]) -> None:
    """Each kind has its own; what kinds have in common goes along."""
    page = visit("/new", expected=("422",))
    page.get_by_label("Model 1").fill("mine")
    page.get_by_label("Kind").select_option("quietstar")
    model = page.get_by_label("Model", exact=True)
    expect(model).to_have_value("mine")
    model.fill("other")
    page.get_by_text("Losses 1", exact=True).click()
    page.get_by_label("Weight of the KL divergence").fill("0.2")
    page.reload()
    expect(page.get_by_label("Kind")).to_have_value("quietstar")
    expect(model).to_have_value("other")
    expect(page.get_by_label("Weight of the KL divergence")).to_have_value("0.2")
    page.go_back()
    expect(page.get_by_label("Kind")).to_have_value("evomerge")
    expect(page.get_by_label("Model 1")).to_have_value("mine")
    page.go_forward()
    expect(model).to_have_value("other")
    page.get_by_role("button", name="Clear the form").click()
    expect(model).to_have_value("")
    characters = page.get_by_label("Characters of built-in text")
    page.get_by_label("Search settings").fill("characters")
    expect(characters).to_have_attribute("placeholder", "default: 4,000,000")


def test_a_form_asks_again_when_the_server_is_busy(visit: Callable[..., Any], toys: Toys) -> None:
    """A check that has to wait too long for an older one is answered 503; nobody has to type again."""
    asked: list[str] = []
    checked = json.dumps({"ok": True, "warnings": [], "config": {}, "items": {}, "parameters": 5})

    def answer(route: Any) -> None:
        said = route.request.post_data
        if json.loads(said)["data"]:  # else the form is still being filled in
            asked.append(said)
        problem = {"title": "Service Unavailable", "status": 503, "detail": "Ask again later."}
        if len(asked) < 2:
            head = {"Retry-After": "1"}
            route.fulfill(status=503, headers=head, body=json.dumps(problem))
        else:
            route.fulfill(status=200, content_type="application/json", body=checked)

    page = visit("/new", expected=("503",), before=lambda p: p.route("**/runs/check", answer))
    page.get_by_label("Model 1").fill(toys.sources[0].name)
    page.get_by_label("Model 2").fill(toys.sources[1].name)
    page.get_by_label("Items 1", exact=True).fill(str(toys.data))
    page.get_by_text("This can be submitted").wait_for()
    assert len(asked) == 2
    assert asked[0] == asked[1]


@pytest.mark.slow
def test_a_form_offers_the_settings_of_the_chosen_strategy_and_a_budget(
    visit: Callable[..., Any], toys: Toys
) -> None:
    """Those of another strategy would be refused. A budget stands for generations."""
    page = visit("/new", expected=("422",))
    page.get_by_text("Search 24", exact=True).click()
    page.get_by_label("Niching", exact=True).wait_for()
    page.get_by_text("Strategies: tournament.").first.wait_for()
    page.get_by_label("Strategy", exact=True).select_option("cma-es")
    page.get_by_label("Spread of the first generation", exact=True).wait_for()
    assert page.get_by_label("Niching", exact=True).count() == 0
    page.get_by_label("Model 1").fill(toys.sources[0].name)
    page.get_by_label("Model 2").fill(toys.sources[1].name)
    page.get_by_label("Items 1", exact=True).fill(str(toys.data))
    budget = page.get_by_label("Budget", exact=True)
    budget.fill("1w")
    said = page.locator(".field", has=budget).locator(".wrong")
    said.get_by_text("give a time such as 30m, 1h").wait_for()
    budget.fill("2h30m")
    page.get_by_text("This can be submitted").wait_for()
    facts = page.locator(".said .facts")
    facts.get_by_text("budget hours").wait_for()
    facts.get_by_text("2.5", exact=True).wait_for()
    assert facts.get_by_text("generations").count() == 0


@pytest.mark.slow
def test_a_new_users_token_is_shown_once(visit: Callable[..., Any], site: Site) -> None:
    page = visit("/users")
    page.get_by_role("button", name="Add a user").click()
    page.get_by_role("dialog").get_by_label("Name").fill("mary")
    page.get_by_role("dialog").get_by_role("button", name="Add", exact=True).click()
    page.get_by_label("Token", exact=True).get_by_text("forge_").wait_for()
    page.get_by_role("button", name="Done").click()
    page.get_by_label("Role of mary").select_option("viewer")
    mary = page.locator("tr, li, section").filter(has_text="mary").last
    mary.get_by_role("button", name="Revoke").first.click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").wait_for(state="detached")
    told = {user["name"]: user for user in site.get("users")["users"]}["mary"]
    assert (told["role"], told["tokens"]) == ("viewer", [])
    assert page.get_by_text("forge_").count() == 0


@pytest.mark.slow
def test_models_are_registered(visit: Callable[..., Any], site: Site, toys: Toys) -> None:
    page = visit("/models?kind=specialist")
    page.get_by_role("button", name="Register").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Register").click()
    dialog.get_by_text("Give a folder or a GGUF file on the server").wait_for()
    dialog.get_by_label("Folder").fill(toys.base.name)
    dialog.get_by_role("button", name="Register").click()
    dialog.wait_for(state="detached")
    digests = {model["digest"] for model in site.get("models")["models"]}
    assert site.get(f"runs/{REAL}")["base"]["digest"] in digests


@pytest.mark.slow
def test_the_page_of_a_model_has_every_measurement_with_its_interval(
    visit: Callable[..., Any], site: Site
) -> None:
    """By the name of a run's result, too; and it begins a run of any kind with the model."""
    name = f"{REAL}:champion"
    (run,) = site.get(f"models/{name}/measurements")["runs"]
    (test,) = [m for m in run["measurements"] if (m["name"], m["slice"]) == ("score", "test")]
    ends = " … ".join(f"{test['figure'][end]:#.4g}" for end in ("low", "high"))
    page = visit(f"/models/{name}")
    row = page.get_by_role("row", name="score all test").first
    row.get_by_text(ends).wait_for()
    assert row.get_by_role("cell").last.inner_text() == f"{test['figure']['n']:,}"
    page.get_by_role("link", name="Make it ternary").click()
    model = page.get_by_role("combobox", name="Model")
    model.wait_for()
    assert model.input_value() == site.get(f"models/{name}")["id"]


@pytest.mark.slow
def test_the_page_of_a_model_gives_its_files(visit: Callable[..., Any], site: Site, toys: Toys) -> None:
    """To those who may start runs; everybody sees names and sizes."""
    digest = site.get(f"runs/{REAL}")["base"]["digest"]
    (model,) = [m for m in site.get("models")["models"] if m["digest"] == digest]
    page = visit(f"/models/{model['id']}")
    files = page.get_by_role("region", name="Files of the model")
    page.get_by_text(str(toys.base)).first.wait_for()
    with page.expect_download() as coming:
        files.get_by_role("button", name="Download config.json").click()
    given = Path(coming.value.path()).read_bytes()
    assert given == (toys.base / "config.json").read_bytes()
    assert coming.value.suggested_filename == "config.json"
    assert files.locator("tbody tr").count() == len([f for f in toys.base.iterdir() if f.is_file()])
    accept(page, "files of a model")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run", "front", "layers", "lineage", "compare"])
def test_every_chart_has_a_name_and_its_numbers_as_a_table(
    visit: Callable[..., Any], site: Site, name: str
) -> None:
    page = visit("/runs")
    see(page, site, name)
    nameless = """() => [...document.querySelectorAll('figure.chart svg[role]')]
        .filter((svg) => !svg.querySelector('title')?.textContent).length"""
    assert page.evaluate(nameless) == 0
    tables = page.get_by_text("As a table")
    tables.last.wait_for()
    assert tables.count() >= page.locator("figure.chart").count()
    tables.first.click()
    page.locator(".chart-table[open] tbody tr").nth(1).wait_for()
