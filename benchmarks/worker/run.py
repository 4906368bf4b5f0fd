"""Overhead outside of tasks and peak memory, of a whole run of three 25M models.

    python -m benchmarks.worker.run [--generations 2]

Overhead is the run's wall time less the seconds that its tasks measured and less the seconds of
reading models and data. Memory is the process's peak above its size with everything imported.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

from agent_forge.evomerge.config import parse
from agent_forge.evomerge.reports import report
from agent_forge.evomerge.submission import planned
from agent_forge.runs.home import Home
from agent_forge.runs.streams import stream
from agent_forge.weights.folders.sources import resolve
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands import submit
from agent_forge.worker.tasks import runner
from benchmarks.common import folders, machine
from testing.models import toy_models


def main() -> None:
    """Print overhead and memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generations", type=int, default=2)
    generations = parser.parse_args().generations
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        import multiprocessing

        maker = multiprocessing.get_context("fork").Process(target=folders, args=(where,))
        maker.start()  # in another process, whose memory does not count
        maker.join()
        toy_models.data(where / "data")
        sources = tuple(resolve(str(where / f"source{i}")) for i in (1, 2, 3))
        config = parse({"generations": generations, "context": 256})
        home = Home(where / "home")
        store = home.open_store()
        before = _resident()
        data = (str(where / "data"),)
        run = submit.submit(store, planned(config, sources, resolve(str(where / "base")), data))
        began = time.perf_counter()
        state = runner.finish(runner.WorkerProcess(store, Artifacts(home.artifacts)), run)
        wall = time.perf_counter() - began
        rows = store.read(stream("evomerge", run))
        store.close()
        spent = sum(report.spent(state, rows).values())
        start = _opening_seconds(rows)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        share = (wall - spent - start) / wall
        print(machine())
        print(
            f"wall {wall:.1f} s, tasks {spent:.1f} s, reading models and data {start:.1f} s: "
            f"overhead {share:.1%} ({'ok' if share < 0.05 else 'OVER 5 %'})"
        )
        print(
            f"peak memory above the imports: {peak / 2**30:.2f} GiB "
            f"({'ok' if peak < 2 * 2**30 else 'OVER 2 GiB'})"
        )


def _opening_seconds(rows: list) -> float:
    """Return the seconds from `submitted` to `started`."""
    from datetime import datetime

    times = [datetime.fromisoformat(row.recorded_at) for row in rows[:2]]
    return (times[1] - times[0]).total_seconds()


def _resident() -> int:
    """Import everything and return the bytes of this process that are in memory now."""
    import torch
    import transformers

    assert torch
    assert transformers.Qwen2ForCausalLM
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    main()
