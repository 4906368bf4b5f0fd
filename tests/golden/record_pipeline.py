"""Write the golden logs of a pipeline and a measurement: `python -m tests.golden.record_pipeline 1`.

cognate → evomerge, in miniature: a first run of the merge that is cancelled, a gate that is overridden,
a gate that passes its input unchanged; then a second pipeline, which takes all of the first one's runs.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from agent_forge.pipeline.events import GateOverridden
from agent_forge.runs.errors import ForgeError
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home
from agent_forge.runs.record.events import Cancelled, Retried
from agent_forge.worker.commands.control import control
from testing.miniatures import cognate_runs, pipeline_runs
from tests.golden.test_golden_kinds import FOLDER, write

RUN, AGAIN = "p", "q"
#: The first gate stops.
PHASES = [
    {**pipeline_runs.PHASES[0], "gates": [{"metric": "lead", "at_least": 1e9}]},
    pipeline_runs.PHASES[1],
]


def _ask(home: Home, *asked: Any, run: str = RUN) -> None:
    with closing(home.open_store()) as store:
        for event in asked:
            control(store, run, event)


def main() -> None:
    """Carry the pipeline to its end, with what a person does meanwhile, and write the logs."""
    number = sys.argv[1]
    runs = {
        f"pipeline-{number}": RUN,
        f"pipeline-{number}-reused": AGAIN,
        f"measure-{number}": f"{RUN}.2-merge-test",
    }
    if recorded := [name for name in runs if (FOLDER / f"{name}.jsonl").exists()]:
        raise SystemExit(f"{recorded} are recorded already: choose another number")
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        pipeline_runs.submit(home, PHASES, RUN)
        with suppress(ForgeError):  # the gate stops it
            cognate_runs.finish(home, RUN)
        _ask(home, GateOverridden(phase=1, reason="a try"), Retried())
        merge = f"{RUN}.2-merge"
        cognate_runs.carry_until(home, lambda state: state.run == merge, RUN)
        _ask(home, Cancelled(reason="a try"), run=merge)
        with suppress(ForgeError):  # its phase was cancelled
            cognate_runs.finish(home, RUN)
        _ask(home, Retried())
        cognate_runs.finish(home, RUN)
        pipeline_runs.submit(home, pipeline_runs.PHASES, AGAIN, reuse=True)
        cognate_runs.finish(home, AGAIN)
        with closing(home.open_store()) as store:
            for name, run in runs.items():
                write(name, list(repository.history(store, run)))


if __name__ == "__main__":
    main()
