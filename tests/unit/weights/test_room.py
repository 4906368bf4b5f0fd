"""Memory that a training may take: what is available, and an allocation beyond it."""

from __future__ import annotations

import resource
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from agent_forge.weights.training import room


def test_what_is_available_is_the_smaller_of_machine_and_container(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       9 kB\nMemAvailable:    4096 kB\n")
    assert room.available(tmp_path, meminfo) == 4 << 20
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1048576\n")
    assert room.available(tmp_path, meminfo) == 4 << 20
    (tmp_path / "memory.max").write_text("3145728\n")
    assert room.available(tmp_path, meminfo) == 2 << 20
    (tmp_path / "memory.max").write_text("1\n")
    assert room.available(tmp_path, meminfo) == 0


def test_an_allocation_that_does_not_fit_raises_and_the_bound_ends(monkeypatch) -> None:
    """With torch's own allocator; what fits is not disturbed."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    monkeypatch.setattr(room, "available", lambda: 256 << 20)
    with room.bounded():
        torch.zeros(8 << 20, dtype=torch.uint8)
    with pytest.raises(room.OutOfMemoryError, match="allocate"), room.bounded():
        torch.zeros(2 << 30, dtype=torch.uint8)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    torch.zeros(512 << 20, dtype=torch.uint8)


def test_other_errors_pass(monkeypatch) -> None:
    with pytest.raises(RuntimeError, match="another"), room.bounded():
        raise RuntimeError("another")


def test_what_a_step_keeps_for_its_gradients_is_bounded() -> None:
    """Counted are activations, each memory once, since the last backward pass; no parameters."""
    weight = torch.ones(64, 64, requires_grad=True)
    rows = torch.ones(4, 64)
    exactly = 4 * 64 * 4  # the 4 rows of 64 float32 numbers that tanh gives, which sin keeps, too

    def loss() -> torch.Tensor:
        return (rows @ weight).tanh().sin().sum()

    with room.kept_below(exactly):
        for _ in range(3):
            loss().backward()
    with pytest.raises(room.OutOfMemoryError, match="for its gradients"):
        with room.kept_below(exactly - 1):
            loss()
    with pytest.raises(room.OutOfMemoryError), room.kept_below(exactly):
        _ = loss() + (rows @ weight).exp().sum()  # nothing is freed between the two


def test_a_bound_on_what_is_kept_changes_no_gradient() -> None:
    weight = torch.linspace(-1, 1, 4096).reshape(64, 64).requires_grad_()
    gradients = []
    for bound in (1 << 30, None):
        with room.kept_below(bound) if bound else nullcontext():
            (torch.ones(4, 64) @ weight).tanh().log_softmax(-1).sin().sum().backward()
        assert weight.grad is not None
        gradients.append(weight.grad.clone())
        weight.grad = None
    assert torch.equal(*gradients)
