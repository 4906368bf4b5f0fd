"""Evaluation on a GPU; skipped where there is none."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agent_forge.evaluation import autotune
from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data.packing import ItemPack
from agent_forge.evaluation.measures import perplexity
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.tasks import Evaluate
from agent_forge.evomerge.tasks.context import MergeContext
from agent_forge.evomerge.tasks.execute import carry_out
from agent_forge.runs.home import Home
from agent_forge.weights.folders import checkpoint
from agent_forge.weights.storage.weight_cache import Artifacts
from testing.models.toys import Toys
from testing.worlds import runs

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")

CONTEXT = 32


def test_losses_are_those_of_the_cpu_also_compiled(toys: Toys) -> None:
    """To what float32 sums in another order allow; a swap of weights needs no second compiling."""
    folder = toys.base
    origin = checkpoint.open_checkpoint(folder).tensors()
    rng = np.random.default_rng(0)
    windows = [rng.integers(1, 320, CONTEXT) for _ in range(9)]
    found = []
    for device, compiled in (("cpu", None), ("cuda", None), ("cuda", (4, CONTEXT))):
        model = ResidentModel(folder, device, tied=True)
        model.batch_tokens, model.compiled = 4 * CONTEXT, compiled
        for factor in (1.0, 1.5):
            model.load({n: t * factor for n, t in origin.items()})
            found.append(perplexity.score_windows(model, windows)[0])
    for place in (2, 3, 4, 5):
        np.testing.assert_allclose(found[place], found[place % 2], rtol=1e-4)


def test_everything_can_be_probed(toys: Toys) -> None:
    model = ResidentModel(toys.base, "cuda", tied=True)
    origin = checkpoint.open_checkpoint(toys.base).tensors()
    model.load(origin)
    speeds = autotune.batch(model, CONTEXT)
    assert all(speed > 0 for speed in speeds.values())
    model.batch_tokens = autotune.chosen(speeds)
    rng = np.random.default_rng(0)
    data = {"d": ItemPack(windows=[rng.integers(1, 320, CONTEXT) for _ in range(8)])}
    for tried in (autotune.halved, autotune.compiled):
        assert tried(model, [origin], data, CONTEXT).change < 0.01


def test_a_run_s_batch_is_probed_and_its_figures_come_again(toys: Toys, tmp_path) -> None:
    home = Home(tmp_path)
    runs.submit(home, toys, device="cuda:0", generations=0, batch_tokens="probe")
    state = runs.finish(home)
    assert state.completed
    assert state.started
    assert any("tokens a forward pass" in line for line in state.started.warnings)
    bench = MergeContext(state, Artifacts(home.artifacts))
    bench.check_unchanged()
    champion = state.completed.champion
    again = carry_out(Evaluate(champion, "test", None), bench)
    assert isinstance(again, events.Evaluated)
    assert again.outcomes == state.evaluations[champion, "test", None].outcomes
