"""Room in memory: a limit at which an allocation raises an error, before the kernel kills the process.

The kernel kills a process that fills the machine's memory, and others with it. Within `bounded` the
process can take only the memory that was available; a larger allocation raises `OutOfMemoryError`.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from agent_forge.runs.errors import UnavailableError
from agent_forge.runs.system.process_limits import memory

#: Share of the available memory that may be taken; other processes need the rest.
SHARE = 0.9
#: A container's limit and use of memory (cgroup v2); the limit is "max" if there is none.
CGROUP = Path("/sys/fs/cgroup")


#: Bytes that a step may keep for its gradients on a processor; a larger one is computed in parts.
KEPT_BYTES = 1 << 29


class OutOfMemoryError(UnavailableError):
    """Work that does not fit in memory."""


def available(cgroup: Path = CGROUP, meminfo: Path = Path("/proc/meminfo")) -> int:
    """Return how many more bytes of memory this process can take, by machine and container."""
    lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    free_bytes = int(lines["MemAvailable"].split()[0]) << 10
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        used = int((cgroup / "memory.current").read_text())
    except (OSError, ValueError):
        return free_bytes
    return free_bytes if limit == "max" else max(0, min(free_bytes, int(limit) - used))


@contextmanager
def bounded() -> Iterator[None]:
    """Let this process take `SHARE` of the memory available now, and no more, within the block.

    Raises OutOfMemoryError for an allocation that does not fit, on the processor or on a GPU.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bound = memory("VmData") + int(available() * SHARE)
    for limit in (soft, hard):
        bound = bound if limit == resource.RLIM_INFINITY else min(bound, limit)
    resource.setrlimit(resource.RLIMIT_DATA, (bound, hard))
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        message = str(error).splitlines()[0] if str(error) else "an allocation failed"
        raise OutOfMemoryError(f"there is not enough free memory here: {message}") from error
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@contextmanager
def kept_below(limit: int = KEPT_BYTES) -> Iterator[None]:
    """Raise OutOfMemoryError as soon as a forward pass in the block keeps more than `limit` bytes.

    It counts activations since the last backward pass, each memory once, and no parameters.
    """
    places: set[int] = set()
    kept_bytes = 0

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept_bytes
        storage = tensor.untyped_storage()
        if not tensor.is_leaf and storage.data_ptr() not in places:
            places.add(storage.data_ptr())
            kept_bytes += storage.nbytes()
            if kept_bytes > limit:
                raise OutOfMemoryError(f"a step keeps more than {limit:,} bytes for its gradients")
        return tensor.detach()

    def unpack(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept_bytes
        kept_bytes = 0
        places.clear()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        yield


def lacks_memory(error: BaseException) -> bool:
    """Return True if an error means too little memory, on the processor or on a GPU."""
    error_types = (MemoryError, torch.OutOfMemoryError)
    return isinstance(error, error_types) or "can't allocate memory" in str(error)
