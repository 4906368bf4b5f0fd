"""Toy runs (`testing/toy/toy_kind.py`) in a real store: submitted, carried on, read. No torch."""

from __future__ import annotations

from typing import Any

from agent_forge.runs.home import Home
from agent_forge.runs.record.events import Quarantine
from testing.kind_runs import KindRuns
from testing.toy.toy_state import ToyState

_RUNS = KindRuns[ToyState]("toy", "r")
finish, carry_until, state, rows = _RUNS.finish, _RUNS.carry_until, _RUNS.state, _RUNS.rows


def submit(home: Home, run: str = "r", quarantine: Quarantine = "fail", **settings: Any) -> str:
    """Submit a toy run; return its name."""
    return _RUNS.submit(home, run, settings, check=False, quarantine=quarantine)
