"""The training loop: the same bits however it is cut, and an end that names its step."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from agent_forge.runs.errors import (
    ConfigError,
    DataError,
    SourceChangedError,
    SourceError,
    TrainingDivergedError,
    UnknownAlgorithmError,
)
from agent_forge.weights.folders.checkpoint import digest
from agent_forge.weights.recipes import Algorithm, Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training import complete, loop
from agent_forge.weights.training.canary import canary
from agent_forge.weights.training.loop import Snapshot, TrainingStep, segment
from agent_forge.weights.training.objectives import OBJECTIVES, Batch, next_token
from agent_forge.weights.training.optimisers import OPTIMISERS
from testing.models import toy_training
from testing.models.toy_training import model, recipe, streams
from testing.shares import one_quick

PRECISIONS = ("float32", "bfloat16")


def bits(snapshot: Snapshot) -> tuple[str, str]:
    """Digests of the weights and of all else that the next step depends on."""
    return digest(snapshot.weights), digest(snapshot.optimiser)


def carried_out(training: Train, cuts: tuple[int, ...] = (), **more: Any) -> Snapshot:
    """The last snapshot of a training that is cut after these steps."""
    start, optimiser = model(), None
    whole: Snapshot | None = None
    for first, last in itertools.pairwise((training.first, *cuts, training.upto)):
        whole = segment(training, start, optimiser, streams(), first, last, **more)
        start, optimiser = Tensors(start.config, whole.weights), whole.optimiser
    assert whole is not None
    return whole


@pytest.mark.parametrize("checkpointing", one_quick(True, False))
@pytest.mark.parametrize("precision", one_quick("bfloat16", "float32"))
@pytest.mark.parametrize("optimiser", sorted(OPTIMISERS))
def test_a_training_that_is_cut_after_every_step_gives_the_same_bits(
    optimiser: str, precision: str, checkpointing: bool
) -> None:
    """What lives longer than a step and is not in the snapshot would show here."""
    training = recipe(
        optimiser, precision=precision, accumulation=2, checkpointing=checkpointing, divergence=9.0
    )
    whole = carried_out(training)
    cut = carried_out(training, tuple(range(1, training.steps)))
    assert bits(cut) == bits(whole)
    # `none` leaves the parameters to the objective; this one has no way to move them.
    assert whole.losses[-1] < whole.losses[0] or optimiser == "none@1"
    assert cut.losses == whole.losses[-1:]


def test_the_length_of_segments_changes_no_bit() -> None:
    """Cuts every 7 and every 10 steps: it may be chosen freely."""
    training = recipe(steps=21)
    every = {n: carried_out(training, tuple(range(n, 21, n))) for n in (7, 10, 21)}
    assert len({bits(snapshot) for snapshot in every.values()}) == 1


def test_the_check_of_cuts_can_fail() -> None:
    """An optimiser that begins again gives other bits and a plausible loss."""
    training = recipe()
    half = segment(training, model(), None, streams(), 0, 4)
    start = Tensors(model().config, half.weights)
    empty = segment(training, start, {}, streams(), 4, 8)
    assert bits(empty) != bits(carried_out(training))
    assert abs(empty.losses[0] - math.log(toy_training.VOCABULARY)) < 1


def test_a_training_can_carry_on_another_one() -> None:
    """The steps 3 to 7 as a training of their own, with the optimiser's state: the same bits."""
    whole = recipe()
    half = segment(whole, model(), None, streams(), 0, 3)
    rest = recipe(start=whole.to(3).id, first=3, carries=True)
    start = Tensors(model().config, half.weights)
    assert bits(segment(rest, start, half.optimiser, streams(), 3, 8)) == bits(carried_out(whole))


def test_the_watch_begins_again_with_a_training_that_carries_on_another() -> None:
    """Its data may be others, and the loss may leap; within a training the watch goes on."""
    whole = recipe(divergence=9.0)
    half = segment(whole, model(), None, streams(), 0, 3)
    start = Tensors(model().config, half.weights)
    rest = recipe(start=whole.to(3).id, first=3, carries=True, divergence=9.0)
    counts = [
        float(segment(one, start, half.optimiser, streams(), 3, 8).optimiser["divergence/loss"][0])
        for one in (whole, rest)
    ]
    assert counts == [8.0, 5.0]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_activation_checkpointing_changes_no_bit(precision: str) -> None:
    """The second forward pass computes what the first did."""
    plain, checkpointed = (
        carried_out(recipe(precision=precision, checkpointing=c)) for c in (False, True)
    )
    assert digest(plain.weights) == digest(checkpointed.weights)


