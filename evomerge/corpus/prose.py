"""English prose: the Python language reference, as the interpreter's own help carries it (PSF).

The base of `cognate/` learns from it; it is measured on where a specialist in prose is asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from evomerge.corpus.documents import Document


def documents(limit: int) -> Iterator[Document]:
    """Help topics in the order of their names until `limit` characters are reached."""
    topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    used = 0
    for name in sorted(topics):
        yield Document(name, "prose", topics[name])
        used += len(topics[name])
        if used >= limit:
            return
