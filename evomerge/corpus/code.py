"""Python source: the standard library of the interpreter that runs us (PSF licence).

Another Python version has another library, so this text, unlike the generated domains, is the
same only where the interpreter is.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path

from evomerge.corpus.documents import Document

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

#: Longer files are cut at a line end, so that no single module dominates a slice.
LONGEST = 24_000


def documents(limit: int) -> Iterator[Document]:
    """Source files in the order of their paths until `limit` characters are reached."""
    root = Path(sysconfig.get_paths()["stdlib"])
    used = 0
    for path in sorted(root.rglob("*.py"), key=lambda p: p.relative_to(root).as_posix()):
        relative = path.relative_to(root)
        if any(part in SKIPPED or part.startswith("config-") for part in relative.parts):
            continue
        text = _readable(path)
        if len(text) < 400:
            continue
        yield Document(relative.as_posix(), "code", text)
        used += len(text)
        if used >= limit:
            return


def _readable(path: Path) -> str:
    """The file's text cut to `LONGEST` characters at a line end; empty where it cannot be read."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
    return text if len(text) <= LONGEST else text[: text.rfind("\n", 0, LONGEST) + 1]
