"""What can go wrong in `forge cognate`."""

from __future__ import annotations

from runs.errors import ForgeError


class CognateError(ForgeError):
    """Training could not give honest specialists."""


class PresetError(CognateError):
    """A preset and what it makes do not agree."""
