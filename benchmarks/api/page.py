"""Time until a run's page is painted and until an event shows on it, in the system's Chromium.

    python -m benchmarks.api.page --home /tmp/long --times 20    # a log of `latency.py`

Measured are first contentful paint, as the browser reports it, and the time until the champion is
shown, each in a new context (nothing cached). Live: the time from the return of the append to the
text on the page.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from agent_forge.events import New
from agent_forge.evomerge.run import events
from agent_forge.runs.home import Home
from agent_forge.runs.streams import stream
from agent_forge.worker.commands import accounts
from benchmarks.api.latency import FORGE, quantile, wait_for

PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def paints(browser: Any, url: str, token: str, times: int) -> tuple[list[float], list[float]]:
    """Return the milliseconds until the first paint, and until the champion is shown."""
    first, chart = [], []
    for number in range(times):
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        context.add_init_script(f"localStorage.setItem('forge.token', '{token}')")
        page = context.new_page()
        began = time.perf_counter()
        page.goto(f"{url}/#/runs/run-{number:06d}", wait_until="commit")
        page.locator(".headline-champion b").wait_for()
        chart.append(1e3 * (time.perf_counter() - began))
        first.append(float(page.evaluate(PAINT)))
        context.close()
    return first, chart


def live(browser: Any, url: str, token: str, home: Home, times: int) -> list[float]:
    """Return the milliseconds from each append to its text on the page."""
    store, found, run = home.open_store(), [], "run-000000"
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_init_script(f"localStorage.setItem('forge.token', '{token}')")
    page = context.new_page()
    page.goto(f"{url}/#/runs/{run}")
    page.locator(".live[data-state=live]").wait_for()
    page.locator(".dock-caption b").wait_for()
    for number in range(times):
        version = store.version(stream("evomerge", run))
        event = events.Exported(recipe_id="x", folder="x", digest="x", reason=str(number))
        new = New(event, f"{run}/exported/page-{version}")
        store.append(stream("evomerge", run), version, [new])
        began = time.perf_counter()
        page.locator(".dock-caption b").get_by_text(f"/ {version + 1}").wait_for()
        found.append(1e3 * (time.perf_counter() - began))
        page.wait_for_timeout(900)  # longer than the page waits between two reads
    store.close()
    return found


def main() -> None:
    """Start a server and a browser, measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--port", type=int, default=8098)
    given = parser.parse_args()
    home = Home(given.home.absolute())
    store = home.open_store()
    token = accounts.issue(store, "bench")[1]
    store.close()
    env = {**os.environ, "FORGE_HOME": str(home.folder), "FORGE_API_RATE": "10000"}
    server = subprocess.Popen([*FORGE, "serve", "--port", str(given.port)], env=env)
    try:
        wait_for(given.port)
        url = f"http://127.0.0.1:{given.port}"
        with sync_playwright() as playwright:
            path = shutil.which("chromium") or shutil.which("chromium-browser")
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            first, chart = paints(browser, url, token, given.times)
            waits = live(browser, url, token, home, given.times)
            browser.close()
        rows = (("first paint", first), ("champion shown", chart), ("live, on the page", waits))
        print(f"{'':20s} {'median':>8s} {'p90':>8s}  ms")
        for what, values in rows:
            print(f"{what:20s} {quantile(values, 0.5):8.0f} {quantile(values, 0.9):8.0f}")
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)


if __name__ == "__main__":
    main()
