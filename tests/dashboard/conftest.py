"""A browser, and a server of canned answers, for the dashboard's tests."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.dashboard.server import SITE, Canned

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Of a module, not of the session: while it lives, no other test may run an event loop."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine")
    if not (SITE / "index.html").is_file():
        pytest.skip("the dashboard is not built: npm run build in dashboard/")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def many() -> int:
    """Runs in the list, beside those with a history."""
    return 40


@pytest.fixture(scope="module")
def server(many: int) -> Iterator[Canned]:
    found = Canned(many=many)
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    yield found
    found.shutdown()
    found.server_close()
    thread.join(5)


@pytest.fixture
def visit(browser: Any, server: Canned) -> Iterator[Callable[..., Any]]:
    """Opens a page as somebody; at the end nothing may have gone wrong in it."""
    contexts, wrong = [], []

    def go(
        where: str = "/runs", token: str | None = "admin-token", width: int = 1280,
        height: int = 900, dark: bool = False, expected: tuple[str, ...] = (),
    ) -> Any:  # fmt: skip
        context = browser.new_context(
            viewport={"width": width, "height": height}, reduced_motion="reduce",
            color_scheme="dark" if dark else "light", timezone_id="Europe/Berlin", locale="en-GB",
        )  # fmt: skip
        context.set_default_timeout(8000)
        contexts.append(context)
        page = context.new_page()

        def hear(text: str) -> None:
            if not any(word in text for word in expected):
                wrong.append(text)

        page.on("pageerror", lambda error: hear(str(error)))
        page.on("console", lambda m: hear(m.text) if m.type in ("error", "warning") else None)
        if token is not None:
            kept = f"try {{ localStorage.setItem('forge.token', '{token}'); }} catch {{}}"
            page.add_init_script(kept)
        page.goto(f"{server.url}/#{where}")
        return page

    yield go
    for context in contexts:
        context.close()
    assert wrong == []
