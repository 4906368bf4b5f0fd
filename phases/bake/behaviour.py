"""Behaviour of a bake's models: how many greedy replies pass the check of a prompt. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from evaluation.measures import bootstrap
from phases.bake.config import BakeConfig
from runs.event_types import Figure
from studies.observing import Observed
from studies.paired_bits import figure

MEASURE = "behaviour@1"
#: The arms of the given model; the others have no prompt.
PROMPTED, UNPROMPTED = "prompted", "unprompted"
#: The places of contexts: at the beginning, and after ordinary text.
NEAR, FAR = "near", "far"

#: Figure → what it is, in words.
FIGURES = {
    "success": "success: share of the result's replies that pass the check with the largest shortfall",
    "shortfall": "shortfall: largest share of replies that the prompted model has over the result",
    "far_success": "success after ordinary text: share of passing replies to contexts there, likewise",
    "far_shortfall": "shortfall after ordinary text: the largest on contexts there",
}


def group(arm: str, place: str, check: int) -> str:
    """Return the group of the items of an arm, a place and the number of a check."""
    return f"{arm}/{place}/{check}"


def shares(config: BakeConfig, seen: Mapping[str, Observed], best: str, place: str) -> Rates:
    """Return number of a check → arm → share of replies that pass, with its interval.

    The arms are `unprompted`, `prompted` and `baked`; `shortfall` is `prompted` less `baked`, on the
    same contexts.
    """
    told: dict[int, dict[str, Figure]] = {}
    parent, own = seen.get("parent"), seen.get(best)
    if parent is None or own is None:
        return told
    for check in range(1, len(config.prompts) + 1):
        items = {
            "unprompted": parent.items.get(group(UNPROMPTED, place, check)),
            "prompted": parent.items.get(group(PROMPTED, place, check)),
            "baked": own.items.get(group(UNPROMPTED, place, check)),
        }
        known = {arm: some for arm, some in items.items() if some}
        if len(known) == len(items):
            told[check] = _figures(config, known, place)
    return told


#: Number of a check → arm → figure.
Rates = Mapping[int, Mapping[str, Figure]]


def _figures(
    config: BakeConfig, items: Mapping[str, tuple[float, ...]], place: str
) -> dict[str, Figure]:
    """Return arm → share of passing replies, and the shortfall; all resampled together."""
    size = len(items["baked"])
    counts = bootstrap.draws(size, "bake", config.seed, MEASURE, place)
    drawn = {arm: counts @ np.asarray(some) / size for arm, some in items.items()}
    points = {arm: math.fsum(some) / size for arm, some in items.items()}
    told = {arm: figure(points[arm], drawn[arm], size) for arm in items}
    less = drawn["prompted"] - drawn["baked"]
    return {**told, "shortfall": figure(points["prompted"] - points["baked"], less, size)}


def figures(config: BakeConfig, seen: Mapping[str, Observed], best: str) -> dict[str, Figure]:
    """Return the figures of the check with the largest shortfall, for each place."""
    told: dict[str, Figure] = {}
    for place, start in ((NEAR, ""), (FAR, "far_")):
        found = shares(config, seen, best, place)
        if found:
            worst = max(found.values(), key=lambda arms: arms["shortfall"].value)
            told[f"{start}success"] = worst["baked"]
            told[f"{start}shortfall"] = worst["shortfall"]
    return told
