"""Runs that search paths through layers, on models: any depth is built, measured, rebuilt, exported."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoConfig

from agent_forge.evomerge.mergekit import parser
from agent_forge.evomerge.mergekit.export_config import as_config
from agent_forge.evomerge.recipes.recipe import path
from agent_forge.evomerge.reports import report
from agent_forge.evomerge.reports.report import places, recipe_document
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.tasks import merge
from agent_forge.evomerge.tasks.results.champion import export
from agent_forge.evomerge.tasks.results.verify import rebuild_folder
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.history import audit
from agent_forge.runs.history.repository import history, load
from agent_forge.runs.home import Home
from agent_forge.weights.folders.checkpoint import digest, open_checkpoint
from agent_forge.weights.storage.weight_cache import Artifacts
from testing.models import toy_models
from testing.models.toys import Toys
from testing.worlds import runs
from testing.worlds.warm_process import Template

SETTINGS = {
    "strategy": "tournament",
    "path_repeats": 2,
    "population_size": 6,
    "elite_size": 1,
    "generations": 2,
    "genome_detail": "whole",
    "mutation": "both",
    "gate_perplexity": 0.0,
}


@pytest.fixture(scope="module")
def home(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> Home:
    home = Home(tmp_path_factory.mktemp("paths"))
    runs.submit(home, toys, **SETTINGS)
    assert runs.finish(home).completed
    return home


def rows(home: Home) -> list:
    store = home.open_store()
    try:
        return list(history(store, "r"))
    finally:
        store.close()


def depths(state: RunState) -> dict[str, int]:
    """Candidate → blocks."""
    ids = {c.recipe_id for c in state.candidates.values()}
    taken = {id_: path(state.recipes[id_], state.recipes) for id_ in ids}
    return {id_: len(p.steps) for id_, p in taken.items() if p is not None}


@pytest.mark.slow
def test_candidates_have_depths_of_their_own(home: Home) -> None:
    state = runs.state(home)
    found = depths(state)
    assert len(found) == len({c.recipe_id for c in state.candidates.values()})
    assert len(set(found.values())) > 1
    assert max(found.values()) <= 4
    assert audit.audit(rows(home)) == []
    assert state.started
    cheap = min(found, key=lambda id_: found[id_])
    assert state.cost(cheap).flops_per_token < state.started.cost.flops_per_token
    assert "+path" in report.markdown(report.report(state, rows(home)))


@pytest.mark.slow
def test_every_depth_is_rebuilt_and_loads(home: Home, toys: Toys, tmp_path: Path) -> None:
    state = runs.state(home)
    for id_, depth in depths(state).items():
        file, out = tmp_path / f"{id_[:12]}.json", tmp_path / id_[:12]
        file.write_text(json.dumps(recipe_document(state, id_, "head")))
        assert rebuild_folder(file, out, {}, 10**9) == state.built[id_][0]
        assert AutoConfig.from_pretrained(out).num_hidden_layers == depth


@pytest.mark.slow
def test_paths_that_begin_and_end_in_the_merge_are_said_as_configs(home: Home, tmp_path) -> None:
    state, said = runs.state(home), 0
    for id_ in depths(state):
        text = as_config(id_, state.recipes, places(state), "float32")
        if text is None:
            continue
        made = {}
        for number, document in enumerate(parser.parse(text)):
            out = tmp_path / f"{id_[:12]}-{number}"
            found = merge.run(merge.prepare(document, out, made))
            made[str(document.name)] = out
        assert found == state.built[id_][0]
        assert digest(open_checkpoint(out).tensors()) == found
        said += 1
    assert said


@pytest.mark.slow
def test_a_champion_of_another_depth_is_an_ordinary_folder(home: Home, toys, tmp_path) -> None:
    """Whichever won: the run is asked for one that has not three blocks."""
    store = home.open_store()
    state = load(store, "r")
    store.close()
    other = next(id_ for id_, depth in depths(state).items() if depth != 3)
    state.champions[-1] = state.champions[-1].model_copy(update={"recipe_id": other})
    out = export(state, Artifacts(home.artifacts), tmp_path / "champion", "head")
    config = json.loads((out / "config.json").read_text())
    assert config["num_hidden_layers"] == depths(state)[other] != 3
    assert len(config.get("layer_types") or [0] * config["num_hidden_layers"]) == depths(state)[other]


@pytest.mark.slow
@pytest.mark.parametrize(
    "points",
    [
        ("build-stored:3",),
        pytest.param(("task-done:12", "build-stored:3", "facts-decided:2"), marks=pytest.mark.soak),
    ],
)
def test_a_run_with_paths_goes_on_after_kills(
    home: Home, toys: Toys, tmp_path: Path, warm: Template, points: tuple[str, ...]
) -> None:
    killed = Home(tmp_path)
    runs.submit(killed, toys, **SETTINGS)
    for point in points:
        assert runs.was_killed(warm.start(killed, failpoints=f"kill:{point}")), "not reached"
    assert runs.finish(killed).lineage_digest() == runs.state(home).lineage_digest()


@pytest.mark.slow
def test_paths_too_short_for_the_models_are_refused(toys: Toys, tmp_path: Path) -> None:
    home = Home(tmp_path)
    runs.submit(home, toys, **{**SETTINGS, "path_blocks": 2})
    with pytest.raises(ConfigError, match="the models have 3 blocks, and no path could hold them"):
        runs.finish(home)


@pytest.mark.slow
def test_models_that_no_path_can_be_taken_through_are_refused(toys: Toys, tmp_path: Path) -> None:
    """At the start of a run, too, wherever it was submitted."""
    base, sources = toy_models.family(tmp_path / "models")
    for folder in (base, *sources):
        file = folder / "config.json"
        config = json.loads(file.read_text())
        types = ["full_attention", "sliding_attention", "full_attention"]
        file.write_text(json.dumps({**config, "layer_types": types}))
    home = Home(tmp_path / "home")
    runs.submit(home, replace(toys, base=base, sources=tuple(sources)), **SETTINGS)
    with pytest.raises(ConfigError, match="the blocks of these models are of several kinds"):
        runs.finish(home)
