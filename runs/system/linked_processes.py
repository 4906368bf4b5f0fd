"""Child processes that end with the process that started them, however their parent ends.

`tied(command)` is a command that runs `command` behind this file as a launcher. The launcher asks
the kernel to kill the process when its parent ends (Linux; elsewhere the command runs as it is),
and then becomes the command. Start the process from a thread that lives as long as the process may:
for the kernel a thread is the parent.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

#: From linux/prctl.h.
PR_SET_PDEATHSIG = 1


def tied(command: Sequence[str]) -> list[str]:
    """Return a command that runs `command` in a process that ends with this one."""
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), str(os.getpid()), *command]


def end_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends; exit if the parent has ended."""
    if sys.platform != "linux":
        return
    import ctypes

    word = ctypes.c_ulong
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, word(signal.SIGKILL), word(0), word(0), word(0))
    if os.getppid() != parent:  # the parent ended before the kernel was asked
        os._exit(1)


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
