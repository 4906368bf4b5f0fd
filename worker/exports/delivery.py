"""Export of a champion's folder with the report beside its files, and the event that records it.

`python -m worker.exports.delivery RUN FOLDER BY` exports in a process of its own; it reads the
user's reason from stdin.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from runs import kinds
from runs.errors import ForgeError
from runs.history import repository
from runs.home import Home
from runs.kinds.asked import inputs, plan_of
from runs.kinds.state import State
from runs.record.user_events import Exported
from weights.storage.output_folder import check_apart
from worker.commands.control import control


def check_ended(state: State) -> None:
    """Raise ForgeError if the run has no final result."""
    if state.completed:
        return
    result = kinds.of(state.kind).result_name
    what = f"Finish it with `forge start --resume {state.run}`."
    if state.ended:
        what = f"Fork it where it was still good, with `forge fork {state.run}`."
    raise ForgeError(f"run {state.run} is {state.status} and has no {result}. {what}")


def deliver(
    home: Home, run: str, out: Path, reason: str | None = None, by: str | None = None
) -> tuple[Any, dict[str, Any]]:
    """Write a completed run's champion and record the export; return the state and the report."""
    store = home.open_store()
    try:
        state = repository.load(store, run)
        check_ended(state)
        check_apart(out, inputs(plan_of(state.submitted, state.kind)))
        kind = kinds.of(state.kind)
        written = kind.write_result(home, state, out)
        recipe_id, digest = kind.result_id(state), kind.result(state)
        assert recipe_id
        assert digest
        event = Exported(
            recipe_id=recipe_id, folder=written["folder"], digest=digest, reason=reason
        )
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
