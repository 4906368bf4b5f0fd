"""Whole runs whose loss leaps, and steps that do not fit in memory: the same for all that train."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from agent_forge.phases.cognate.script import Cognate
from agent_forge.phases.prompt_baking import work as prompt_baking
from agent_forge.runs.errors import ForgeError, RunFailedError
from agent_forge.runs.history import audit
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.studies import work
from agent_forge.weights.recipes import Train
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.training import complete, room
from agent_forge.weights.training.objectives import OBJECTIVES, Batch, next_token
from agent_forge.weights.training.objectives import bake as bake_objective
from agent_forge.worker.commands import submit
from testing.miniatures import bake_runs, bitnet_runs, cognate_runs, student_runs
from testing.models.toys import Toys

#: Step from which the loss is many times its size.
LEAPS = 25


class Leap(next_token.NextToken):
    """Next tokens, with a loss of fifty times its size from a step on."""

    def batch(self, step: int) -> Batch:
        """Remember the step."""
        self.step = step
        return super().batch(step)

    def loss(self, part: Batch) -> torch.Tensor:
        """Multiply the loss once it leaps."""
        return super().loss(part) * (50 if self.step >= LEAPS else 1)


class BakeLeap(bake_objective.BakeObjective):
    """Replies under a prompt, with a loss of fifty times its size from a step on."""

    def batch(self, step: int) -> Batch:
        """Remember the step."""
        self.step = step
        return super().batch(step)

    def loss(self, part: Batch) -> torch.Tensor:
        """Multiply the loss once it leaps."""
        return super().loss(part) * (50 if self.step >= LEAPS else 1)


class Gone(next_token.NextToken):
    """Next tokens, whose loss is no number."""

    def loss(self, part: Batch) -> torch.Tensor:
        """Return NaN."""
        return super().loss(part) * float("nan")


def cognate(home: Home, base: Path, **settings: Any) -> Any:
    """Carry a cognate run of a given base on until a training has advanced."""
    data = bitnet_runs.texts(home.folder / "texts")
    short = {"specialist_tokens": 4_000, "batch": 2, "own_share": 1.0, "domains": ["sums"]}
    cognate_runs.submit(home, "r", base, data, **{**short, **settings})
    return cognate_runs.carry_until(home, lambda now: bool(now.advanced))


def student(home: Home, model: Path, **settings: Any) -> Any:
    """Carry a student run to its end."""
    student_runs.submit(home, model, "r", **{"tokens": 4_000, **settings})
    return student_runs.finish(home, "r")


def bitnet(home: Home, model: Path, **settings: Any) -> Any:
    """Carry a bitnet run on until it is started."""
    bitnet_runs.submit(home, model, "r", **settings)
    return bitnet_runs.carry_until(home, lambda now: now.started is not None)


def bake(home: Home, model: Path, **settings: Any) -> Any:
    """Carry a bake on until its replies are there. Its length is told in steps, not in tokens."""
    settings.pop("tokens", None)
    bake_runs.submit(home, model, "r", **settings)
    return bitnet_runs.carry_until(home, lambda now: bool(now.answers))


@pytest.mark.parametrize("begun", [cognate, student])
@pytest.mark.slow
def test_a_loss_that_leaps_ends_the_run_with_step_and_loss(
    begun: Any, toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the settings that a new run gets; its history is honest."""
    monkeypatch.setitem(OBJECTIVES, "lm@1", f"{__name__}:Leap")
    home = Home(tmp_path)
    with suppress(RunFailedError):
        begun(home, toys.base)
    with pytest.raises(RunFailedError, match=rf"at step {LEAPS}: the loss \d+\.\d+ is above"):
        cognate_runs.finish(home)
    state = cognate_runs.state(home)
    assert state.failed is not None
    assert "12 standard deviations" in state.failed.reason
    assert audit.audit(cognate_runs.rows(home)) == []


@pytest.mark.slow
def test_a_bake_whose_loss_leaps_ends_with_step_and_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OBJECTIVES, "bake@1", f"{__name__}:BakeLeap")
    home = Home(tmp_path)
    bake_runs.submit(home, bake_runs.model(tmp_path / "model"), "r", steps=40)
    with pytest.raises(RunFailedError, match=rf"at step {LEAPS}: the loss \d+\.\d+ is above"):
        bake_runs.finish(home, "r")
    assert audit.audit(bake_runs.rows(home, "r")) == []


def test_without_the_setting_a_leap_is_trained_on(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recipe is then the one of runs that were recorded before there was the setting."""
    monkeypatch.setitem(OBJECTIVES, "lm@1", f"{__name__}:Leap")
    state = cognate(Home(tmp_path), toys.base, divergence=None)
    (recipe,) = Cognate().trainings(state).values()
    assert recipe.divergence is None
    assert state.steps(recipe) == recipe.upto > LEAPS


@pytest.mark.slow
def test_activations_are_computed_again_if_a_cognate_run_is_asked_to(
    toys: Toys, tmp_path: Path
) -> None:
    """The recipe says so, and the weights come out the same but for rounding."""
    found = []
    for name, setting in (("a", False), ("b", True)):
        home = Home(tmp_path / name)
        state = cognate(home, toys.base, checkpointing=setting)
        (recipe,) = Cognate().trainings(state).values()
        assert recipe.checkpointing is setting
        assert complete(recipe) == recipe
        (event,) = state.advanced[recipe.stem].values()
        found.append(event.curve[-1].loss)
    assert found[0] == pytest.approx(found[1], rel=1e-4)


@pytest.mark.parametrize("kind", ["student", "bitnet", "bake"])
@pytest.mark.slow
def test_a_step_of_a_given_model_that_does_not_fit_is_computed_in_parts(
    kind: str, toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least as many as were asked for, with a note; pinned for all trainings of the run."""
    context = prompt_baking.Context if kind == "bake" else work.Context
    whole, most = work.canary, 1

    def canary(recipe: Train, *args: Any, **more: Any) -> tuple[str, float]:
        if recipe.batch // recipe.accumulation > most:
            raise room.OutOfMemoryError("an allocation failed")
        return whole(recipe, *args, **more)

    monkeypatch.setattr(work, "canary", canary)
    begun = {"student": student, "bitnet": bitnet, "bake": bake}[kind]
    state = begun(Home(tmp_path / "a"), toys.base, accumulation=2, tokens=1_300)
    assert state.started.accumulation == 4
    assert "take too much memory in 2 parts: they are computed in 4 parts" in state.started.warnings[-1]
    trained = context(state, Artifacts(tmp_path / "cache")).trainings.values()
    assert {recipe.accumulation for recipe in trained} == {4}
    most = 0
    with pytest.raises(ForgeError, match="not even one window of 32 tokens fits in memory"):
        begun(Home(tmp_path / "b"), toys.base)


def test_a_limit_of_no_deviations_is_refused() -> None:
    with pytest.raises(ForgeError, match="divergence"):
        submit.plan(RunRequest("cognate", {"preset": "mini", "divergence": 0}))
