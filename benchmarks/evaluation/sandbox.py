"""Time of the sandbox for programs: to open it, and for each program that runs in it.

python -m benchmarks.evaluation.sandbox [--programs 200]
"""

from __future__ import annotations

import argparse
import statistics
import time

from agent_forge.evaluation.sandbox.sandbox import Sandbox
from benchmarks.common import best

#: A short function of the kind that models are asked for, and the calls of its problem's test.
PROGRAM = "def mean(values):\n    return sum(values) / len(values)\n"
CALLS = ["mean([1, 2, 3])", "mean([4])", "mean([-1, 1])"]


def main() -> None:
    """Print both times."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--programs", type=int, default=200)
    programs = parser.parse_args().programs
    opening = best(lambda: Sandbox.open().close())
    times = []
    with Sandbox.open() as sandbox:
        for _ in range(programs):
            began = time.perf_counter()
            ran = sandbox.run(PROGRAM, CALLS)
            times.append(time.perf_counter() - began)
            assert ran.values == ("2.0", "4.0", "0.0"), ran
    print(
        f"opened, tried and closed in {opening:.2f} s; {programs} programs of {len(CALLS)} calls: "
        f"median {statistics.median(times) * 1000:.1f} ms, at most {max(times) * 1000:.1f} ms"
    )


if __name__ == "__main__":
    main()
