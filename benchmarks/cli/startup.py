"""Time of `forge --help` beyond bare Python, and of taking apart a process that has torch in it.

python -m benchmarks.cli.startup
"""

from __future__ import annotations

import subprocess
import sys

from benchmarks.common import best, options


def _run(*code: str) -> None:
    subprocess.run([sys.executable, "-c", *code], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    """Print both times and the difference."""
    bare = best(lambda: _run("pass"), 10)
    shown = best(lambda: _run("from agent_forge.cli.main import main; main()", "--help"), 10)
    extra = shown - bare
    print(
        f"bare Python {bare * 1000:.0f} ms, forge --help {shown * 1000:.0f} ms: "
        f"{extra * 1000:.0f} ms more ({'ok' if extra < 0.15 else 'OVER 150 ms'})"
    )
    ended = best(lambda: _run("import transformers, torch"), 5)
    left = best(lambda: _run("import transformers, torch, os; os._exit(0)"), 5)
    print(
        f"a process that imports torch and transformers: {ended:.2f} s, without taking the "
        f"interpreter apart {left:.2f} s: {(ended - left) * 1000:.0f} ms less"
    )


if __name__ == "__main__":
    options(__doc__).parse_args()
    main()
