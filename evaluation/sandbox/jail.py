"""Jail process: forks a locked child for every program and passes on its answer unread.

The jail has an empty environment, an empty folder and three pipes, and nothing else of the
caller's. It has loaded the modules that programs may import (`OFFERED`). For each request it forks
a child. The child reads the request from standard input and gives up files, root, and all system
calls but those of `seccomp`. Then the child runs the program, evaluates the given expressions in it
and writes their `repr` into a file in memory. The child never knows the expected values: the caller
compares them, so that a program can pass only by computing them.

The jail itself reads neither requests nor answers: the kernel copies an answer from the child's
file to the caller's pipe. Every child begins with the jail's memory, which holds nothing of earlier
programs.

A request is one line of JSON (see `runs.system.line_process`): program, calls, cpu (seconds),
memory (bytes). An answer is one line of JSON too: how ("" if the child ended by itself) and size.
After it come `size` bytes, which the child wrote.

Standard library only.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import select
import signal
import sys
import time
from typing import Any

from evaluation.sandbox import seccomp

#: Modules that programs may import; no other module can be loaded later.
OFFERED = (
    "abc",
    "array",
    "base64",
    "bisect",
    "calendar",
    "cmath",
    "collections",
    "collections.abc",
    "contextlib",
    "copy",
    "csv",
    "dataclasses",
    "datetime",
    "decimal",
    "enum",
    "fractions",
    "functools",
    "hashlib",
    "heapq",
    "html",
    "io",
    "itertools",
    "json",
    "math",
    "numbers",
    "operator",
    "queue",
    "random",
    "re",
    "statistics",
    "string",
    "struct",
    "textwrap",
    "time",
    "types",
    "typing",
    "unicodedata",
    "uuid",
    "zlib",
)

#: Also loaded, because some modules of `OFFERED` load these when they are first needed.
_QUIETLY = ("_strptime", "pprint", "traceback", "encodings.latin_1", "encodings.ascii")

#: Most lines that may be cut off the end of a reply until the rest is a program.
CUT = 200

#: Most bytes of a child's answer.
ANSWER = 1 << 16
#: Seconds between two looks at a child that has not ended.
STEP = 0.05
#: Times a wall-clock limit that a program may take on a machine whose processors are busy with others.
BUSY = 10
#: User and group id that root changes to: that of the user "nobody".
NOBODY = 65534
#: The one descriptor that a child can write its answer to.
_OUT = 3


def serve() -> None:
    """Answer requests until the input ends.

    The jail's folder is removed first, so that nothing can be left in it. The process's arguments
    are how many seconds a program may sleep, and how many it may take in all.
    """
    sleep, wall = map(int, sys.argv[1:])
    os.rmdir(os.getcwd())
    for name in (*OFFERED, *_QUIETLY):
        __import__(name)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    waiting = select.poll()
    waiting.register(0, select.POLLIN)
    for number in itertools.count(1):
        if not waiting.poll()[0][1] & select.POLLIN:
            return  # the caller has closed the pipe, and all requests were read
        _one(number, sleep, wall)


def _one(number: int, sleep: int, wall: int) -> None:
    """Run one program in a child, wait for it and pass on what it wrote."""
    answer = os.memfd_create("answer")
    jail = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            _locked(number, answer, jail)
        except BaseException as error:
            os.write(_OUT, json.dumps({"jail": f"{type(error).__name__}: {error}"}).encode())
        finally:
            os._exit(0)
    how = _ended(child, sleep, wall)
    size = os.fstat(answer).st_size
    if size > ANSWER:
        how, size = "answered too much", 0
    os.write(1, json.dumps([number, {"how": how, "size": size}]).encode() + b"\n")
    sent = 0
    while sent < size:
        sent += os.sendfile(1, answer, sent, size - sent)
    os.close(answer)


def _ended(child: int, sleep: int, wall: int) -> str:
    """Wait for a child; kill it if it takes too long. Return how it was ended; "" if by itself.

    What it waited for a processor is not counted, up to `BUSY` times `wall`: it is no fault of its own.
    """
    began, asleep = time.monotonic(), 0.0
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return _death(os.WTERMSIG(status)) if os.WIFSIGNALED(status) else ""
        passed = time.monotonic() - began
        late = passed > wall and (passed - _waited(child) > wall or passed > BUSY * wall)
        if asleep > sleep or late:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "ran out of time"
        if signal.sigtimedwait([signal.SIGCHLD], STEP) is None and _sleeps(child):
            asleep += STEP


def _sleeps(child: int) -> bool:
    """Return True if a child's program sleeps; False if it computes or waits for a processor."""
    if os.getsid(child) != child:
        return False  # it is still reading the request
    try:
        with open(f"/proc/{child}/stat", "rb") as opened:
            return opened.read().rpartition(b")")[2].split()[0] == b"S"
    except OSError:
        return False  # no /proc on this machine: only the wall clock limits the child


