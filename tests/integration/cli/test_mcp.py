"""`forge mcp` before it serves: the missing package, and options that do not go together."""

from __future__ import annotations

import click
import pytest

from agent_forge.cli.main import forge
from agent_forge.runs.errors import UnavailableError
from agent_forge.runs.system import packages


def asked(*words: str) -> None:
    """Call `forge mcp` with these words."""
    forge(["mcp", *words], standalone_mode=False)


def test_a_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who has no use for MCP need not install it."""
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match=r"pip install 'mcp>=2\.3,<3' 'mcp-types>=2\.3,<3'"):
        asked()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--port", "8084"), "give --http, too"),
        (("--host", "127.0.0.1"), "give --http, too"),
        (("--http", "--role", "viewer"), "a token says the role"),
    ],
)
def test_options_that_would_have_no_effect_are_refused(words: tuple[str, ...], why: str) -> None:
    """A restriction that is silently dropped is worse than none."""
    with pytest.raises(click.UsageError, match=why):
        asked(*words)
