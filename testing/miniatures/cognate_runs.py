"""Cognate runs in miniature: the machinery is real, training takes seconds, the models are poor."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_forge.runs.home import Home
from agent_forge.studies.making.making import MakingState
from testing.kind_runs import KindRuns
from testing.miniatures import small_text

_RUNS = KindRuns[MakingState]("cognate", "r")
finish, carry_until, state, rows = _RUNS.finish, _RUNS.carry_until, _RUNS.state, _RUNS.rows


def submit(
    home: Home,
    run: str = "r",
    base: str | Path | None = None,
    data: Sequence[str] | None = None,
    **settings: Any,
) -> str:
    """Submit a cognate run; return its name. Without base and data it trains on `small_text`."""
    models = {"base": [base]} if base else {}
    if base is None and data is None:
        data = [str(small_text.file())]
        settings = {"domains": small_text.DOMAINS, **settings}
    settings = {"preset": "mini", **settings}
    return _RUNS.submit(home, run, settings, models, data or (), check=False)


def share_text(made: Home, home: Home) -> Home:
    """Give a home the text that another one has made; return it. Making it takes seconds."""
    shutil.copytree(made.artifacts / "supply", home.artifacts / "supply")
    return home
