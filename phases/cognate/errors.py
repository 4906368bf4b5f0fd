"""Errors of `forge cognate`."""

from __future__ import annotations

from runs.errors import ForgeError


class CognateError(ForgeError):
    """`forge cognate` failed: for example, a specialist is not the best on its own domain."""


class PresetError(CognateError):
    """A preset does not agree with the tokenizer or model that it gives."""
