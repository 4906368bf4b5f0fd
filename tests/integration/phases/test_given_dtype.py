"""Trainings of a 16-bit model give models of its dtype: what was measured, rounded, is written.

`test_bake_dtype.py` has bakes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from agent_forge.runs import kinds
from agent_forge.runs.history import audit
from agent_forge.runs.home import Home
from agent_forge.studies import given_dtype
from agent_forge.studies.events import Observed
from agent_forge.weights.folders.checkpoint import digest, half_precision, open_checkpoint
from agent_forge.weights.storage.weight_cache import Artifacts
from testing.miniatures import (
    baking_runs,
    cognate_runs,
    curriculum_runs,
    experts_runs,
    quietstar_runs,
    student_runs,
)
from testing.miniatures.bitnet_runs import texts
from testing.models import toy_models
from testing.verification import verified_again

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def submit_cognate(home: Home, model: Path) -> None:
    """Submit specialists of a given base."""
    settings = {"specialist_tokens": 12_000, "batch": 4, "specialist_rate": 5e-3}
    cognate_runs.submit(home, "r", model, texts(home.folder / "texts"), **settings)


def submit_experts(home: Home, model: Path) -> None:
    """Submit a run whose mixtures have a further model."""
    experts_runs.submit(home, model, [model.parent / "source0"])


def submit_curriculum(home: Home, model: Path) -> None:
    """Submit a run of two arms of two segments."""
    curriculum_runs.submit(home, model, arms=["adaptive", "uniform"], segments=2, tokens=1_920)


#: Kind → its runs in miniature, and what submits one.
RUNS: dict[str, tuple[Any, Callable[[Home, Path], Any]]] = {
    "baking": (baking_runs, baking_runs.submit),
    "cognate": (cognate_runs, submit_cognate),
    "curriculum": (curriculum_runs, submit_curriculum),
    "experts": (experts_runs, submit_experts),
    "quietstar": (quietstar_runs, quietstar_runs.submit),
    "student": (student_runs, student_runs.submit),
}


@pytest.fixture(scope="module")
def able(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that can use a tool, float32: baking needs one."""
    return baking_runs.able(tmp_path_factory.mktemp("able"))


@pytest.fixture(
    scope="module", params=[(kind, dtype) for kind in RUNS for dtype in DTYPES], ids="-".join
)
def finished(
    request: pytest.FixtureRequest, able: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str, Home, Any, Path]:
    """A finished run of a model of 16 bits: (kind, dtype, home, state, folder of the result)."""
    kind, dtype = request.param
    folder = tmp_path_factory.mktemp(f"{kind}-{dtype}")
    if kind == "baking":
        model = toy_models.in_dtype(able, folder / "models" / "able", DTYPES[dtype])
    else:
        model, _ = toy_models.family(folder / "models", 1, DTYPES[dtype])
    home = Home(folder / "home")
    runs, submit = RUNS[kind]
    submit(home, model)
    state = runs.finish(home)
    kinds.of(kind).write_result(home, state, folder / "out")
    return kind, dtype, home, state, folder / "out"


def test_the_folders_have_the_dtype_of_the_given_model(finished) -> None:
    """They hold the measured weights: the log has an observation of a model of their digest."""
    _, dtype, _, state, out = finished
    assert state.started.dtype == dtype
    measured = {e.recipe_id for e in state.answers.values() if isinstance(e, Observed)}
    for role, made in state.completed.models.items():
        folder = open_checkpoint(out / role)
        assert {tensor.dtype for tensor in folder.tensors().values()} == {DTYPES[dtype]}
        assert digest(folder.tensors()) == made.digest == state.made[made.recipe_id].digest
        assert half_precision(folder) == dtype
        assert json.loads((out / role / "config.json").read_text())["dtype"] == dtype
        assert made.recipe_id in measured


def test_results_are_the_models_in_float32_rounded_once(finished) -> None:
    kind, dtype, home, state, _ = finished
    context: Any = kinds.of(kind).context(state, Artifacts.of(home))
    recipes = kinds.of(kind).recipes(state)
    pairs = [name for name in recipes if f"{name}{given_dtype.FLOAT32}" in recipes]
    assert pairs
    moved = False
    for name in pairs:
        exact = context.weights(recipes[f"{name}{given_dtype.FLOAT32}"])
        rounded = context.weights(recipes[name])
        for tensor, values in exact.items():
            assert values.dtype == torch.float32
            wanted = values if tensor.startswith("thoughts.") else values.to(DTYPES[dtype])
            assert torch.equal(rounded[tensor], wanted)
            moved |= not torch.equal(values, rounded[tensor].float())
    assert moved or kind == "experts"  # whose mixtures are rounded as they are made


def test_the_run_is_verified_and_its_folders_are(finished) -> None:
    kind, _, home, state, out = finished
    rows = RUNS[kind][0].rows(home)
    assert audit.audit(rows) == []
    assert verified_again(home, state.run)[0] == []
    own = kinds.of(kind)
    document = own.verification.document(out)
    assert document is not None
    assert list(own.verification.folder(home, out, document, state, True)) == []
