"""The needs of runs and the devices of a worker, in the scheduler's terms; without torch."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from importlib import metadata

from runs import kinds
from runs.errors import ConfigError, UnavailableError
from runs.kinds.state import State
from runs.record.device_setting import AUTO, CPU
from worker.queue.device_table import Device
from worker.queue.scheduler import Needs, Offer

_GPU = "device:cuda"


def kind_label(device: str) -> str:
    """Return the label of a device's kind: "device:cpu" or "device:cuda"."""
    return f"device:{device.partition(':')[0]}"


def needs(
    device: str, labels: tuple[str, ...], state: State | None, offers: Collection[Offer] = ()
) -> Needs:
    """Return what a run asks of a device: kind and labels, and once started its profile and memory.

    A run whose device is auto asks for a GPU if one of `offers`, those of the living devices, is one
    that meets its labels, else for a CPU.
    """
    if state is not None:
        device = state.device
    if device == AUTO:
        on_gpu = Needs(frozenset({_GPU, *labels}))
        device = "cuda" if any(offer.meets(on_gpu) for offer in offers) else CPU
    needed_labels = frozenset({kind_label(device), *labels})
    if state is None or state.started is None:
        return Needs(needed_labels)
    memory = kinds.of(state.kind).memory(state)
    return Needs(needed_labels, memory, state.started.machine)


def gpu_offers(devices: Iterable[Device]) -> frozenset[Offer]:
    """Return what the living GPUs offer, without their memory and profiles, which may change."""
    return frozenset(
        Offer(d.offer.labels, only=d.offer.only)
        for d in devices
        if d.living and _GPU in d.offer.labels
    )


@dataclass(frozen=True)
class Placement:
    """A device, and the environment of the process that uses it."""

    device: str
    #: The last part of the device's name on its host.
    name: str
    env: dict[str, str]


def placements(devices: str, concurrency: int) -> list[Placement]:
    """Return the devices that `--device` means: one per GPU, `concurrency` of them for the CPU.

    Each has a process of its own. "auto" means every GPU that CUDA_VISIBLE_DEVICES leaves, and the
    CPU, so that runs for either are taken. Raises ConfigError and UnavailableError.
    """
    visible = visible_gpus()
    if devices == AUTO:
        devices = ",".join([*(f"cuda:{n}" for n in range(len(visible))), CPU])
    places: list[Placement] = []
    for device in map(str.strip, devices.split(",")):
        match = re.fullmatch(r"cpu|cuda:(\d+)", device)
        if match is None:
            raise ConfigError(
                f"device {device!r} is not known: give cpu, cuda:N, several, or auto."
            )
        if match[1] is not None:
            if int(match[1]) >= len(visible):
                raise UnavailableError(
                    f"device {device} is not here: {len(visible)} GPUs are visible. "
                    "CUDA_VISIBLE_DEVICES and nvidia-smi say which; "
                    f"torch is {metadata.version('torch')}, and a build +cpu uses none."
                )
            gpu = visible[int(match[1])]
            env = {"CUDA_VISIBLE_DEVICES": gpu, "FORGE_DEVICE": "cuda:0"}
            places += [Placement(device, f"cuda{match[1]}", env)]
        else:
            places += _on_cpu(concurrency)
    if len({placement.name for placement in places}) < len(places):
        raise ConfigError(f"a device stands twice in {devices}.")
    return places


def _on_cpu(concurrency: int) -> list[Placement]:
    """Return `concurrency` placements on the CPU.

    They share the cores, unless FORGE_THREADS sets the number of threads of each.
    """
    cores = len(os.sched_getaffinity(0))
    threads = os.environ.get("FORGE_THREADS") or str(max(1, cores // concurrency))
    env = {"CUDA_VISIBLE_DEVICES": "", "FORGE_DEVICE": "cpu", "FORGE_THREADS": threads}
    return [Placement("cpu", f"cpu{n}", env) for n in range(concurrency)]


def visible_gpus() -> list[str]:
    """Return one value of CUDA_VISIBLE_DEVICES for each GPU that this process may use.

    None with a torch that was built for the CPU alone, as its version says.
    """
    if metadata.version("torch").endswith("+cpu"):
        return []
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    if setting is not None:
        return [
            part.strip() for part in setting.split(",") if part.strip() and part.strip() != "-1"
        ]
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [str(n) for n, _ in enumerate(re.findall(r"^GPU \d+", listed.stdout, re.MULTILINE))]
