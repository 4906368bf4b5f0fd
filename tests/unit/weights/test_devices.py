"""Devices of this machine, and the errors of their memory."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from agent_forge.cli.evomerge import merge
from agent_forge.evaluation.kept_items import TaskContext
from agent_forge.evomerge.tasks import context as merging
from agent_forge.evomerge.tasks import score as tasks_score
from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError, UnavailableError
from agent_forge.runs.home import Home
from agent_forge.runs.record.device_setting import AUTO
from agent_forge.weights import devices
from agent_forge.weights.devices import check_device, of_run, out_of_memory, resolve


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


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give this machine a number of GPUs; no process of a worker is asked."""
    monkeypatch.delenv("FORGE_DEVICE", raising=False)
    return lambda count: monkeypatch.setattr(devices, "gpus", lambda: count)


def state_of(kind: str, device: str, pinned: str = "", **settings: Any) -> Any:
    """Return a state of a kind with a device in its settings, and one that `started` pins."""
    state: Any = kinds.of(kind).state()
    state.submitted = SimpleNamespace(config=SimpleNamespace(device=device, **settings))
    if pinned:
        state.started = SimpleNamespace(profile=SimpleNamespace(device=pinned))
    return state


def test_auto_is_a_gpu_if_there_is_one(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(0)
    assert (resolve("auto"), resolve("cpu")) == ("cpu", "cpu")
    machine(1)
    assert (resolve("auto"), resolve("cpu")) == ("cuda:0", "cpu")
    assert resolve("auto", processes=2) == "cpu", "each process needs a GPU of its own"
    monkeypatch.setenv("FORGE_DEVICE", "cpu")
    assert resolve("auto") == "cpu", "a worker's process has one device"


@pytest.mark.parametrize("kind", sorted(set(kinds.KINDS) - {"pipeline"}))
def test_every_kind_takes_the_gpu_and_stays_with_it(kind: str, machine: Any) -> None:
    """The device is pinned at the start: what comes or goes later changes no run."""
    assert kinds.of(kind).config.model_fields["device"].default == AUTO
    device: Any = (merging.MergeContext if kind == "evomerge" else TaskContext).device
    told = SimpleNamespace(state=state_of(kind, "auto"))
    machine(1)
    assert device.fget(told) == "cuda:0"
    told.state = state_of(kind, "auto", pinned="cpu")
    assert device.fget(told) == "cpu"
    told.state = state_of(kind, "auto", pinned="cuda:0")
    machine(0)
    with pytest.raises(UnavailableError, match="device cuda:0 is not here"):
        device.fget(told)


def test_a_pipeline_leaves_the_device_to_its_phases() -> None:
    assert kinds.of("pipeline").config.model_fields["device"].default == AUTO


def test_processes_of_a_training_take_gpus_if_there_are_enough(machine: Any) -> None:
    machine(2)
    assert of_run(state_of("cognate", "auto", processes=2)) == "cuda:0"
    assert of_run(state_of("cognate", "auto", processes=3)) == "cpu"


@pytest.mark.parametrize("device", ["abacus", "cuda:", "cuda:x", "cpu:0", "auto:1", "", "cuda:-1"])
def test_an_unknown_device_is_refused(device: str) -> None:
    with pytest.raises(ConfigError, match="is not known: use auto, cpu or cuda:N"):
        check_device(device)


def test_a_missing_gpu_is_named(machine: Any) -> None:
    machine(1)
    check_device("cuda")
    check_device("cuda:0")
    check_device("cuda:7", elsewhere=True)
    with pytest.raises(UnavailableError, match="device cuda:1 is not here: this process sees 1 GPU"):
        check_device("cuda:1")


def test_merges_and_scores_without_a_run_take_the_gpu(
    machine: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine(1)
    asked: list[str] = []
    config = tmp_path / "c.yml"
    config.write_text("merge_method: linear\nmodels:\n- model: a\n- model: b\n")
    monkeypatch.setattr(merge, "_merged", lambda c, o, options, *_: asked.append(options["device"]))
    monkeypatch.setattr(tasks_score, "resident", lambda model, device: asked.append(device))
    for words in ([], ["--device", "cpu"]):
        CliRunner().invoke(merge.merge_command, [str(config), "out", *words], catch_exceptions=False)
    monkeypatch.setattr(tasks_score, "_references", lambda home, models, tell: models)
    monkeypatch.setattr(tasks_score, "load_items", lambda *_, **__: ())
    monkeypatch.setattr(tasks_score, "score", lambda *_: SimpleNamespace(context=1))
    for device in ("auto", "cpu"):
        how = tasks_score.ScoreOptions(device=device)
        tasks_score.measure(Home(tmp_path), ["model"], how, print)
    assert asked == ["cuda:0", "cpu", "cuda:0", "cpu"]
