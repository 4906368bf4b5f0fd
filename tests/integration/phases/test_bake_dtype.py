"""A bake of a model in bfloat16: what is measured and chosen is rounded, and just that is written."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from agent_forge.phases.prompt_baking.recipes import PARENT
from agent_forge.phases.prompt_baking.script import Bake
from agent_forge.phases.prompt_baking.work import Context
from agent_forge.runs.history import audit
from agent_forge.runs.home import Home
from agent_forge.studies.making.making import MakingState
from agent_forge.weights.folders.checkpoint import digest, half_precision, open_checkpoint
from agent_forge.weights.recipes import Train
from agent_forge.weights.storage.weight_cache import Artifacts
from testing.miniatures import bake_runs
from testing.miniatures.bake_runs import SEVERAL
from testing.verification import verified_again


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bake_runs.model(tmp_path_factory.mktemp("bake-model"), torch.bfloat16)


@pytest.fixture(scope="module")
def several(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, MakingState, Path]:
    """A finished run of two prompts in a row and a pursuit, with stops: (home, state, result)."""
    return bake_runs.whole(tmp_path_factory.mktemp("bake"), model, **SEVERAL)


def test_the_result_has_the_dtype_of_the_given_model(several, model: Path) -> None:
    """The folder has the weights that were measured: their digest is the one of the log."""
    _, state, out = several
    result = open_checkpoint(out / "model")
    assert {tensor.dtype for tensor in result.tensors().values()} == {torch.bfloat16}
    assert digest(result.tensors()) == state.completed.models["model"].digest
    assert half_precision(result) == half_precision(open_checkpoint(model)) == "bfloat16"
    config = json.loads((out / "model" / "config.json").read_text())
    assert config == {**json.loads((model / "config.json").read_text()), **config}
    assert config["dtype"] == "bfloat16"
    assert result.bytes == open_checkpoint(model).bytes


def test_candidates_are_the_trained_models_rounded_once(several) -> None:
    home, state, _ = several
    context = Context(state, Artifacts.of(home))
    run: Any = Bake().run(state)
    first = run.known["courses"][0]
    assert list(first.candidates) == ["stop-0.5", "strength-0.3", "strength-1.0"]
    recipes = run.recipes
    for name, trained in (("stop-0.5", "stop-0.5-float32"), ("strength-1.0", "full")):
        assert isinstance(recipes[trained], Train)
        exact, rounded = context.weights(recipes[trained]), context.weights(recipes[name])
        for tensor, values in exact.items():
            assert values.dtype == torch.float32
            assert torch.equal(values.bfloat16(), rounded[tensor])
        assert any(not torch.equal(v, rounded[t].float()) for t, v in exact.items())
    parent, full = context.weights(recipes[PARENT]), context.weights(recipes["full"])
    line = context.weights(recipes["strength-0.3"])
    for tensor, start in parent.items():
        between = start + (full[tensor] - start) * 0.3
        assert torch.equal(between.bfloat16(), line[tensor])


def test_later_trainings_begin_with_the_result_before_in_float32(several) -> None:
    """They begin with what was chosen, not with what it was rounded from."""
    home, state, _ = several
    context = Context(state, Artifacts.of(home))
    run: Any = Bake().run(state)
    recipes, courses = run.recipes, run.known["courses"]
    for before_it, one in itertools.pairwise(courses):
        assert one.full is not None
        assert one.full.start == recipes[f"bake-{one.stage.number}-start"].id == one.start.id
        start, before = context.weights(one.start), context.weights(recipes[before_it.best])
        assert all(torch.equal(values, before[t].float()) for t, values in start.items())
        assert all(values.dtype == torch.float32 for values in start.values())


def test_the_run_is_verified_and_its_models_are_found(several) -> None:
    home, state, out = several
    assert audit.audit(bake_runs.rows(home)) == []
    assert verified_again(home, state.run)[0] == []
    kind = Bake()
    document = kind.verification.document(out)
    assert document is not None
    assert list(kind.verification.folder(home, out, document, state, True)) == []
    places = [one.place for one in kind.models.ancestry(state, str(state.completed.chosen))]
    assert places[-1] == "given"
