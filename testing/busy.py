"""Keep every core busy while a command runs: what fails then depends on the speed of the machine.

python -m testing.busy make test             one more process for each core
python -m testing.busy --each 8 make test    eight more
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence

from agent_forge.runs.system.linked_processes import tied

#: Computes without end.
SPIN = (sys.executable, "-S", "-c", "while True: pass")


def main(words: Sequence[str] | None = None) -> int:
    """Run the command beside busy processes; return its exit code. The processes end with this one."""
    parser = argparse.ArgumentParser(prog="python -m testing.busy", description=__doc__)
    parser.add_argument("--each", type=int, default=1, help="busy processes for each core")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what is run meanwhile")
    options = parser.parse_args(words)
    cores = len(os.sched_getaffinity(0))
    others = [subprocess.Popen(tied(SPIN)) for _ in range(cores * options.each)]
    try:
        return subprocess.run(options.command).returncode
    finally:
        for process in others:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
