"""Sections of a model and trits of rows: the same bits as the whole model and the whole matrix give."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agent_forge.runs.errors import ConfigError
from agent_forge.weights import operations
from agent_forge.weights.codecs.feedback import calibration, error_feedback
from agent_forge.weights.folders.checkpoint import digest
from agent_forge.weights.operations import ternary_feedback
from agent_forge.weights.recipes import Transform
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.ternary import linears
from agent_forge.weights.training.models import modules
from agent_forge.weights.training.windows import stream_digest
from testing.models.toy_training import model, streams
from tests.integration.worker.test_pieces import finished

BATCHES = [np.arange(24).reshape(2, 12) % 16, np.arange(36).reshape(3, 12) % 11]


@pytest.fixture(autouse=True)
def _sections_of_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "BLOCKS", 1)


class Block(torch.nn.Module):
    """A block that returns a tuple and changes its input in place, as a model's blocks may do.

    With a list `left`, it also adds what the first block left there.
    """

    def __init__(self, left: list[torch.Tensor] | None) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self._left = left

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:
        y = self.layer(x)
        y = y + x.mul_(0.5)
        if self._left is not None:
            self._left.append(y)
            y = y + self._left[0]
        return y, None


class Stack(torch.nn.Module):
    """A language model of three blocks, without a head."""

    def __init__(self, share: bool) -> None:
        super().__init__()
        self.left: list[torch.Tensor] | None = [] if share else None
        self.embedding = torch.nn.Embedding(16, 4)
        self.blocks = torch.nn.ModuleList(Block(self.left) for _ in range(3))

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        if self.left is not None:
            self.left.clear()
        x = self.embedding(input_ids)
        for block in self.blocks:
            x = block(x)[0]
        return x


def stack(share: bool) -> Stack:
    torch.manual_seed(3)
    return Stack(share)


@pytest.mark.parametrize(
    ("build", "count"),
    [
        pytest.param(lambda: modules.build(model()), 2, id="transformers"),
        pytest.param(partial(stack, False), 3, id="tuples-in-place"),
        pytest.param(partial(stack, True), 1, id="blocks-that-share"),
    ],
)
def test_sections_give_the_grams_of_the_whole_model(
    build: Callable[[], torch.nn.Module], count: int
) -> None:
    """A model whose blocks read more than the block before gives is one section."""
    module = build()
    names = linears.names(module)
    divided = calibration.Sections(module, names, BATCHES)
    assert len(divided) == count
    states = [divided.states(number) for number in range(len(BATCHES))]
    found: dict[str, torch.Tensor] = {}
    for section in reversed(range(count)):  # each by itself, in any order
        found |= divided.grams(section, states)
        assert all("forward" not in vars(submodule) for submodule in module.modules())
    whole = calibration.grams(build(), BATCHES, names)
    assert sorted(found) == sorted(whole) == names
    assert all(torch.equal(found[name], whole[name]) for name in names)


def test_no_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="no window"):
        calibration.Sections(stack(False), [], [])


def test_in_parts_the_operation_gives_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part after each piece, batches and blocks, by devices that take the last open part first."""
    digests = {name: stream_digest(ids) for name, ids in streams().items()}
    params = {"data": digests, "context": 12, "windows": 40}
    recipe = operations.complete(
        Transform(operation="ternary-feedback@1", inputs={"of": "1" * 64}, params=params)
    )

    def work() -> Any:
        from agent_forge.weights import pieces

        with pieces.divided():
            return digest(operations.apply(recipe, {"of": model()}, streams).weights)

    monkeypatch.setenv("FORGE_PART_SECONDS", "0")
    cache = Artifacts(tmp_path / "cache")
    assert finished(cache, lambda count: count - 1, work) == work()
    monkeypatch.setattr(calibration, "BLOCKS", 9)
    assert finished(Artifacts(tmp_path / "other"), lambda count: 0, work) == work()


@pytest.mark.parametrize("tiles", [(64, 512), (1, 1), (4, 3), (5, 64)])
def test_tiles_change_no_bit(tiles: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside updates of the whole matrix, column by column; the last column is rounded half to even."""
    monkeypatch.setattr(ternary_feedback, "BLOCK", tiles[0])
    monkeypatch.setattr(ternary_feedback, "TILE", tiles[1])
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(9, 23, generator=generator)
    x = (
        torch.randn(60, 23, generator=generator).double()
        @ torch.randn(23, 23, generator=generator).double()
    )
    gram, scale = x.T @ x / len(x), torch.tensor([[1.25]])
    trits = torch.empty(weight.shape)

    def quantise(column: int, ahead: torch.Tensor) -> torch.Tensor:
        trits[:, column] = (ahead[:, 0] / 1.25).round().clamp(-1, 1)
        return trits[:, column].double() * 1.25

    error_feedback.fed_back(weight.double(), gram, quantise, 0.01, block=23)
    assert torch.equal(ternary_feedback.fed_back(weight, scale, gram, 0.01), trits)
    unit = torch.eye(1, dtype=torch.float64)
    halves = torch.tensor([[0.5], [-0.5], [1.5], [9.0], [0.6]])
    found = ternary_feedback.fed_back(halves, torch.ones(1, 1), unit, 0.01)
    assert found.flatten().tolist() == [0, 0, 1, 1, 1]
