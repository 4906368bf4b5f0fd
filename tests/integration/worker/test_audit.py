"""Audits that need weights: rebuilding, measuring again, foreign files; real forks and archives."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.tasks.results.verify import RECIPE_FILE
from agent_forge.runs import kinds
from agent_forge.runs.history.repository import difference
from agent_forge.runs.home import Home
from agent_forge.weights.storage.weight_cache import Artifacts
from testing.models.toys import Toys
from testing.verification import rebuilt, verified_again
from testing.worlds.finished_run import FinishedRun
from tests.integration.kinds.test_commands import call


@pytest.fixture(scope="module")
def finished(finished_run: FinishedRun) -> tuple[Home, RunState, Path]:
    """A finished run of toy models in a home, and its champion's folder."""
    home, state = finished_run(generations=1)
    folder = home.folder / "champion"
    call(home, "export", "r", "--out", str(folder))
    return home, state, folder


def copy(finished, tmp_path: Path) -> Home:
    """The same home elsewhere, to be damaged."""
    shutil.copytree(finished[0].folder, tmp_path / "home")
    return Home(tmp_path / "home")


@pytest.mark.slow
def test_every_candidate_rebuilds_bit_for_bit_without_the_cache(finished) -> None:
    """Down to the sources, with nothing but recipes; of these and of the base the digests are read."""
    home, state, _ = finished
    found, said = verified_again(home, tolerance=None)
    assert found == []
    assert len(said) == len(state.built) == 16 + 4 + 4
    told = call(home, "verify", "r", "--rebuild", "all")
    assert told.stdout.splitlines()[-1] == "verified."
    assert told.stderr.count("as recorded") == 24


@pytest.mark.slow
def test_everything_measures_the_same_again(finished) -> None:
    """What a verdict compares: champion, base, sources, baselines; and what chose the champion."""
    home, state, _ = finished
    told = call(home, "verify", "r", "--recompute", "--json")
    data = json.loads(told.stdout)
    assert data["ok"] is True
    assert "rebuilt" not in data
    assert "fitness" in data["checks"]
    measured = len(state.evaluations) + len(state.layers)
    assert told.stderr.count("largest relative difference 0\n") == measured


@pytest.mark.slow
def test_what_is_left_out_is_counted(finished) -> None:
    """The champion alone says nothing of the models that it is compared with."""
    home, state, _ = finished
    told = call(home, "verify", "r", "--rebuild", "champion", "--recompute", code=3)
    own = len([id_ for id_, _, _ in state.evaluations if id_ == state.champion])
    every = len(state.evaluations) + len(state.layers)
    assert f"{own} of {every} measurements were made again" in told.stdout


@pytest.mark.slow
def test_weights_that_the_log_does_not_say_are_found(finished) -> None:
    """What a flipped bit in a library, or a forged digest, would look like."""
    home, state, _ = finished
    champion = state.champion
    assert champion
    state.built[champion], kept = ("0" * 64, state.built[champion][1]), state.built[champion]
    try:
        (found,) = rebuilt(home, state, [champion])
    finally:
        state.built[champion] = kept
    assert "rebuilt from its recipe has digest" in found.message
    assert found.message.endswith("the log says 000000000000.")  # nothing is explained away


@pytest.mark.slow
def test_exchanged_digests_are_named(finished) -> None:
    """The digest that comes out is that of another model: the finding says which."""
    home, state, _ = finished
    champion, baseline = state.champion, next(iter(state.baselines))
    other = state.baselines[baseline]
    kept = dict(state.built)
    assert champion
    state.built[champion], state.built[other] = kept[other], kept[champion]
    try:
        (found,) = rebuilt(home, state, [champion])
    finally:
        state.built.update(kept)
    assert f"is the digest that the log gives {other[:12]} (baseline {baseline})." in found.message


@pytest.mark.slow
def test_a_sketch_that_does_not_come_out_again_is_found(finished) -> None:
    """Diversity, and what follows from it, is computed from sketches."""
    home, state, _ = finished
    champion = state.champion
    assert champion
    digest_, sketched = state.built[champion]
    other = next(one for _, one in state.built.values() if one != sketched)
    state.built[champion] = (digest_, other)
    try:
        (found,) = rebuilt(home, state, [champion])
    finally:
        state.built[champion] = (digest_, sketched)
    assert "its sketch is not the one that the log says" in found.message


def test_what_an_older_schema_did_not_put_down_is_not_missed(finished) -> None:
    """Bytes and bits per byte, that is, and nothing else."""
    _, state, _ = finished
    event = state.evaluations[state.champion or "", "test", None]
    assert event.components
    assert event.components.bits_per_byte
    bare = {d: o.model_copy(update={"bytes": ()}) for d, o in event.outcomes.items()}
    without = event.components.model_copy(update={"bits_per_byte": None})
    older = event.model_copy(update={"outcomes": bare, "components": without})
    other = older.model_copy(update={"components": None})
    comparable = kinds.of("evomerge").verification.comparable
    assert difference(comparable(older, older), comparable(event, older)) == 0.0
    assert difference(comparable(other, other), comparable(event, other)) is None


