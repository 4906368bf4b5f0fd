"""A browser, and the real server over runs that the real engine wrote."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_forge.api.processes import readers
from testing.models.toys import Toys
from testing.waiting import PATIENCE
from testing.worlds import dashboard_world
from testing.worlds.dashboard_world import SITE, Site
from testing.worlds.finished_run import FinishedRun

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Of a module, not of the session: while it lives, no other test may run an event loop."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine")
    if not (SITE / "index.html").is_file():
        pytest.skip("the dashboard is not built: npm run build in dashboard/")
    playwright.expect.set_options(timeout=1000 * PATIENCE)
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="session")
def recorded(finished_run: FinishedRun) -> tuple[Path, dict[str, str]]:
    """A home with runs of every kind, and everybody's tokens."""
    home, _ = finished_run()
    return home.folder, dashboard_world.record(home.folder)


@pytest.fixture(scope="module")
def site(recorded: tuple[Path, dict[str, str]], toys: Toys) -> Iterator[Site]:
    """The real server over a copy of it; its workers live as long as the tests."""
    folder = dashboard_world.memory()
    shutil.copytree(recorded[0], folder / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORGE_LEASE_SECONDS", "3600")
        patch.setenv("FORGE_HOME", os.environ.get("FORGE_HOME", ""))  # `Site` sets it
        patch.setattr(readers, "PATIENCE", PATIENCE)  # a form's second check waits for the first
        found = Site(folder / "home", recorded[1], (toys.base.parent, toys.data.parent))
        yield found
        found.close()
    shutil.rmtree(folder)


@pytest.fixture
def visit(browser: Any, site: Site) -> Iterator[Callable[..., Any]]:
    """Opens a page as somebody; at the end nothing may have gone wrong in it."""
    contexts, wrong = [], []

    def go(
        where: str = "/runs",
        who: str | None = "ada",
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        expected: tuple[str, ...] = (),
        before: Any = None,
    ) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            reduced_motion="reduce",
            color_scheme="dark" if dark else "light",
            timezone_id="Europe/Berlin",
            locale="en-GB",
        )
        context.set_default_timeout(1000 * PATIENCE)
        contexts.append(context)
        page = context.new_page()

        def hear(text: str) -> None:
            if not any(word in text for word in expected):
                wrong.append(text)

        page.on("pageerror", lambda error: hear(str(error)))
        page.on("console", lambda m: hear(m.text) if m.type in ("error", "warning") else None)

        def elsewhere(url: str) -> None:
            if not url.startswith((site.url, "data:", "blob:")):
                wrong.append(f"asked for {url}")

        page.on("request", lambda request: elsewhere(request.url))
        if who is not None:
            kept = f"try {{ localStorage.setItem('forge.token', '{site.tokens[who]}'); }} catch {{}}"
            page.add_init_script(f"if (!sessionStorage.begun) {{ sessionStorage.begun = 1; {kept} }}")
        if before is not None:
            before(page)
        page.goto(f"{site.url}/#{where}")
        return page

    yield go
    for context in contexts:
        context.close()
    assert wrong == []
