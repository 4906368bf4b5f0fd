"""Builder of the text that is shipped with the program, from a Python 3.11 installation.

    python3.11 -m benchmarks.evaluation.shipped_text [--out FOLDER]

It writes `library.jsonl.gz` and `library.LICENSE.txt`: the standard library's source without tests,
tables and files that describe the machine, and the language reference of `pydoc_data`. The
package's files were made with CPython 3.11.7; another 3.11 gives slightly different text, and a
test fails. The program needs only Python.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

#: Folders that hold tests, third-party packages or tables rather than ordinary code.
SKIPPED = {
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idle_test",
    "__pycache__",
    "encodings",
    "pydoc_data",
    "lib2to3",
    "config",
}
#: Prefixes of names of folders and files that the build of an installation writes.
BUILT = ("config-", "_sysconfigdata")
#: Most characters of a file: longer ones are cut at a line end, so that none dominates a slice.
LONGEST = 24_000
#: Least characters of a file; shorter files are left out.
SHORTEST = 400
HERE = Path(__file__).parents[2] / "evaluation" / "data" / "builtin"


def source(root: Path) -> Iterator[tuple[str, str]]:
    """Yield (path, text) of the standard library's modules, in the order of their paths."""
    for path in sorted(root.rglob("*.py"), key=lambda p: p.relative_to(root).as_posix()):
        relative = path.relative_to(root)
        if any(part in SKIPPED or part.startswith(BUILT) for part in relative.parts):
            continue
        text = readable(path)
        if len(text) >= SHORTEST:
            yield relative.as_posix(), text


def readable(path: Path) -> str:
    """Return the text cut to `LONGEST` characters at a line end; empty if it is not UTF-8."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
    return text if len(text) <= LONGEST else text[: text.rfind("\n", 0, LONGEST) + 1]


def reference() -> Iterator[tuple[str, str]]:
    """Yield (topic, text) of the language reference, in the order of the topics."""
    yield from sorted(importlib.import_module("pydoc_data.topics").topics.items())


def packed(root: Path) -> bytes:
    """Return the compressed JSON lines; the same bytes for the same text."""
    rows = [
        {"domain": domain, "name": name, "text": text}
        for domain, found in (("code", source(root)), ("prose", reference()))
        for name, text in found
    ]
    lines = "".join(json.dumps(row, ensure_ascii=True) + "\n" for row in rows)
    return gzip.compress(lines.encode("ascii"), 9, mtime=0)


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE)
    out: Path = parser.parse_args().out
    if sys.version_info[:2] != (3, 11):
        parser.error("the text is that of Python 3.11: run this with one")
    root = Path(sysconfig.get_paths()["stdlib"])
    out.mkdir(parents=True, exist_ok=True)
    (out / "library.jsonl.gz").write_bytes(packed(root))
    (out / "library.LICENSE.txt").write_bytes((root / "LICENSE.txt").read_bytes())


if __name__ == "__main__":
    main()
