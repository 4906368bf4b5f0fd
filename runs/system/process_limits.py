"""Limits of the process: open files, private and freed memory, and how waiting threads wait.

Errors of opened files tell apart a machine's fault and too many open files. glibc keeps freed memory in
its heaps unless it is asked to give it back. OpenMP's threads spin by default, which takes the
processor from the work that they wait for as soon as other processes want it too (docs/benchmarks.md).
So this program's threads soon sleep, unless the user says otherwise. OpenMP reads its environment when
torch is imported; this module does not import torch.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
from collections.abc import Generator, MutableMapping
from contextlib import contextmanager
from pathlib import Path

from agent_forge.runs.errors import UnavailableError

#: Errors of the machine, not of the file.
TRANSIENT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO)
#: The soft limit that is asked for if the hard one is infinite: macOS takes no more.
MOST = 10_240
_TOO_MANY = "Too many open files"


def allow_many() -> None:
    """Raise this process's limit of open files as far as its user may.

    A model of 160 shards takes a descriptor for each, and a soft limit of 256 is common.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < most:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (OSError, ValueError):
            return  # the kernel allows fewer than it says; opening says when they are used up


@contextmanager
def reading(file: Path) -> Generator[None]:
    """Turn the machine's faults in a `with` block that reads `file` into an UnavailableError.

    Other errors pass. Libraries report a lack of descriptors as an error of their own without a
    number, or as a file that does not exist.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:
        number = getattr(error, "errno", None)
        hidden = isinstance(error, FileNotFoundError) and number is None and file.exists()
        if number in (errno.EMFILE, errno.ENFILE) or _TOO_MANY in str(error) or hidden:
            raise too_many(file) from error
        if number in TRANSIENT and isinstance(error, OSError):
            raise UnavailableError(f"{file} cannot be read now: {error.strerror}.") from error
        raise


def too_many(file: Path) -> UnavailableError:
    """Return the error for a file that cannot be opened because too many are open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return UnavailableError(
        f"{file} cannot be opened: too many open files, {limit:,} are allowed. Allow more with "
        "`ulimit -n 4096` in this shell, or store the models in fewer, larger files."
    )


#: Seconds of a step or task after which it is worth while: large ones would let the heap grow.
LONG = 2.0


def give_back() -> None:
    """Give the system the memory that is free in the heaps of glibc.

    A training frees thousands of activations, each smaller than what glibc maps alone: a gigabyte and
    more of heap that the next work may not need. Other C libraries give back by themselves.
    """
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


#: Seconds between two looks.
PERIOD = 0.1


def memory(name: str = "RssAnon") -> int:
    """Return bytes of this process's memory, as Linux calls them, by default private ones; 0 elsewhere.

    RssAnon counts no mapped files; VmData is what RLIMIT_DATA bounds.
    """
    status = Path("/proc/self/status")
    for line in status.read_text("ascii").splitlines() if status.exists() else ():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    return 0


@contextmanager
def peak_memory() -> Generator[list[int]]:
    """Yield a list of one number: the most private memory of this process in the block, in bytes."""
    import threading  # `import agent_forge` reaches this file

    peak, over = [memory()], threading.Event()

    def watch() -> None:
        while not over.wait(PERIOD):
            peak[0] = max(peak[0], memory())

    thread = threading.Thread(target=watch, name="peak-memory", daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


#: Variables by which a user decides: of OpenMP, of libgomp (torch on Linux), of libomp (macOS).
DECIDES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
#: Times that a thread looks for work before it sleeps: some microseconds, in which most of the short
#: operations of a forward pass have their next one (docs/benchmarks.md, "Waiting threads").
SPINS = 3000


def sleep_by_default(env: MutableMapping[str, str] = os.environ) -> None:
    """Make waiting threads sleep after `SPINS` looks, also in children, unless the user decided."""
    if not any(env.get(name) for name in DECIDES):
        env.update(OMP_WAIT_POLICY="PASSIVE", GOMP_SPINCOUNT=str(SPINS))


def said(env: MutableMapping[str, str] = os.environ) -> tuple[bool, str]:
    """Return (True if waiting threads sleep soon, the variables that decide it as "NAME=value, …")."""
    settings = [f"{name}={env[name]}" for name in DECIDES if env.get(name)]
    sleeps = env.get("OMP_WAIT_POLICY", "").strip().upper() == "PASSIVE"
    limits = {"GOMP_SPINCOUNT": SPINS, "KMP_BLOCKTIME": 0}
    counts = {name: env[name].strip() for name in limits if env.get(name)}
    if counts:  # these variables override the policy
        sleeps = all(count.isdecimal() and int(count) <= limits[n] for n, count in counts.items())
    return sleeps, ", ".join(settings) or "nothing is set"
