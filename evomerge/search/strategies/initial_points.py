"""First points of a continuous search: the merges that a user would try first.

Pure.
"""

from __future__ import annotations

from itertools import cycle, islice, product

from agent_forge.evomerge.recipes.recipe import Flow, Grouped
from agent_forge.evomerge.search.genes.genome import space_of
from agent_forge.evomerge.search.strategies.cma_es import mask_seed
from agent_forge.evomerge.search.strategy import Past
from agent_forge.evomerge.search_settings import GenomeSettings
from agent_forge.search.pareto import Draws

#: λ of task arithmetic over all sources, the most promising first.
SCALES = (0.5, 0.7, 0.3, 1.0)
#: Standard deviation of a perturbed seed's genes around the seed that it repeats.
SPREAD = 0.1


def seeds(past: Past, count: int) -> list[Grouped | Flow]:
    """Return up to `count` first recipes: every species at every scale, scale by scale.

    Perturbed copies follow when these are used up; duplicates are left out. After generations of
    another strategy, the list starts with each species' nearest point to the champion, or to the
    last generation's best candidate if there is no champion.
    """
    config, n = past.config, len(past.family.sources)
    every = config.search_as(GenomeSettings).species
    recipes: list[Grouped | Flow] = []
    for species in every if past.generations else ():
        space = space_of(config, past.family, species)
        best = past.recipes[past.champion or past.generations[-1].ranking[0]]
        recipes.append(space.recipe(space.point(best, past.recipes), mask_seed(config)))
    recipes = recipes[:count]
    pairs = list(product(SCALES, every))
    for slot, (scale, species) in enumerate(islice(cycle(pairs), count * len(pairs))):
        space = space_of(config, past.family, species)
        point = space.uniform([scale] * n)
        if slot >= len(pairs):
            draws = Draws(config.seed, "seed", past.coming, slot, count=len(point))
            point = [x + SPREAD * draws.normal() for x in point]
        recipe = space.recipe(point, mask_seed(config))
        if len(recipes) == count:
            break
        if recipe.id not in {r.id for r in recipes}:  # slerp has no scale
            recipes.append(recipe)
    return recipes
