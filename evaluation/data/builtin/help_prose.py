"""English prose: the Python language reference (PSF licence), as it is shipped with the program.

The base of `phases/cognate` learns from this text. Models are measured on it if a specialist in
prose is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent_forge.evaluation.data.builtin import shipped_text
from agent_forge.evaluation.data.slices import Document


def documents(limit: int) -> Iterator[Document]:
    """Yield help topics in the order of their names until `limit` characters are reached."""
    return shipped_text.documents("prose", limit)
