"""A newcomer's way through a real run: `forge up`, the form, live, the slider, a fork, a comparison."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_forge.runs.home import Home
from agent_forge.worker.commands import accounts
from testing.models.toys import Toys
from testing.waiting import PATIENCE, wait_until
from testing.worlds.runs import REPOSITORY


class Up:
    """`forge up` with one process, and the address that it prints."""

    def __init__(self, folder: Path, roots: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._log = folder / "up.log"
        store = Home(folder / "home").open_store()
        accounts.add(store, "ada", "admin")
        self._token = accounts.issue(store, "ada")[1]
        store.close()
        env = {**os.environ, "FORGE_HOME": str(folder / "home"), "FORGE_MODEL_ROOTS": roots}
        for name in ("FORGE_BROKER_URL", "FORGE_DATABASE_URL"):
            env.pop(name, None)
        with self._log.open("wb") as said:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    "from agent_forge.cli.main import main; main()",
                    "up",
                    "--port",
                    str(port),
                ],
                env={**env, "FORGE_THREADS": "1"},
                cwd=REPOSITORY,
                stderr=said,
                start_new_session=True,
            )
        self.address = self._printed()

    def _printed(self) -> str:
        line = re.compile(r"dashboard (http://\S+)")
        wait_until(
            lambda: self.process.poll() is not None or line.search(self._log.read_text()),
            self._log.read_text,
            pause=0.2,
        )
        address = line.search(self._log.read_text())
        assert address, self._log.read_text()
        assert "token=" not in address[0], "what is printed is kept here"
        return f"{address[1]}#token={self._token}"

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            assert self.process.wait(PATIENCE) == 0
        finally:
            self.process.kill()


@pytest.fixture(scope="module")
def up(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    roots = os.pathsep.join({str(toys.base.parent), str(toys.data.parent)})
    found = Up(tmp_path_factory.mktemp("up"), roots)
    yield found
    found.stop()


def fill(page: Any, toys: Toys, generations: int) -> None:
    """The form, as somebody fills it."""
    page.get_by_role("link", name="New run").first.click()
    for number, source in enumerate(toys.sources, 1):
        if page.get_by_label(f"Model {number}", exact=True).count() == 0:
            page.get_by_role("button", name="Model", exact=True).click()
        page.get_by_label(f"Model {number}", exact=True).fill(source.name)
    page.get_by_label("Base", exact=True).fill(toys.base.name)
    if page.get_by_label("Items 1", exact=True).count() == 0:
        page.get_by_role("button", name="Items", exact=True).click()
    page.get_by_label("Items 1", exact=True).fill(str(toys.data))
    page.get_by_label("Strategy", exact=True).select_option("elite-loser")
    page.get_by_label("Generations", exact=True).fill(str(generations))
    page.get_by_text("Data 5", exact=True).click()
    for name in ("Windows", "Questions", "Problems"):
        page.get_by_label(f"{name} of a generation", exact=True).fill("2")
    page.get_by_text("Run 4", exact=True).click()
    page.get_by_label("Generations without improvement", exact=True).fill("0")


@pytest.mark.slow
def test_from_the_form_to_a_fork_beside_its_parent(browser: Any, up: Up, toys: Toys) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(1000 * PATIENCE)
    page, wrong = context.new_page(), []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(up.address)
    page.get_by_role("heading", name="Runs", exact=True).wait_for()
    assert "token" not in page.url

    fill(page, toys, 40)
    page.get_by_text("This can be submitted").wait_for()
    page.wait_for_timeout(700)
    page.get_by_role("button", name="Submit the run").click()
    page.get_by_role("tab", name="Overview").wait_for()
    run = page.url.rpartition("/")[2].partition("?")[0]

    # Live: the champion, and generations that come while one looks.
    page.locator(".headline-champion b").wait_for()
    page.locator(".dock-marks span").nth(3).wait_for(state="attached")
    slider = page.get_by_role("slider", name="Event")
    before = int(slider.get_attribute("max") or 0)
    wait_until(lambda: int(slider.get_attribute("max") or 0) > before, "an event has arrived")

    # Back in time, and a fork from there.
    page.get_by_role("button", name="Previous generation's end").click()
    page.get_by_role("button", name="Previous generation's end").click()
    page.get_by_text("as it was at event").wait_for()
    page.get_by_role("button", name="Fork from here").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Setting", exact=True).select_option("mutation_rate")
    dialog.get_by_label("Value of mutation_rate").fill("0.05")
    dialog.get_by_label("Reason (optional)").fill("larger steps")
    dialog.get_by_role("button", name="Fork", exact=True).click()
    page.wait_for_url(lambda url: run not in url)
    page.get_by_role("tab", name="Overview").wait_for()
    fork = page.url.rpartition("/")[2].partition("?")[0]
    assert fork != run

    # The fork is ended, with a reason; the first one goes on.
    page.get_by_role("button", name="Cancel", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason (required)").fill("seen enough")
    dialog.get_by_role("button", name="Cancel the run").click()
    page.get_by_text("cancelled").first.wait_for()

    page.goto(f"{up.address.partition('#')[0]}#/compare?runs={run},{fork}")
    page.get_by_text("mutation_rate").first.wait_for()
    assert wrong == []
    context.close()
