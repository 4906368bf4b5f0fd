"""Export of a run's result with its report, or of one of its models; the export is recorded.

`python -m worker.exports.delivery RUN FOLDER BY [MODEL]` exports in a process of its own; it reads the
user's reason from stdin.
"""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import closing
from pathlib import Path

from agent_forge.events import EventStore
from agent_forge.events.envelope import Plain
from agent_forge.runs import kinds
from agent_forge.runs.errors import ForgeError
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import inputs, plan_of
from agent_forge.runs.kinds.origin import LogModel
from agent_forge.runs.kinds.state import State
from agent_forge.runs.lists import finding
from agent_forge.runs.record.events import Exported
from agent_forge.weights.storage import model_origin
from agent_forge.weights.storage.output_folder import check_apart, check_target
from agent_forge.worker.commands.control import control


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
    home: Home, run: str, out: Path, reason: str | None = None, by: str | None = None, model: str = ""
) -> tuple[State, Plain]:
    """Write a completed run's result with its report, or one model; return (state, JSON record).

    The export is recorded. A `model` that is the result means the result. The record is the result's
    report, or says what was written of the model. Raises ForgeError.
    """
    with closing(home.open_store()) as store:
        state = finding.load(store, run)
        check_ended(state)
        check_apart(out, inputs(plan_of(state.submitted, state.kind)))
        kind = kinds.of(state.kind)
        origin = model_origin.model(store, state.run, model) if model else None
        result = kind.models.result(state)
        if origin is None or (result is not None and origin.digest == result.digest):
            written = kind.write_result(home, state, out)
        else:
            written = _copied(home, origin, check_target(out))
        record(store, state, written, reason, by)
    return state, written


def folders(store: EventStore, state: State) -> set[str]:
    """Return the set of the run's output folder, or None, and all folders that exports wrote to."""
    rows = [row for row in store.iterate(state.stream) if row.type == Exported.type]
    return {json.loads(row.data)["folder"] for row in rows} | {state.submitted.output_dir}


def record(
    store: EventStore, state: State, written: Plain, reason: str | None = None, by: str | None = None
) -> None:
    """Record an export: of the model in `written["exported"]`, or else of the run's result."""
    result = kinds.of(state.kind).models.result(state)
    of_result = {"recipe_id": result and result.recipe_id, "digest": result and result.digest}
    model = written.get("exported", of_result)
    folder = str(Path(written["folder"]).absolute())
    event = Exported(recipe_id=model["recipe_id"], folder=folder, digest=model["digest"], reason=reason)
    control(store, state.run, event, by)


def _copied(home: Home, origin: LogModel, out: Path) -> Plain:
    """Copy the folder of a run's model, built if no copy exists; return a JSON record."""
    from agent_forge.weights.folders.checkpoint import publish

    place = model_origin.settle(home, json.loads(origin.request(origin.folders)))

    def fill(folder: Path) -> None:
        shutil.copytree(place, folder, dirs_exist_ok=True)

    publish(out, fill)
    model = {"what": origin.what, "recipe_id": origin.recipe_id, "digest": origin.digest}
    return {"run": origin.run, "exported": model, "folder": str(out)}


def main(run: str, out: str, by: str, model: str = "", *, reason: str) -> int:
    """Export a run's result or one of its models; return 0, or an exit code and an error on stderr."""
    try:
        deliver(Home.default(), run, Path(out), reason or None, by, model)
    except ForgeError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:], reason=sys.stdin.buffer.read().decode()))
