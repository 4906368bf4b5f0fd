"""A run's candidates leave it, as configs and recipe files, and come back bit for bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_forge.evomerge.mergekit import parser
from agent_forge.evomerge.mergekit.export_config import as_config
from agent_forge.evomerge.recipes.recipe import Grouped, Mutate, Source
from agent_forge.evomerge.reports.report import places, recipe_document
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.tasks import merge
from agent_forge.evomerge.tasks.results.verify import rebuild_folder
from agent_forge.runs.errors import ConfigError, SourceChangedError
from agent_forge.runs.home import Home
from agent_forge.weights.folders.checkpoint import digest, open_checkpoint
from testing.models.toys import Toys
from testing.worlds import runs
from testing.worlds.finished_run import FinishedRun


@pytest.fixture(scope="module")
def state(finished_run: FinishedRun) -> RunState:
    """A finished run of one generation: pipelines, mutants, merges of losers, baselines."""
    return finished_run(generations=1)[1]


def candidates(state: RunState) -> list[str]:
    return [id_ for id_ in state.built if not isinstance(state.recipes[id_], Source)]


def test_what_a_config_can_say_merges_to_the_recorded_bits(state: RunState, tmp_path: Path) -> None:
    """Pipelines, merges of losers with their parents, and baselines; never a mutant with noise."""
    said = 0
    for id_ in candidates(state):
        text = as_config(id_, state.recipes, places(state), "float32")
        noisy = isinstance(state.recipes[id_], Mutate)
        assert (text is None) == noisy, state.recipes[id_]
        if text is None:
            continue
        documents, made = parser.parse(text), {}
        for number, document in enumerate(documents):
            out = tmp_path / f"{id_[:12]}-{number}"
            found = merge.run(merge.prepare(document, out, made))
            made[str(document.name)] = out
        assert found == state.built[id_][0]
        said += 1
    assert said >= 10


@pytest.mark.slow
def test_grouped_recipes_whose_groups_are_alike_can_be_said(toys: Toys, tmp_path: Path) -> None:
    """Generation 0 of a tournament: every species once, with the same weights everywhere."""
    home = Home(tmp_path / "home")
    species = ["task_arithmetic", "ties", "dare_linear", "dare_ties", "slerp"]
    runs.submit(home, toys, strategy="tournament", population_size=5, generations=0, species=species)
    state = runs.finish(home)
    said = set()
    for candidate in state.candidates.values():
        recipe = state.recipes[candidate.recipe_id]
        assert isinstance(recipe, Grouped)
        text = as_config(recipe.id, state.recipes, places(state), "float32")
        file = tmp_path / f"{recipe.name}.json"
        file.write_text(json.dumps(recipe_document(state, recipe.id, "head")))
        assert rebuild_folder(file, tmp_path / f"{recipe.name}-rebuilt", {}, 10**9) == candidate.digest
        if text is None:
            continue
        (document,) = parser.parse(text)
        found = merge.run(merge.prepare(document, tmp_path / recipe.name, {}))
        assert found == candidate.digest, recipe.name
        said.add(recipe.name)
    assert said == set(species) - {"slerp"}
    other = recipe.model_copy(update={"params": ({"ts": [0.1, 0.2]}, *recipe.params[1:])})
    assert as_config(other.id, {**state.recipes, other.id: other}, places(state), "float32") is None


def test_every_recipe_file_merges_to_the_recorded_bits(state: RunState, tmp_path: Path) -> None:
    for id_ in candidates(state):
        file = tmp_path / f"{id_[:12]}.json"
        file.write_text(json.dumps(recipe_document(state, id_, "head")))
        assert rebuild_folder(file, tmp_path / "out", {}, 10**9) == state.built[id_][0]
        assert digest(open_checkpoint(tmp_path / "out").tensors()) == state.built[id_][0]


def test_sources_that_moved_are_named_and_may_be_told(
    state: RunState, toys: Toys, tmp_path: Path
) -> None:
    document = recipe_document(state, str(state.champion), "head")
    document["places"] = {id_: str(tmp_path / "gone") for id_ in document["places"]}
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=r"gone.*--model .*=PATH"):
        rebuild_folder(file, tmp_path / "out", {}, 10**9)
    told = {"base": str(toys.base), **{s.name: str(s) for s in toys.sources}}
    assert rebuild_folder(file, tmp_path / "out", told, 10**9) == document["digest"]
    wrong = {**told, "source0": str(toys.sources[1])}
    with pytest.raises(SourceChangedError, match=r"source0 at .* is not the one of the recipe"):
        rebuild_folder(file, tmp_path / "out", wrong, 10**9)
    with pytest.raises(ConfigError, match="--model nobody: the recipe's models are"):
        rebuild_folder(file, tmp_path / "out", {"nobody": "x"}, 10**9)


def test_a_recipe_that_was_changed_is_refused(state: RunState, tmp_path: Path) -> None:
    document = recipe_document(state, str(state.champion), "head")
    source = next(i for i, r in document["recipes"].items() if r["kind"] == "source")
    document["recipes"][source]["digest"] = "0" * 64
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match="was changed: it has another id"):
        rebuild_folder(file, tmp_path / "out", {}, 10**9)
    assert not (tmp_path / "out").exists()
