"""Table: the value of a key."""

from __future__ import annotations

from collections.abc import Mapping

from evaluation.tools.base import ToolError


class Table:
    """`table: KEY` → the value."""

    usage = "KEY: the value of a key of the table"

    def __init__(self, rows: Mapping[str, str]) -> None:
        """Look up in `rows`, key → value. Blanks around a key do not count."""
        self._rows = {key.strip(): value for key, value in rows.items()}

    def run(self, arguments: str) -> str:
        """Return the value of a key. Raises ToolError for a key that is not there."""
        key = arguments.strip()
        if key not in self._rows:
            raise ToolError(f"there is no key {key[:40]!r}")
        return self._rows[key]
