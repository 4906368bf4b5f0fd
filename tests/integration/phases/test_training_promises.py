"""Promises of runs that train: one machine's numbers, an honest log, one result for each segment."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_forge.phases.cognate import work
from agent_forge.phases.cognate.script import Cognate
from agent_forge.runs import kinds
from agent_forge.runs.errors import UnavailableError
from agent_forge.runs.history import audit
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.state import fold_into
from agent_forge.studies import training_context, training_plan
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.tasks import runner
from testing.miniatures import bitnet_runs, cognate_runs
from testing.models.toys import Toys
from tests.integration.kinds.test_forgeries import edit, relinked

SETTINGS: dict[str, Any] = {
    "specialist_tokens": 4_000,
    "batch": 2,
    "own_share": 0.8,
    "mix": {"sums": 1.0, "rows": 1.0},
}


@pytest.fixture(scope="module")
def trained(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A run `r` of two specialists that are trained in several segments and not yet measured."""
    home = Home(tmp_path_factory.mktemp("promises"))
    data = bitnet_runs.texts(home.folder / "texts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORGE_SEGMENT_STEPS", "8")
        cognate_runs.submit(home, "r", toys.base, data, **SETTINGS)
        cognate_runs.carry_until(home, lambda now: len(now.made) == 3)
    return home


@pytest.mark.slow
def test_a_process_with_another_canary_is_refused_at_resume(
    trained: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The profile is equal, and three steps give other bits: both digests are said."""
    pinned = cognate_runs.state(trained).started.canary
    before = cognate_runs.rows(trained)
    monkeypatch.setattr(work, "canary", lambda *given, **more: ("f" * 64, 1.0))
    said = f"three steps of training give ffffffffffff here, not {pinned[:12]}"
    with pytest.raises(UnavailableError, match=said):
        cognate_runs.finish(trained)
    assert cognate_runs.rows(trained) == before


def forged(rows: list[Any], type_: str, field: str, **changes: Any) -> list[audit.Finding]:
    """Return what the audit finds in a log with a changed event, whose hashes fit again."""
    event = json.loads(next(row.data for row in rows if row.type == type_))
    return audit.audit(relinked(edit(type_, 0, **{field: {**event[field], **changes}})(list(rows))))


@pytest.mark.parametrize(
    "setting",
    [
        *({"mix": {"sums": 9.0, "rows": 1.0}}, {"own_share": 0.5}, {"divergence": 3.0}),
        {"precision": "bfloat16"},
    ],
)
def test_settings_that_are_forged_are_found(trained: Home, setting: dict[str, Any]) -> None:
    """The recipes that were trained are not those of the settings; a budget changes no recipe."""
    rows = cognate_runs.rows(trained)
    assert forged(rows, "submitted", "config", max_hours=9.0) == []
    found = forged(rows, "submitted", "config", **setting)
    assert "error" in {one.level for one in found}


@pytest.mark.parametrize("part", [{"data": {"sums": 0.5, "rows": 0.5}}, {"divergence": 3.0}])
def test_a_recipe_that_is_forged_is_found(trained: Home, part: dict[str, Any]) -> None:
    """In the event of a training's end; the settings are the honest ones."""
    rows = cognate_runs.rows(trained)
    assert forged(rows, "trained", "recipe") == []
    assert "error" in {one.level for one in forged(rows, "trained", "recipe", **part)}


def test_a_segment_that_two_devices_do_is_recorded_once(trained: Home, tmp_path: Path) -> None:
    """The second has a disk of its own, and comes when the first has recorded its segment."""
    rows = cognate_runs.rows(trained)
    state: Any = cognate_runs.state(trained)
    recipe = Cognate().trainings(state)["sums"]
    assert len(state.advanced[recipe.stem]) > 1
    first = next(i for i, row in enumerate(rows) if row.type == "advanced")
    early: Any = fold_into(kinds.of("cognate").state(), rows[:first])
    task = next(t for t in kinds.of("cognate").due(early).tasks if t.key in rows[first].key)
    other = cognate_runs.share_text(trained, Home(tmp_path))
    with closing(trained.open_store()) as store:
        late = runner.WorkerProcess(store, Artifacts(other.artifacts, home=other))
        ended = late._hands.do(early, task)
    assert ended in ("late", "known"), cognate_runs.rows(trained)[-1].data
    assert list(other.artifacts.glob("snapshots/*/*/model.safetensors"))
    assert cognate_runs.rows(trained) == rows
    assert cognate_runs.state(trained).divergences == []


def test_weights_that_are_trained_again_or_imported_cost_what_the_log_says(
    trained: Home, tmp_path: Path
) -> None:
    """By that the cache decides what goes first."""
    state: Any = cognate_runs.state(trained)
    recipe = Cognate().trainings(state)["sums"]
    seconds = sum(event.seconds for event in state.advanced[recipe.stem].values())
    digest = state.made[recipe.id].digest
    assert state.making_seconds(digest) == seconds > 0
    assert state.making_seconds("0" * 64) == 0.0
    other = cognate_runs.share_text(trained, Home(tmp_path))
    cache = Artifacts(other.artifacts, home=other)
    work.Context.opened(state, cache).weights(recipe)
    (noted,) = other.artifacts.glob(f"??/{digest}/seconds.txt")
    assert float(noted.read_text()) == seconds


@pytest.mark.parametrize(
    ("native", "least", "dtype"),
    [(True, 0, "bfloat16"), (False, 0, "float32"), (True, 1 << 40, "float32")],
)
def test_automatic_precision_is_determined_at_the_start(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native: bool, least: int, dtype: str
) -> None:
    """By the device and the model's size; then it is the run's, wherever it goes on."""
    home, data = Home(tmp_path), bitnet_runs.texts(tmp_path / "texts")
    monkeypatch.setattr(training_context, "has_bfloat16", lambda device: native)
    monkeypatch.setattr(training_plan, "BFLOAT16_FROM", least)
    cognate_runs.submit(home, "r", toys.base, data, **SETTINGS | {"specialist_tokens": 256})
    cognate_runs.carry_until(home, lambda now: now.started is not None)
    state: Any = cognate_runs.state(home)
    assert state.started.profile.dtype == dtype
    assert {recipe.precision for recipe in Cognate().trainings(state).values()} == {dtype}
    monkeypatch.setattr(training_plan, "BFLOAT16_FROM", 1 - least)
    monkeypatch.setattr(training_context, "has_bfloat16", lambda device: not native)
    if dtype == "bfloat16":
        with pytest.raises(UnavailableError, match="dtype is float32, not bfloat16"):
            cognate_runs.finish(home)
    else:
        cognate_runs.carry_until(home, lambda now: len(now.made) == 1)
