"""Take the pictures of docs/ from recorded runs: `python docs/pictures.py --demo HOME --speedrun HOME`.

HOME is the home folder (`FORGE_HOME`) of a recorded `make demo`, and of a recorded
`forge pipeline run examples/speedrun.toml`. Each is copied first and stays as it is. The real server
serves the copy, the system's Chromium opens its pages, and every picture of `PICTURES` is written to
docs/screenshots/, light and dark. docs/report.png is the report of the demo's run. Files in
docs/screenshots/ that no entry of `PICTURES` makes are deleted. A home that is left out keeps its
pictures. Needs Chromium and the packages of `pip install -e '.[dev]'`.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
FOLDER = ROOT / "docs" / "screenshots"
SIZE = {"width": 1440, "height": 900}
THEMES = ("light", "dark")
#: Who looks at the pages: a user of the copy alone.
USER = "ada"
#: Milliseconds that a page may take.
PATIENCE = 120_000
RIVALS = "Champion against its rivals"
#: Shortens absolute paths in a page's text: a picture shows no folder of the recording machine.
SHORTEN = r"""() => {
    const path = /(^|[\s("'=:])(?:\/[\w.@+-]+)+?((?:\/[\w.@+-]+){2})(?=$|[\s)"',:;…])/g;
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode;
        const text = node.data.replace(path, "$1…$2");
        if (text !== node.data) node.data = text;
    }
}"""


@dataclass(frozen=True)
class Picture:
    """A page of the dashboard, and what stands on it when it is complete."""

    name: str
    #: Which recorded log the page shows: `demo` or `speedrun`.
    log: str
    #: The page's address; its fields are those of `addresses`.
    address: str
    #: Text that the complete page has.
    text: str | re.Pattern[str]
    #: What the user does on the page before the picture is taken.
    act: Callable[[Any], None] = lambda page: None
    height: int = SIZE["height"]

    @property
    def files(self) -> list[str]:
        """Return the names of the picture's files."""
        return [f"{self.name}-{theme}.png" for theme in THEMES]


def open_recipe(page: Any) -> None:
    """Open the champion's recipe."""
    page.locator(".headline .link").first.click()
    page.get_by_role("dialog").get_by_text("Recipe", exact=True).wait_for()


def fit(page: Any) -> None:
    """Make a graph as small as the page is wide."""
    page.get_by_label("Fit").check()


def scroll_to(title: str) -> Callable[[Any], None]:
    """Return a function that scrolls until the panel with this title is at the top."""

    def scroll(page: Any) -> None:
        heading = page.get_by_role("heading", name=title, exact=True)
        heading.wait_for()
        heading.evaluate("(h) => (h.closest('section') ?? h).scrollIntoView({block: 'start'})")
        page.mouse.wheel(0, -80)  # the bar at the top covers the panel's title

    return scroll


PICTURES = (
    Picture("runs", "demo", "/runs", re.compile(r"\d runs"), height=420),
    Picture("run", "demo", "/runs/{evomerge}", "test score"),
    Picture("rivals", "demo", "/runs/{evomerge}", "test score", scroll_to(RIVALS), height=1110),
    Picture("past", "demo", "/runs/{evomerge}?at={middle}", "as it was at event"),
    Picture("population", "demo", "/runs/{evomerge}/population", re.compile(r"\d candidates")),
    Picture("lineage", "demo", "/runs/{evomerge}/lineage", re.compile(r"\d ancestors"), height=760),
    Picture("recipe", "demo", "/runs/{evomerge}", "test score", open_recipe),
    Picture("layers", "demo", "/runs/{evomerge}/layers", "point at a cell", height=640),
    Picture("events", "demo", "/runs/{evomerge}/events", re.compile(r"\d events")),
    Picture("settings", "demo", "/runs/{evomerge}/settings", "not the default"),
    Picture("kind", "demo", "/runs/{cognate}", "Loss along the steps"),
    Picture("models", "demo", "/models", "champion of", height=520),
    Picture("model", "demo", "/models/{evomerge}:champion", "Measurements"),
    Picture("pipelines", "speedrun", "/pipelines", "1 pipeline", height=420),
    Picture("pipeline", "speedrun", "/runs/{pipeline}", "Quality along the way", height=2000),
    Picture("family", "speedrun", "/runs/{pipeline}/lineage", "2 merge", fit, height=700),
    Picture("compression", "speedrun", "/runs/{compression}", "Size and quality"),
)


def main(words: list[str] | None = None) -> None:
    """Take the pictures of the homes that are given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for log in ("demo", "speedrun"):
        parser.add_argument(f"--{log}", type=Path, metavar="HOME", help=f"home of the recorded {log}")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="take these pictures alone")
    options = parser.parse_args(words)
    homes = {log: home for log in ("demo", "speedrun") if (home := getattr(options, log))}
    if not homes:
        parser.error("give the home of a recorded run: --demo HOME, --speedrun HOME")
    for home in homes.values():
        if not (home / "forge.db").is_file():
            parser.error(f"{home} is no home: it has no forge.db")
    FOLDER.mkdir(exist_ok=True)
    for log, home in homes.items():
        pictures = [p for p in PICTURES if p.log == log and p.name in (options.only or [p.name])]
        with tempfile.TemporaryDirectory(prefix="forge-pictures-") as folder:
            copy(home, Path(folder) / "home")
            with serve(Path(folder) / "home") as site:
                take(site, pictures)
                if log == "demo" and not options.only:
                    draw_report(site)
    for file in FOLDER.iterdir():
        if file.name not in {name for picture in PICTURES for name in picture.files}:
            file.unlink()


def copy(home: Path, to: Path) -> None:
    """Copy a home; its log as one consistent state, even while a worker appends."""
    shutil.copytree(home, to, ignore=shutil.ignore_patterns("forge.db*"))
    with (
        closing(sqlite3.connect(f"file:{home / 'forge.db'}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(to / "forge.db")) as target,
    ):
        source.backup(target)


@contextmanager
def serve(home: Path) -> Iterator[Any]:
    """Serve a home at a free port, with one user."""
    from agent_forge.runs.home import Home
    from agent_forge.worker.commands import accounts
    from testing.worlds.dashboard_world import Site

    store = Home(home).open_store()
    if USER not in accounts.read(store).roles:
        accounts.add(store, USER, "admin")
    token = accounts.issue(store, USER, "pictures")[1]
    store.close()
    site = Site(home, {USER: token})
    try:
        yield site
    finally:
        site.close()


def addresses(site: Any) -> dict[str, object]:
    """Return what the addresses of `PICTURES` name: the newest run of each kind, by its kind."""
    runs = site.get("runs", USER, limit=500)["runs"]
    fields: dict[str, object] = {}
    for run in sorted(runs, key=lambda run: run["submitted_at"]):
        fields[run["kind"]] = run["run"]
    if "evomerge" in fields:
        fields["middle"] = site.get(f"runs/{fields['evomerge']}", USER)["places"] // 2
    return fields


def take(site: Any, pictures: list[Picture]) -> None:
    """Take pictures of a server's pages."""
    from playwright.sync_api import sync_playwright

    fields = addresses(site)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("there is no Chromium here: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for picture in pictures:
            try:
                address = picture.address.format(**fields)
            except KeyError as missing:
                sys.exit(f"{picture.name}: the log has no run of kind {missing}")
            for theme, file in zip(THEMES, picture.files, strict=True):
                image = photograph(browser, site, picture, address, theme)
                (FOLDER / file).write_bytes(smaller(image))
                sys.stdout.write(f"{file}: {(FOLDER / file).stat().st_size:,} bytes\n")
                sys.stdout.flush()
        browser.close()


def photograph(browser: Any, site: Any, picture: Picture, address: str, theme: str) -> bytes:
    """Return a PNG of one page in one theme."""
    from playwright.sync_api import expect

    context = browser.new_context(
        viewport={**SIZE, "height": picture.height},
        reduced_motion="reduce",
        color_scheme=theme,
        timezone_id="UTC",
        locale="en-GB",
    )
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.add_init_script(
        f"try {{ localStorage.setItem('forge.token', '{site.tokens[USER]}'); }} catch {{}}"
    )
    page.goto(f"{site.url}/#{address}")
    page.get_by_text(picture.text).first.wait_for()
    picture.act(page)
    image, previous = b"", None
    while image != previous:  # until the page stands still
        expect(page.get_by_text("Loading …")).to_have_count(0, timeout=PATIENCE)
        page.wait_for_timeout(500)
        page.evaluate(SHORTEN)
        previous, image = image, page.screenshot(caret="hide", animations="disabled")
    context.close()
    return image


def draw_report(site: Any) -> None:
    """Draw the picture of the demo's report into docs/report.png."""
    from agent_forge.evomerge.reports import report
    from agent_forge.evomerge.reports.pictures import plot
    from agent_forge.runs.history import repository

    run = str(addresses(site)["evomerge"])
    rows = list(repository.history(site.store, run))
    image = plot.draw(report.report(repository.load(site.store, run), rows), "png")
    (ROOT / "docs" / "report.png").write_bytes(image)


def smaller(image: bytes) -> bytes:
    """Return the same picture with a palette of at most 256 colours, rare ones among them."""
    from PIL import Image

    packed = io.BytesIO()
    picture = Image.open(io.BytesIO(image)).convert("RGB")
    colours = picture.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    colours.save(packed, "PNG", optimize=True)
    return packed.getvalue()


if __name__ == "__main__":
    main()
