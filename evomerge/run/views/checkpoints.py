"""Names of checkpoint files (docs/documents.md) as places in the log.

The documents resume from `checkpoints/evomerge/generation_30.pt` or
`OUT/evomerge_checkpoints/evolution_checkpoint_gen_25.json`. Here every event is a checkpoint, and no
such file is written; its name says which run and which generation are meant.
"""

from __future__ import annotations

import re
from pathlib import Path

from agent_forge.events import EventStore
from agent_forge.evomerge.run.state import RunState
from agent_forge.runs.errors import NotFoundError
from agent_forge.runs.history import repository
from agent_forge.runs.lists import queries

_NAME = re.compile(r"(?:.*_)?gen(?:eration)?_(\d+)\.(?:pt|json)")
#: Runs that are looked at, the newest first.
_LOOKED_AT = 200


def generation_of(text: str) -> int | None:
    """Return the generation in a checkpoint's name; None if the text names no checkpoint."""
    match = _NAME.fullmatch(Path(text).name)
    return int(match.group(1)) if match else None


def meant(store: EventStore, text: str) -> tuple[str, int | None]:
    """Return (run, generation or None) that a checkpoint of the documents means.

    The run is the newest merging run with that output folder, else the newest of all. A run that has
    not ended goes on where it is, which gives the same result as from the checkpoint: the generation
    is None. Raises NotFoundError if the text names no checkpoint, or no run has come that far.
    """
    generation = generation_of(text)
    if generation is None:
        raise NotFoundError(f"{text} names no generation: give …generation_N.pt or …_gen_N.json.")
    rows, _ = queries.page(store, _LOOKED_AT, kind=RunState.kind)
    folder = Path(text).absolute().parent.parent
    far, matches = list[RunState](), list[RunState]()
    for row in rows:
        state = repository.load_of(RunState, store, row["run"])
        closes = state.forked is not None and state.generation == generation  # as a fork's first step
        if generation in state.generations or closes:
            far.append(state)
            output = state.submitted.output_dir if state.submitted else None
            if output is not None and Path(output).absolute() == folder:
                matches.append(state)
    if not far:
        raise NotFoundError(f"no run here has come to generation {generation}, as {text} says.")
    state = (matches or far)[0]
    return state.run, generation if state.ended else None
