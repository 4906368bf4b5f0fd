"""Compressions of models that some codes turn into ones that give NaN: the run ends all the same."""

from __future__ import annotations

import json
from copy import copy
from pathlib import Path

import pytest
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from agent_forge.cli.main import forge
from agent_forge.phases.compression import figures, panels
from agent_forge.phases.compression.recipes import CompressionState
from agent_forge.runs import kinds
from agent_forge.runs.errors import RunFailedError
from agent_forge.runs.history import audit
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.decide import due
from agent_forge.runs.panels.panels import Front, Units
from agent_forge.studies.events import Observe, Observed, Unmeasurable
from testing.miniatures import compression_runs
from testing.miniatures.compression_runs import finish, replayed, state, submit
from testing.models.toys import Toys
from tests.integration.kinds.test_forgeries import edit, relinked


@pytest.fixture(scope="module")
def home(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with a compression `c` of a model of which two of three codecs make NaN."""
    folder = tmp_path_factory.mktemp("overflowing")
    model = compression_runs.overflowing(toys.sources[0], folder / "model")
    made = Home(folder / "home")
    submit(made, model, compression_runs.data(folder), retention=0.9)
    finish(made)
    return made


def failed(done: CompressionState) -> dict[str, str]:
    """Return point → why it could not be measured."""
    return {p.name: p.failure for p in figures.attempted(replayed(done)) if p.failure is not None}


@pytest.mark.slow
def test_a_point_that_gives_nan_is_recorded_with_its_reason_and_never_chosen(home: Home) -> None:
    """The error reached the user before, and the run had no end."""
    done = state(home)
    assert done.completed
    assert set(failed(done)) == {"rtn-4", "uniform-1"}
    assert "no finite number for text 'animals1selection'" in failed(done)["rtn-4"]
    # The smallest file of all would have been chosen for its bytes.
    smallest = figures.attempted(replayed(done))[0]
    assert smallest.name == "uniform-1"
    assert done.completed.chosen.point == "gptq-2"
    assert audit.audit(compression_runs.rows(home)) == []


@pytest.mark.slow
def test_a_matrix_whose_errors_give_nan_stays_plain_in_mixtures(home: Home) -> None:
    """The cost of an error there is not known; the embedding is such a matrix here."""
    done = state(home)
    matrices = [matrix.name for matrix in done.started.matrices]
    (unknown,) = set(matrices) - set(figures.rises(replayed(done), done.started))
    assert unknown == "model.embed_tokens.weight"
    mixed = [p for p in figures.points(replayed(done)) if p.series == "mixture"]
    assert mixed
    assert {p.assignment[matrices.index(unknown)] for p in mixed} == {"plain-16"}


@pytest.mark.slow
def test_table_panel_and_terminal_show_what_failed(home: Home) -> None:
    done = state(home)
    rows = {row["point"]: row for row in panels.rows(replayed(done))}
    assert rows["rtn-4"]["failure"] == failed(done)["rtn-4"]
    assert rows["rtn-4"]["bits_per_byte"] is None
    assert not rows["rtn-4"]["front"]
    (line,) = [one for one in panels.table(replayed(done)) if one.startswith("| rtn-4 ")]
    assert "failed: it gives no finite number" in line
    shown = {one.name: one for one in kinds.of("compression").view.panels(done)}
    table, curve = shown["points"], shown["front"]
    assert isinstance(table, Units)
    assert isinstance(curve, Front)
    assert table.columns[-1].name == "failed"
    assert sum(row[-1] is not None for row in table.rows) == 2
    assert "2 of 6 could not be measured" in table.says
    assert {dot.id for dot in curve.points}.isdisjoint(failed(done))
    told = CliRunner().invoke(forge, ["show", "c"], env={"FORGE_HOME": str(home.folder)})
    assert told.exit_code == 0, told.output
    json.dumps(kinds.of("compression").view.fields(done), allow_nan=False)


@pytest.mark.slow
def test_it_is_measured_again_and_forgeries_are_found(home: Home) -> None:
    """A good point that is said to have failed would leave the front without a trace."""
    words = ["verify", "c", "--rebuild", "all", "--recompute"]
    told = CliRunner().invoke(forge, words, env={"FORGE_HOME": str(home.folder)})
    assert told.exit_code == 0, told.output
    assert "it cannot be measured, as recorded" in told.output
    rows = compression_runs.rows(home)
    forged = relinked(edit("unmeasurable", 0, on="test")(rows))
    assert any("another model, measure or slice" in one.message for one in audit.audit(forged))


@pytest.mark.slow
def test_a_point_that_gives_nan_on_the_test_slice_only_makes_room_for_the_next(home: Home) -> None:
    """Its bits on the selection slice were fine; nothing else is known of it then."""
    done = state(home)
    before = copy(done)
    before.completed, before.answers, before.memory = None, dict(done.answers), {}
    first = figures.choose(replayed(before))
    assert first is not None
    task = figures.observe(first.recipe_id, figures.TEST)
    assert isinstance(before.answers[task.key], Observed)
    before.answers[task.key] = Unmeasurable(
        recipe_id=task.recipe_id, measure=task.measure, on=task.on, reason="none"
    )
    before.memory = {}
    (asked,) = due(before).tasks
    second = figures.choose(replayed(before))
    assert second is not None
    assert isinstance(asked, Observe)
    assert (asked.recipe_id, asked.on) == (second.recipe_id, "test")
    assert second.recipe_id != first.recipe_id


@pytest.mark.slow
def test_a_given_model_that_gives_nan_ends_the_run(toys: Toys, tmp_path: Path) -> None:
    """Without calibration nothing has read a text before it is measured."""
    model = compression_runs.overflowing(toys.sources[0], tmp_path / "broken", share=1.01)
    other = Home(tmp_path / "home")
    submit(other, model, compression_runs.data(tmp_path), calibration=0, settings=["rtn-4"])
    with pytest.raises(RunFailedError, match="the model broken cannot be measured: it gives no"):
        finish(other)
    assert state(other).failed
    assert audit.audit(compression_runs.rows(other)) == []


@pytest.mark.slow
def test_a_code_beyond_float32_leaves_the_matrix_plain(toys: Toys, tmp_path: Path) -> None:
    """3.4e38 is 26.6 steps of 0.85, and 27 of them are no float32: the codec does not take it.

    Whatever it is multiplied by, the given model multiplies it by zero.
    """
    large = compression_runs.with_weight(toys.sources[0], tmp_path / "large", "gate_proj", 3.4e38)
    weights = load_file(large / "model.safetensors")
    weights["model.layers.0.post_attention_layernorm.weight"][0] = 0.0
    save_file(weights, large / "model.safetensors", metadata={"format": "pt"})
    other = Home(tmp_path / "home")
    wanted = {"settings": ["uniform-0.85"], "calibration": 0, "mixtures": 0}
    submit(other, large, compression_runs.data(tmp_path), **wanted)
    done = finish(other)
    refused = figures.fallbacks(replayed(done))
    assert "beyond float32" in refused["model.layers.0.mlp.gate_proj.weight at uniform-0.85"]
    assert done.completed
