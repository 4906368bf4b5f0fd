"""Baking: what its loss is, by a slow reference, and that it is cut anywhere."""

from __future__ import annotations

import errno
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agent_forge.runs.errors import ConfigError, DataError, SourceChangedError
from agent_forge.weights.recipes import Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training.loop import segment
from agent_forge.weights.training.models import modules, prompted
from agent_forge.weights.training.models.modules import TEACHER
from agent_forge.weights.training.objectives import bake
from agent_forge.weights.training.objectives.bake import BakeObjective, ReverseBake
from agent_forge.weights.training.windows import BAKED, OTHERS, Ids, Trajectory, stream_digest
from testing.models import toy_baking, toy_training
from testing.models.toy_baking import recipe, streams, trajectories
from testing.shares import one_quick
from tests.integration.weights.test_training import bits

ALONE = {"neutral": 0.0, "others": 0.0}


def other_model() -> Tensors:
    """The toy with other weights: what is trained is not the parent."""
    parent = toy_training.model()
    return Tensors(parent.config, {n: t * 1.5 for n, t in parent.weights.items()})


def objective(whole: Train) -> BakeObjective:
    module = modules.build(other_model())
    objective_class = ReverseBake if whole.objective == "bake@2" else BakeObjective
    return objective_class(whole, module, streams(), {TEACHER: toy_training.model()})


def softmax(model: Tensors, ids: Ids) -> np.ndarray:
    """P of the next token after the last of some ids, [vocabulary] float64: one pass, alone."""
    with torch.no_grad():
        logits = modules.build(model)(input_ids=torch.from_numpy(ids.astype(np.int64))[None]).logits
    shifted = logits[0, -1].double().numpy()
    shifted = np.exp(shifted - shifted.max())
    return shifted / shifted.sum()


def slow(one: Trajectory, top: int | None = None, reverse: bool = False) -> float:
    """Σ KL(parent ‖ trained) along a trajectory, one token and one vocabulary entry after the other.

    In reverse KL(trained ‖ parent), with the parent's likeliest tokens.
    """
    total = 0.0
    for t in range(len(one.reply)):
        p = softmax(toy_training.model(), np.concatenate([one.prompted, one.reply[:t]]))
        q = softmax(other_model(), np.concatenate([one.plain, one.reply[:t]]))
        order = sorted(range(len(p)), key=lambda v: -p[v])
        kept = order if top is None else order[:top]
        pairs = [(p[v], q[v]) for v in kept]
        if top is not None:
            pairs.append((sum(p[v] for v in order[top:]), sum(q[v] for v in order[top:])))
        for a, b in pairs:
            total += b * math.log(b / a) if reverse else a * math.log(a / b)
    return total


@pytest.mark.parametrize("version", ["bake@1", "bake@2"])
@pytest.mark.parametrize("top", [None, 5])
def test_the_loss_is_the_mean_divergence_over_the_tokens_of_the_step(
    top: int | None, version: str
) -> None:
    found = objective(recipe({**ALONE, "top": top}, objective=version))
    batch = found.batch(0)
    chosen = [trajectories(BAKED)[n] for n in batch[BAKED].tolist()]
    reverse = version == "bake@2"
    by_hand = sum(slow(one, top, reverse) for one in chosen) / sum(len(one.reply) for one in chosen)
    assert by_hand > 1e-3
    assert found.loss(batch).item() == pytest.approx(by_hand, abs=1e-6)


def test_the_guards_are_added_by_their_weights() -> None:
    """Under other prompts both models read the same; ordinary text is compared token by token."""
    found = objective(recipe({"neutral": 3.0, "others": 2.0}))
    batch = found.batch(1)
    parts = []
    for name in (BAKED, OTHERS):
        chosen = [trajectories(name)[n] for n in batch[name].tolist()]
        parts.append(sum(map(slow, chosen)) / sum(len(one.reply) for one in chosen))
    text = [
        Trajectory(0, row[:1], row[:1], row[1:]) for row in batch["tokens"].numpy().astype(np.int32)
    ]
    assert all(len(one.reply) == 12 for one in text)
    parts.append(sum(map(slow, text)) / (4 * 12))
    by_hand = parts[0] + 2.0 * parts[1] + 3.0 * parts[2]
    assert found.loss(batch).item() == pytest.approx(by_hand, abs=2e-6)


def test_a_guard_of_its_own_replaces_the_teacher_in_the_guards_alone() -> None:
    """With the teacher as the guard nothing changes; with another, what its predictions say."""
    from agent_forge.weights.training.objectives.bake import GUARD

    def lost(guard: Tensors | None, params: dict[str, Any]) -> float:
        given = {TEACHER: toy_training.model()} | ({GUARD: guard} if guard else {})
        whole = recipe(params, inputs=dict.fromkeys(given, toy_training.INIT.id))
        made = BakeObjective(whole, modules.build(other_model()), streams(), given)
        return made.loss(made.batch(0)).item()

    assert lost(toy_training.model(), {}) == lost(None, {})
    # The trained model is its own guard: both guards are zero, and what is left is the bake's own loss.
    assert lost(other_model(), {}) == pytest.approx(lost(None, ALONE), abs=1e-6)
    assert lost(None, {}) > lost(None, ALONE) + 1e-4


def test_trajectories_of_a_later_bake_have_their_number_in_the_name() -> None:
    known = streams()
    again = {**known, f"{BAKED}/2": known[BAKED]}
    digests = {f"{BAKED}/2": stream_digest(known[BAKED])}
    whole = recipe(ALONE, data=dict.fromkeys(digests, 1.0), data_digests=digests)
    found = BakeObjective(whole, modules.build(other_model()), again, {TEACHER: toy_training.model()})
    batch = found.batch(0)
    chosen = [trajectories(BAKED)[n] for n in batch[f"{BAKED}/2"].tolist()]
    by_hand = sum(map(slow, chosen)) / sum(len(one.reply) for one in chosen)
    assert found.loss(batch).item() == pytest.approx(by_hand, abs=1e-6)


