"""Errors of cognate runs."""

from __future__ import annotations

from runs.errors import ConfigError


class PresetError(ConfigError):
    """A preset does not agree with the tokenizer or model that it gives."""
