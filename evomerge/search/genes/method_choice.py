"""Choice among merge techniques, by how often their candidates were good.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from evaluation.search.draws import Draws
from evomerge.recipes.recipe import Flow, Merge, Recipe, Source, genome
from evomerge.search.history import Past
from evomerge.search_settings import MutationSettings


def technique(recipe: Recipe, past: Past) -> str | None:
    """Return the species or pipeline of a candidate; None for a source or a fixed merge."""
    if isinstance(recipe, Source | Merge):
        return None
    merge = genome(recipe, past.recipes).pipeline
    return merge.merged.name if isinstance(merge, Flow) else merge.name


def earned(past: Past) -> dict[str, tuple[int, int]]:
    """Return technique → (candidates in the better half of their generation, all candidates)."""
    tallies: dict[str, tuple[int, int]] = {}
    for done in past.own:
        half = len(done.ranking) / 2
        for id_ in dict.fromkeys(done.slots[slot] for slot in sorted(done.slots)):
            name, place = technique(past.recipes[id_], past), done.places.get(id_)
            if name is not None and place is not None:
                good, all_ = tallies.get(name, (0, 0))
                tallies[name] = (good + (place < half), all_ + 1)
    return tallies


def chosen(past: Past, among: Sequence[str], draws: Draws) -> str:
    """Choose one technique at random.

    With `technique_selection: uniform` all techniques are equally likely. With `earned` the
    probability is proportional to the share of a technique's candidates that were in the better
    half; the counts start with one good and one bad candidate.
    """
    if past.config.search_as(MutationSettings).technique_selection == "uniform":
        return among[draws.below(len(among))]
    tallies = earned(past)
    shares = []
    for name in among:
        good, all_ = tallies.get(name, (0, 0))
        shares.append((good + 1) / (all_ + 2))
    place, total = draws.uniform() * sum(shares), 0.0
    for name, share in zip(among, shares, strict=True):
        total += share
        if place < total:
            return name
    return among[-1]