def test_accumulation_is_one_big_batch_within_rounding() -> None:
    """One step, so that rounding does not grow: gradients agree to a few float32 roundings."""
    settings = {"clip": None, "steps": 1}
    big, parts = (carried_out(recipe(accumulation=n, **settings)) for n in (1, 4))
    assert parts.losses[0] == pytest.approx(big.losses[0], rel=1e-6)
    assert parts.norms[0] == pytest.approx(big.norms[0], rel=1e-5)
    for name, tensor in big.optimiser.items():
        limit = 1e-5 * float(tensor.abs().max())
        assert float((tensor - parts.optimiser[name]).abs().max()) <= limit, name


def test_bfloat16_computes_other_numbers_and_keeps_float32_weights() -> None:
    """Otherwise the setting would be dropped in silence."""
    full, half = (carried_out(recipe(precision=p)) for p in PRECISIONS)
    assert bits(full) != bits(half)
    assert {t.dtype for t in half.weights.values()} == {torch.float32}
    assert half.losses[0] == pytest.approx(full.losses[0], rel=0.02)


def test_every_step_is_reported_with_loss_rate_and_norm() -> None:
    """The snapshot has the same numbers, a value a step."""
    seen: list[TrainingStep] = []
    made = carried_out(recipe(), report=seen.append)
    assert [step.number for step in seen] == list(range(8))
    assert tuple(step.loss for step in seen) == made.losses
    assert tuple(step.rate for step in seen) == made.rates
    assert tuple(step.norm for step in seen) == made.norms
    assert made.tokens == 8 * 4 * 12
    assert made.seconds > 0


def test_a_training_stops_after_the_step_at_which_it_is_asked_to() -> None:
    """Pause and cancel take the snapshot of that step, and the rest follows from it."""
    asked = iter([False, False, True])
    training = recipe()
    half = segment(training, model(), None, streams(), 0, 8, should_stop=lambda: next(asked))
    assert half.step == 3
    assert len(half.losses) == 3
    start = Tensors(model().config, half.weights)
    rest = segment(training, start, half.optimiser, streams(), 3, 8)
    assert bits(rest) == bits(carried_out(training))


class Broken(next_token.NextToken):
    """Next tokens, with a fault at step 2 that `fault` names."""

    fault = ""

    def batch(self, step: int) -> Batch:
        """Remember the step."""
        self.step = step
        return super().batch(step)

    def loss(self, part: Batch) -> torch.Tensor:
        """Add the fault."""
        loss = super().loss(part)
        if self.step != 2:
            return loss
        if self.fault == "gradient":  # finite, with an infinite slope
            weight = next(self._module.parameters()).flatten()[0]
            return loss + torch.sqrt((weight - weight.detach()).abs())
        return loss * (math.nan if self.fault == "NaN" else math.inf)