def _waited(child: int) -> float:
    """Return the seconds that a child has waited for a processor; 0 if the kernel does not say."""
    try:
        with open(f"/proc/{child}/schedstat", "rb") as opened:
            return int(opened.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _death(number: int) -> str:
    if number in (signal.SIGXCPU, signal.SIGKILL):
        return "ran out of time"
    return f"ended by {signal.Signals(number).name}"


def _locked(number: int, answer: int, jail: int) -> None:
    """Read the request in the child, give up all rights, run the program and write its answer."""
    seccomp.die_with_parent()
    request = _request(number, jail)
    if answer != _OUT:
        os.dup2(answer, _OUT)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.closerange(_OUT + 1, 4096)
    os.setsid()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    _limit(request["cpu"], request["memory"])
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    seccomp.die_with_parent()  # again: a change of user cleared it
    seccomp.apply()
    outcome = _run(request["program"], request["calls"])
    os.write(_OUT, json.dumps(outcome).encode())


def _request(number: int, jail: int) -> dict[str, Any]:
    """Return the request with this number; if another one was sent, kill the jail and exit.

    If the jail is gone already, the child has another parent, which must not be killed.
    """
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1 << 16)
        if not piece:
            break
        line += piece
    try:
        sent_number, request = json.loads(line)
        if sent_number == number:
            return request
    except (ValueError, TypeError):
        pass
    if os.getppid() == jail:
        os.kill(jail, signal.SIGKILL)  # later requests would not match either
    os._exit(1)


def _limit(cpu: int, memory: int) -> None:
    for what, bound in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, ANSWER + 1),
        (resource.RLIMIT_NOFILE, 16),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_AS, memory),
    ):
        resource.setrlimit(what, (bound, bound))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))


def _run(program: str, calls: list[str]) -> dict[str, Any]:
    """Run the program; return {"error": …} or {"values": [[repr, error], …]}, a pair a call."""
    random = sys.modules["random"]
    random.seed(0)
    space: dict[str, Any] = {"__name__": "program"}
    try:
        exec(_compiled(program), space)
    except BaseException as error:
        return {"error": _describe(error)}
    values: list[list[str | None]] = []
    for call in calls:
        try:
            values.append([repr(_plain(eval(compile(call, "call", "eval"), space))), None])
        except BaseException as error:
            values.append([None, _describe(error)])
    return {"values": values}


def _compiled(program: str) -> Any:
    """Compile the program without last lines that are no code: a reply is cut or ends in prose."""
    lines = program.rstrip().split("\n")
    for dropped in range(min(CUT, len(lines))):
        try:
            return compile("\n".join(lines[: len(lines) - dropped]) + "\n", "program", "exec")
        except SyntaxError:
            continue
    return compile(program, "program", "exec")


def _plain(value: Any) -> Any:
    """Return Counters, named tuples and the like as plain containers, whose `repr` is a literal."""
    if isinstance(value, dict):
        return {_plain(k): _plain(v) for k, v in value.items()}
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return kind(map(_plain, value))
    return value


def _describe(error: BaseException) -> str:
    """Return a short text for an error; safe against exceptions that the program defined badly."""
    try:
        return f"{type(error).__name__}: {error}"[:200]
    except BaseException:
        return "an exception that cannot be shown"
