"""The caller's side of the jail: starts it, tests that it holds, and runs programs in it.

    with Sandbox.open() as sandbox:
        ran = sandbox.run("def add(a, b): return a + b", ["add(2, 3)"])
        ran.values                            # ("5",)

`Sandbox.open` tries to break out in every way that must fail. It raises SandboxUnavailableError if
an attempt succeeds, or if the machine cannot lock a process in: not Linux, a processor without a
table in `seccomp.ARCHITECTURES`, or a kernel without seccomp. Then no program is ever run.

Each program has a child process of its own, which ends with it. Two programs share nothing but the
memory image that both start from: that of a process that never read a program or an answer. The
time limit is processor time, so that a program does not fail on a busy machine. Time asleep has the
same limit, counted separately. A wall-clock limit ten times as long ends every other program; the time
that a program waits for a processor is not part of it, up to ten times the limit.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_forge.evaluation.sandbox import jail
from agent_forge.runs.errors import UnavailableError
from agent_forge.runs.system.line_process import Respondent

#: Limits of one program: seconds of processor time, bytes of address space.
CPU_SECONDS = 4
MEMORY = 512 << 20
#: Wall-clock seconds for each second of processor time.
PATIENCE = 10

#: Folder from which the jail imports the package.
_ROOT = Path(__file__).parents[3]
_START = (
    "import sys; sys.path.append({root!r}); "
    "from agent_forge.evaluation.sandbox import jail; jail.serve()"
)


class SandboxUnavailableError(UnavailableError):
    """Programs cannot be locked in on this machine, so they are not run."""


@dataclass(frozen=True)
class ProgramResult:
    """Result of running a program."""

    #: `repr` of every call's value; None where the call raised.
    values: tuple[str | None, ...]
    #: The error of every call that raised, in the same order; None for other calls.
    errors: tuple[str | None, ...]
    #: Why there are no values: the program did not compile, raised, ran out of time …; else "".
    why: str = ""


class Sandbox:
    """A running jail, for one thread at a time."""

    def __init__(self, cpu: int = CPU_SECONDS, memory: int = MEMORY) -> None:
        """Start the jail's process; `open` also tests that it holds."""
        self._limits, self._wall = {"cpu": cpu, "memory": memory}, cpu * PATIENCE
        start = [sys.executable, "-s", "-S", "-B", "-P", "-c", _START.format(root=str(_ROOT))]
        self._jail = Respondent(
            [*start, str(cpu), str(self._wall)],
            stderr=subprocess.DEVNULL,
            cwd=tempfile.mkdtemp(prefix="forge-sandbox-"),  # the jail removes it
            env={"PYTHONHASHSEED": "0", "PYTHONIOENCODING": "utf-8"},
            start_new_session=True,
        )
        #: Ends the jail and its program; called at the latest when this object is destroyed.
        self.close = self._jail.close

    @classmethod
    def open(cls, cpu: int = CPU_SECONDS, memory: int = MEMORY) -> Sandbox:
        """Return a started jail that was tested to hold. Raises SandboxUnavailableError."""
        if not sys.platform.startswith("linux"):
            raise SandboxUnavailableError(
                f"programs can be locked in on Linux only, this is {sys.platform}. Items that run "
                "code are not measured here."
            )
        try:
            sandbox = cls(cpu, memory)
        except OSError as error:
            raise SandboxUnavailableError(
                f"the sandbox cannot be started ({error}). Items that run code are not measured here."
            ) from error
        if escape := sandbox.escapes():
            sandbox.close()
            raise SandboxUnavailableError(
                f"the sandbox does not hold on this machine: {escape}. Items that run code are not "
                "measured here."
            )
        return sandbox

    def escapes(self) -> str:
        """Return words on what a program can but must not do, or the reverse; '' if the jail holds."""
        ran = self.run(_ATTEMPTS, ["broken_out()", "6 * 7"])
        if ran.why:
            return ran.why
        out, sound = ran.values
        if sound != "42":
            return f"a plain program does not run ({ran.errors})"
        return "" if out == "[]" else f"a program can {out or ran.errors}"

    def run(self, program: str, calls: Sequence[str]) -> ProgramResult:
        """Return each call's value or error as a ProgramResult. Raises SandboxUnavailableError."""
        request = {"program": program, "calls": list(calls), **self._limits}
        try:
            answer, output = self._jail.ask_for_bytes(request, self._wall * jail.BUSY + 30)
        except (OSError, ValueError) as error:
            raise SandboxUnavailableError(
                f"the sandbox's process has ended ({error}). If this happens again, items that run "
                "code cannot be measured on this machine."
            ) from error
        if answer["how"]:
            return _nothing(calls, answer["how"])
        return _understood(output.decode("utf-8", "replace"), calls)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _nothing(calls: Sequence[str], why: str) -> ProgramResult:
    nothing = (None,) * len(calls)
    return ProgramResult(nothing, nothing, why)


def _understood(output: str, calls: Sequence[str]) -> ProgramResult:
    """Return the ProgramResult in a child's answer, without trust: the program may have written it."""
    try:
        answer: Any = json.loads(output)
        if "values" in answer:
            pairs = [(_text(value), _text(error)) for value, error in answer["values"]]
            if len(pairs) == len(calls):
                return ProgramResult(tuple(v for v, _ in pairs), tuple(e for _, e in pairs))
        if why := answer.get("error") or answer.get("jail"):
            return _nothing(calls, str(why))
    except (ValueError, TypeError, AttributeError, RecursionError):
        pass
    return _nothing(calls, "ended without an answer")


def _text(value: object) -> str | None:
    return None if value is None else str(value)


#: Program that tries everything that must fail and returns the names of attempts that succeed.
_ATTEMPTS = """
import sys

def broken_out():
    os = sys.modules["os"]
    def read(): open("/etc/passwd").read()
    def write(): open("escaped", "w")
    def look(): os.listdir("/")
    def spawn():
        if os.fork() == 0: os._exit(0)
    def execute(): os.execv("/bin/true", ["true"])
    def kill(): os.kill(os.getppid(), 0)
    def connect():
        if sys.modules["ctypes"].CDLL(None).socket(2, 1, 0) < 0: raise PermissionError
    def thread():
        import _thread
        _thread.start_new_thread(print, ())
    def be_root():
        if os.getuid(): raise PermissionError
    def inherit():
        os.fstat(4)
    done = []
    for attempt in (read, write, look, spawn, execute, kill, connect, thread, be_root, inherit):
        try:
            attempt()
        except BaseException:
            continue
        done.append(attempt.__name__)
    return done
"""
