"""Export of a champion's folder with the report beside its files, and the event that records it.

`python -m worker.exports.delivery RUN FOLDER BY` exports in a process of its own; it reads the
user's reason from stdin.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

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


def deliver(
    home: Home, run: str, out: Path, reason: str | None = None, by: str | None = None
) -> tuple[RunState, dict[str, Any]]:
    """Write a completed run's champion and record the export; return the state and the report."""
    from evomerge.tasks import champion_folder

    store = home.open_store()
    try:
        state = repository.load(store, run)
        check_ended(state)
        written = champion_folder.write(home, state, out)
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
