"""Python source: CPython's standard library (PSF licence), as it is shipped with the program."""

from __future__ import annotations

from collections.abc import Iterator

from agent_forge.evaluation.data.builtin import shipped_text
from agent_forge.evaluation.data.slices import Document


def documents(limit: int) -> Iterator[Document]:
    """Yield source files in the order of their paths until `limit` characters are reached."""
    return shipped_text.documents("code", limit)
