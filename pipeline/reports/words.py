"""Texts for the report: foreign text made harmless, figures, weights, tables. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent_forge.runs.event_types import MadeModel
from agent_forge.runs.system.plain_text import visible


def plain(text: str) -> str:
    """Return foreign text in one line, with Markdown's signs escaped."""
    return re.sub(r"([\\`*_\[\]<>|#&])", r"\\\1", visible(" ".join(text.split())))


def code(text: str) -> str:
    """Return foreign text in one line as Markdown code."""
    return f"`{visible(' '.join(text.split())).replace('`', chr(39))}`"


def weights(model: MadeModel) -> str:
    """Return "weights " and the beginning of the digest, as Markdown."""
    return f"weights {code(model.digest[:12])}"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def count(number: int, what: str) -> str:
    """Return a number with its noun: "1 phase", "2,000 documents"."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")
