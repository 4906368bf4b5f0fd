"""Devices of this machine, and the errors of their memory."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from weights.devices import out_of_memory


class GpuIsFullError(RuntimeError):
    """Torch raises an error of its own, no MemoryError."""


def test_a_full_memory_is_told_from_a_failed_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task whose machine is too small is given back, and is not a failed attempt."""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(OutOfMemoryError=GpuIsFullError))
    assert out_of_memory(MemoryError())
    assert out_of_memory(GpuIsFullError())
    assert not out_of_memory(RuntimeError("a defect"))


def test_a_process_without_torch_has_no_errors_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking must not load it."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert out_of_memory(MemoryError())
    assert not out_of_memory(GpuIsFullError())
    assert "torch" not in sys.modules