@pytest.mark.slow
def test_a_changed_source_is_said(finished, toys: Toys, tmp_path: Path) -> None:
    """Nothing can be rebuilt then, and nothing is called wrong."""
    state = finished[1]
    assert state.submitted
    shutil.copytree(toys.sources[1], tmp_path / "other")
    other = state.submitted.sources[0].model_copy(update={"path": str(tmp_path / "other")})
    kept = state.submitted
    state.submitted = kept.model_copy(update={"sources": (other, *kept.sources[1:])})
    try:
        (found,) = rebuilt(Home(tmp_path / "without copies"), state, [state.champion or ""])
    finally:
        state.submitted = kept
    assert found.level == "unchecked"
    assert "has changed since the run started" in found.message


def test_a_foreign_artifact_in_the_cache_is_found(finished, tmp_path: Path) -> None:
    home = copy(finished, tmp_path)
    places = sorted(path.parent for path in home.artifacts.rglob("*.safetensors"))
    assert len(places) > 1
    assert "artifacts  ok" in call(home, "verify", "r").stdout
    for file in places[0].glob("*"):
        file.unlink()
    for file in places[1].glob("*"):
        shutil.copy(file, places[0])
    told = call(home, "verify", "r", code=1).stdout
    assert f"foreign or damaged weights as {places[0].name[:12]}" in told
    assert places[0].exists()


def test_a_champions_folder_is_verified_against_its_run(finished) -> None:
    home, _, folder = finished
    told = call(home, "verify", str(folder)).stdout
    assert told.splitlines()[-1] == "verified."
    assert "weights    ok" in told


def test_a_champions_folder_without_its_run_is_checked_by_itself(finished, tmp_path) -> None:
    told = call(Home(tmp_path), "verify", str(finished[2]), code=3).stdout
    assert "is not in this log" in told
    assert "nothing is wrong with what could be checked" in told


def test_a_champions_folder_with_other_weights_is_found(finished, tmp_path: Path, toys) -> None:
    folder = tmp_path / "champion"
    shutil.copytree(finished[2], folder)
    file = next(folder.glob("*.safetensors"))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert "the folder's weights have digest" in call(finished[0], "verify", str(folder), code=1).stdout


def test_a_champions_folder_with_another_recipe_is_found(finished, tmp_path: Path) -> None:
    folder = tmp_path / "champion"
    shutil.copytree(finished[2], folder)
    document = json.loads((folder / RECIPE_FILE).read_text())
    recipe = next(r for r in document["recipes"].values() if r["kind"] == "pipeline")
    recipe["seed"] = 12345
    (folder / RECIPE_FILE).write_text(json.dumps(document))
    told = call(finished[0], "verify", str(folder), code=1).stdout
    assert "was changed: it has another id" in told


def test_a_folder_that_is_no_champions_is_refused(finished, toys: Toys) -> None:
    result = call(finished[0], "verify", str(toys.base), code=2)
    assert "is not a champion's folder" in str(result.exception)


@pytest.mark.slow
def test_a_real_fork_without_changes_reproduces_champion_and_lineage(finished, tmp_path) -> None:
    home, state, _ = finished
    out = tmp_path / "forked"
    told = call(home, "fork", "r", "--generation", "0", "--output-dir", str(out), "--json")
    data = json.loads(told.stdout)
    assert data["champion"] == state.champion
    assert data["lineage_digest"] == state.lineage_digest()
    assert call(home, "verify", str(out)).stdout.splitlines()[-1] == "verified."
    assert call(home, "verify", data["run"]).stdout.splitlines()[-1] == "verified."


@pytest.mark.slow
def test_a_real_fork_with_changes_searches_on(finished, tmp_path: Path) -> None:
    home, state, _ = finished
    words = ("--generation", "1", "--set", "generations=2", "--output-dir", str(tmp_path / "out"))
    data = json.loads(call(home, "fork", "r", *words, "--json").stdout)
    assert data["metrics"]["generations_run"] == 2
    assert data["lineage_digest"] != state.lineage_digest()
    lineage = call(home, "lineage", data["run"]).stdout
    assert "source source0" in lineage
    told = call(home, "verify", data["run"], "--rebuild", "champion")
    assert told.stdout.splitlines()[-1] == "verified."


@pytest.mark.slow
def test_an_archive_takes_the_champions_weights_along(finished, tmp_path: Path) -> None:
    home, state, _ = finished
    file = tmp_path / "r.forge"
    call(home, "archive", "r", str(file), "--weights")
    there = Home(tmp_path / "there")
    assert "weights are in the cache" in call(there, "import", str(file)).stdout
    assert state.champion
    digest = state.built[state.champion][0]
    assert Artifacts(there.artifacts).check(digest) is True
    assert call(there, "verify", "r", "--rebuild", "champion").stdout.splitlines()[-1] == "verified."
