"""Export of a champion's folder with the report beside its files, and the event that records it.

`python -m worker.exports.delivery RUN FOLDER BY` exports in a process of its own; it reads the
user's reason from stdin.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from evomerge.reports import plot, report
from evomerge.run import events, repository
from evomerge.run.state import RunState
from runs.errors import ForgeError
from runs.home import Home
from worker.commands.control import control


def check_ended(state: RunState) -> None:
    """Raise ForgeError if the run has no final champion."""
    if state.completed:
        return
    what = "Branch it with `forge fork`" if state.ended else "Finish it with `forge evo --resume"
    raise ForgeError(
        f"run {state.run} is {state.status}: there is no final champion. "
        + (f"{what}." if state.ended else f"{what} {state.run}`.")
    )


def write(home: Home, state: RunState, out: Path) -> dict[str, Any]:
    """Write the champion's folder and the report beside its files.

    Return the report, with `folder` added.
    """
    from worker.exports import champion
    from worker.storage.weight_cache import Artifacts

    store = home.open_store()
    rows = list(repository.history(store, state.run))
    store.close()
    data = report.report(state, rows)
    folder = champion.export(state, Artifacts.of(home), out.absolute(), rows[-1].hash)
    for name, content in documents(data).items():
        (folder / name).write_bytes(content)
    plot.draw(data, folder / "report.svg")
    plot.draw(data, folder / "report.png")
    return {**data, "folder": str(folder)}


def documents(data: dict[str, Any]) -> dict[str, bytes]:
    """Return the report as files: name → content."""
    told = json.dumps(data, indent=2) + "\n"
    return {"report.json": told.encode(), "report.md": report.markdown(data).encode()}


def deliver(
    home: Home, run: str, out: Path, reason: str | None = None, by: str | None = None
) -> tuple[RunState, dict[str, Any]]:
    """Write a completed run's champion and record the export; return the state and the report."""
    store = home.open_store()
    try:
        state = repository.load(store, run)
        check_ended(state)
        written = write(home, state, out)
        assert state.champion
        event = events.Exported(
            recipe_id=state.champion, folder=written["folder"],
            digest=state.built[state.champion][0], reason=reason,
        )  # fmt: skip
        control(store, state.run, event, by)
    finally:
        store.close()
    return state, written


def main(run: str, out: str, by: str, reason: str) -> int:
    """Export the champion; return 0, or an exit code with the reason on stderr."""
    try:
        deliver(Home.default(), run, Path(out), reason or None, by)
    except ForgeError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:], reason=sys.stdin.buffer.read().decode()))
