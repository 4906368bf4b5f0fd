"""Packages that reading data needs, by the data's names alone."""

from __future__ import annotations

from collections.abc import Iterable

from agent_forge.evaluation.lm_eval.spec import is_task
from agent_forge.runs.system import packages


def check_packages(places: Iterable[str]) -> None:
    """Raise UnavailableError if a package is missing that reading one of these files or tasks needs.

    A folder's files are not looked at. `places`: PATH, DOMAIN=PATH or lm-eval:TASK.
    """
    for place in places:
        if is_task(place):
            packages.require(place, "lm_eval")
        elif place.endswith(".parquet"):
            packages.require(place, "pyarrow")