def test_all_trajectories_are_read_before_any_is_read_again() -> None:
    found = objective(recipe(ALONE))
    numbers = [n for step in range(6) for n in found.batch(step)[BAKED].tolist()]
    for first in range(0, 24, toy_baking.COUNT):
        assert sorted(numbers[first : first + toy_baking.COUNT]) == list(range(toy_baking.COUNT))
    assert numbers[:6] != numbers[6:12]
    assert found.batch(3)[BAKED].tolist() == numbers[12:16]  # of the step alone


def test_parts_of_a_step_add_up_to_the_step() -> None:
    """Replies have 1 to 6 tokens: a mean of the parts' own means would be another number."""
    found = objective(recipe())
    batch = found.batch(0)
    halves = [found.loss({n: t[at : at + 2] for n, t in batch.items()}).item() for at in (0, 2)]
    assert sum(halves) / 2 == pytest.approx(found.loss(batch).item(), rel=1e-5)


@pytest.mark.parametrize("version", ["bake@1", "bake@2"])
@pytest.mark.parametrize("params", one_quick({"top": 5}, {}, ALONE))
def test_a_bake_that_is_cut_after_every_step_has_the_same_bits(
    params: dict[str, Any], version: str
) -> None:
    whole_recipe = recipe(params, accumulation=2, objective=version)

    def carried(cuts: tuple[int, ...]) -> Any:
        optimiser, start, made = None, other_model(), None
        for first, last in itertools.pairwise((0, *cuts, 8)):
            given = {TEACHER: toy_training.model()}
            made = segment(whole_recipe, start, optimiser, streams(), first, last, inputs=given)
            start, optimiser = Tensors(start.config, made.weights), made.optimiser
        return made

    whole, cut = carried(()), carried(tuple(range(1, 8)))
    assert bits(cut) == bits(whole)
    assert whole.losses[-1] < whole.losses[0]


def test_predictions_that_are_not_kept_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded: with no room at all, the losses have the same bits."""
    kept = objective(recipe())
    monkeypatch.setattr(bake, "KEPT_BYTES", 0)
    bare = objective(recipe())
    for step in (0, 1, 0):
        batch = kept.batch(step)
        assert kept.loss(batch).item() == bare.loss(batch).item()
    assert kept._cache
    assert not bare._cache


def test_predictions_are_kept_in_files_and_on_a_full_disk_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file's pages are no private memory; both have the same bits, and so has a second reading."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(bake, "FILE_BYTES", 1)
    in_files, in_memory = objective(recipe()), objective(recipe())
    for step in (0, 1, 0):
        batch = in_files.batch(step)
        loss = in_files.loss(batch).item()
        with monkeypatch.context() as patch:
            patch.setattr(bake.tempfile, "TemporaryFile", full)
            assert in_memory.loss(batch).item() == loss
    for logs, _ in in_files._cache.values():
        assert any(low <= logs.data_ptr() < high for low, high in _mapped_deleted_files())


def _mapped_deleted_files() -> list[tuple[int, int]]:
    """First and last address of each mapping of this process whose file has no name."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    ranges = [line.split()[0].split("-") for line in maps if line.endswith("(deleted)")]
    return [(int(low, 16), int(high, 16)) for low, high in ranges]


def test_the_divergence_of_a_model_from_itself_is_zero() -> None:
    logs = torch.randn(3, 8, generator=torch.Generator().manual_seed(1)).log_softmax(-1)
    assert prompted.divergences(logs, logs).tolist() == [0.0, 0.0, 0.0]
    ids, wanted = prompted.likely(logs, 3)
    assert prompted.divergences(wanted, prompted.of_likely(logs, ids)).abs().max() < 1e-6


def test_what_does_not_fit_is_refused() -> None:
    def refused(error: type[Exception], match: str, whole: Train, **data: Ids) -> None:
        module = modules.build(other_model())
        given = {TEACHER: toy_training.model()} if whole.inputs else {}
        with pytest.raises(error, match=match):
            BakeObjective(whole, module, {**streams(), **data}, given)

    refused(ConfigError, r"reads the models \['teacher'\], not \[\]", recipe(inputs={}))
    text = {"even": 1.0}
    digests = {"even": recipe().data_digests["even"]}
    lacks = recipe(data=text, data_digests=digests)
    refused(ConfigError, "lacks the data bake/trajectories", lacks)
    both = recipe().data
    no_use = recipe({"others": 0.0}, data=both, data_digests=recipe().data_digests)
    refused(ConfigError, "has no use for the data bake/others", no_use)
    own = {name: recipe().data_digests[name] for name in (BAKED, OTHERS)}
    lacks = recipe(data=dict.fromkeys(own, 1.0), data_digests=own)
    refused(ConfigError, "lacks ordinary text", lacks)
    refused(ConfigError, "top is 64, the vocabulary has 64", recipe({"top": 64}))
    broken = streams()[BAKED][:-1]
    changed = recipe()
    refused(SourceChangedError, "not the data", changed, **{BAKED: broken})
    digests = {**changed.data_digests, BAKED: stream_digest(broken)}
    refused(DataError, "holds no trajectories", recipe(data_digests=digests), **{BAKED: broken})
    empty = np.zeros(0, np.int32)
    digests[BAKED] = stream_digest(empty)
    refused(DataError, "hold no trajectory", recipe(data_digests=digests), **{BAKED: empty})