@pytest.mark.parametrize(
    ("fault", "said"), [("NaN", "loss is nan"), ("Inf", "loss is inf"), ("gradient", "norm of the")]
)
@pytest.mark.parametrize("clip", [None, 1.0])
def test_numbers_that_are_not_finite_end_the_training_and_name_the_step(
    fault: str, said: str, clip: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights of NaN would be written, and every later loss would be NaN."""
    monkeypatch.setitem(OBJECTIVES, "broken@1", f"{__name__}:Broken")
    monkeypatch.setattr(Broken, "fault", fault)
    training = recipe(objective="broken@1", clip=clip)
    with pytest.raises(TrainingDivergedError, match=f"step 2: the {said}") as told:
        carried_out(training)
    assert told.value.step == 2
    assert told.value.exit_code == 1
    assert carried_out(training.to(2)).step == 2  # the steps before are whole


class Leap(next_token.NextToken):
    """Next tokens, with a loss of twice its size from step 30 on."""

    def batch(self, step: int) -> Batch:
        """Remember the step."""
        self.step = step
        return super().batch(step)

    def loss(self, part: Batch) -> torch.Tensor:
        """Double the loss from step 30 on."""
        return super().loss(part) * (2 if self.step >= 30 else 1)


@pytest.mark.parametrize("cuts", [(), (10, 29), (30,)])
def test_a_loss_far_above_its_average_ends_the_training_wherever_it_is_cut(
    cuts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The average is a part of the snapshot: a new segment knows what the loss was."""
    monkeypatch.setitem(OBJECTIVES, "leap@1", f"{__name__}:Leap")
    training = recipe(steps=40, objective="leap@1", divergence=6.0)
    with pytest.raises(TrainingDivergedError, match="step 30: the loss") as told:
        carried_out(training, cuts)
    assert told.value.step == 30
    off = recipe(steps=40, objective="leap@1")
    assert carried_out(off, cuts).step == 40


@pytest.fixture
def other_flags() -> Iterator[dict[str, Any]]:
    """Every flag at a value that no training has."""
    before = loop.flags()
    for name, (_, write, value) in loop.FLAGS.items():
        write((False, False) if name == "deterministic algorithms" else not value)
    torch.set_num_threads(2)
    yield loop.flags()
    for name, (_, write, _) in loop.FLAGS.items():
        write(before[name])
    torch.set_num_threads(before["threads"])


def test_flags_are_pinned_in_a_training_and_restored_also_after_an_error(
    other_flags: dict[str, Any],
) -> None:
    """One process does tasks of several runs in turn."""
    seen: list[dict[str, Any]] = []
    state = torch.random.get_rng_state()

    def fail(step: TrainingStep) -> None:
        seen.append(loop.flags())
        raise RuntimeError

    with pytest.raises(RuntimeError):
        carried_out(recipe(), report=fail, threads=1)
    wanted = {name: value for name, (_, _, value) in loop.FLAGS.items()}
    assert seen == [wanted | {"threads": 1}]
    assert loop.flags() == other_flags
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_training_works_where_gradients_are_off_and_turns_them_off_again() -> None:
    """Evaluation in the same process does that."""
    with torch.no_grad():
        assert bits(carried_out(recipe())) == bits(carried_out(recipe()))
        assert not torch.is_grad_enabled()


def test_weights_that_are_given_are_not_written_to() -> None:
    """They may be memory-mapped, or another training's start."""
    before = digest(model().weights)
    carried_out(recipe())
    assert digest(model().weights) == before


def test_the_canary_is_the_same_twice_and_sees_every_setting() -> None:
    """Two machines that compute different numbers must not agree by chance."""
    changes: list[dict[str, Any]] = [{}, {"precision": "bfloat16"}, {"seed": 1}, {"clip": 0.1}]
    found = {canary(recipe(**change), model(), streams())[0] for change in changes}
    assert len(found) == 4
    plain, seconds = canary(recipe(), model(), streams())
    assert plain in found
    assert seconds > 0
    assert canary(recipe(carries=True), model(), streams())[0] == plain


def test_what_does_not_fit_the_recipe_is_refused() -> None:
    """Other data, steps, weights or state: a training would go on with plausible numbers."""
    training, whole = recipe(), model()
    half = segment(training, whole, None, streams(), 0, 4)
    other = streams() | {"odd": streams()["odd"][::-1]}
    with pytest.raises(SourceChangedError, match="'odd'"):
        segment(training, whole, None, other, 0, 1)
    with pytest.raises(ConfigError, match="lacks the data odd"):
        segment(training, whole, None, {"even": streams()["even"]}, 0, 1)
    with pytest.raises(ConfigError, match="needs the optimiser"):
        segment(training, whole, None, streams(), 4, 8)
    with pytest.raises(ConfigError, match="begins without"):
        segment(training, whole, half.optimiser, streams(), 0, 8)
    with pytest.raises(ConfigError, match="steps 0 to 8, not 4 to 9"):
        segment(training, whole, half.optimiser, streams(), 4, 9)
    with pytest.raises(DataError, match="at least 402"):
        segment(recipe(context=400), whole, None, streams(), 0, 1)
    lacking = Tensors(whole.config, {n: t for n, t in whole.weights.items() if "norm" not in n})
    with pytest.raises(SourceError, match="norm"):
        segment(training, lacking, None, streams(), 0, 1)


def test_a_recipe_must_write_out_its_parameters() -> None:
    """Else one computation has two ids; unknown names and parameters are refused too."""
    whole = recipe()
    short = whole.model_copy(update={"optimiser": Algorithm(name="adamw@1")})
    assert short.id != whole.id
    assert complete(short) == whole
    assert complete(whole) == whole
    with pytest.raises(ConfigError, match="does not write out"):
        segment(short, model(), None, streams(), 0, 1)
    wrong = Algorithm(name="adamw@1", params={"beta": 1})
    with pytest.raises(ConfigError, match="adamw@1: beta"):
        complete(whole.model_copy(update={"optimiser": wrong}))
    with pytest.raises(UnknownAlgorithmError, match="'lm@2' is not known"):
        complete(whole.model_copy(update={"objective": "lm@2"}))
