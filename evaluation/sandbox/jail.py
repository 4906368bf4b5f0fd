"""Jail process: forks a locked child for every program and passes on its answer unread.

The jail has an empty environment, an empty folder and three pipes, and nothing else of the
caller's. It has loaded the modules that programs may import (`OFFERED`). For each request it forks
a child. The child reads the request from standard input and gives up files, root, and all system
calls but those of its seccomp filter. Then the child runs the program, evaluates the given
expressions in it and writes their `repr` into a file in memory. The child never knows the expected
values: the caller compares them, so that a program can pass only by computing them.

The jail itself reads neither requests nor answers: the kernel copies an answer from the child's file to
the caller's pipe. Every child begins with the jail's memory, which holds nothing of earlier programs.

A request is one line of JSON (see `runs.system.line_process`): program, calls, cpu (seconds),
memory (bytes). An answer is one line of JSON too: how ("" if the child ended by itself) and size.
After it come `size` bytes, which the child wrote.

Under the seccomp filter a program may compute: use memory without executable pages, read the time,
handle its own signals, write to the one descriptor it has, and exit. It cannot open a file or socket,
or start a process, thread or other program: such calls fail with EPERM, so that Python raises
PermissionError. The filter is classic BPF over `struct seccomp_data` (Linux, seccomp(2)); a call of
another ABI kills the process.

Standard library only.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import platform
import resource
import select
import signal
import struct
import sys
import time
from typing import Any

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
    """Run the program of one request in a child, and write the child's answer to standard output."""
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
    """Wait for a child and kill it if it takes too long. Return how it was ended; '' if by itself.

    Its waits for a processor do not count, up to `BUSY` times `wall`: they are not the program's fault.
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
    """Return True if /proc shows that a child sleeps in its program; else, or if unknown, False."""
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
    die_with_parent()
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
    die_with_parent()  # again: a change of user cleared it
    apply()
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


def _run(program: str, calls: list[str]) -> dict[str, object]:
    """Return {"error": …} or {"values": [[repr, error] of each call]}, after running the program."""
    random = sys.modules["random"]
    random.seed(0)
    space: dict[str, object] = {"__name__": "program"}
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
    """Return the program's code object, without last lines that are no code (cut code, prose)."""
    lines = program.rstrip().split("\n")
    for dropped in range(min(CUT, len(lines))):
        try:
            return compile("\n".join(lines[: len(lines) - dropped]) + "\n", "program", "exec")
        except SyntaxError:
            continue
    return compile(program, "program", "exec")


def _plain(value: object) -> object:
    """Return a value whose `repr` is a literal: Counters, named tuples and the like become plain."""
    if isinstance(value, dict):
        return {_plain(k): _plain(v) for k, v in value.items()}
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return kind(map(_plain, value))
    return value


def _describe(error: BaseException) -> str:
    """Return an error's type and message; safe against exceptions that the program defined badly."""
    try:
        return f"{type(error).__name__}: {error}"[:200]
    except BaseException:
        return "an exception that cannot be shown"


#: AUDIT_ARCH of each machine, and the numbers of its allowed calls (Linux, unistd.h).
ARCHITECTURES = {
    "x86_64": (
        0xC000003E,
        {
            "read": 0,
            "write": 1,
            "close": 3,
            "fstat": 5,
            "lseek": 8,
            "mmap": 9,
            "mprotect": 10,
            "munmap": 11,
            "brk": 12,
            "rt_sigaction": 13,
            "rt_sigprocmask": 14,
            "rt_sigreturn": 15,
            "sched_yield": 24,
            "mremap": 25,
            "madvise": 28,
            "nanosleep": 35,
            "getpid": 39,
            "exit": 60,
            "gettimeofday": 96,
            "getuid": 102,
            "getgid": 104,
            "geteuid": 107,
            "getegid": 108,
            "sigaltstack": 131,
            "gettid": 186,
            "time": 201,
            "futex": 202,
            "restart_syscall": 219,
            "clock_gettime": 228,
            "clock_getres": 229,
            "clock_nanosleep": 230,
            "exit_group": 231,
            "getrandom": 318,
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            "read": 63,
            "write": 64,
            "close": 57,
            "fstat": 80,
            "lseek": 62,
            "mmap": 222,
            "mprotect": 226,
            "munmap": 215,
            "brk": 214,
            "rt_sigaction": 134,
            "rt_sigprocmask": 135,
            "rt_sigreturn": 139,
            "sched_yield": 124,
            "mremap": 216,
            "madvise": 233,
            "nanosleep": 101,
            "getpid": 172,
            "exit": 93,
            "gettimeofday": 169,
            "getuid": 174,
            "getgid": 176,
            "geteuid": 175,
            "getegid": 177,
            "sigaltstack": 132,
            "gettid": 178,
            "futex": 98,
            "restart_syscall": 128,
            "clock_gettime": 113,
            "clock_getres": 114,
            "clock_nanosleep": 115,
            "exit_group": 94,
            "getrandom": 278,
        },
    ),
}

#: Calls that are allowed only without PROT_EXEC in their third argument.
GUARDED = ("mmap", "mprotect")
PROT_EXEC = 4

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _DENY = 0x7FFF0000, 0x80000000, 0x00050000 | 1  # SECCOMP_RET_ERRNO | EPERM
_NUMBER, _ARCH, _THIRD = 0, 4, 32  # offsets in seccomp_data
#: x86-64 numbers from here on are of the x32 ABI.
_X32 = 0x40000000

_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _FILTER = 22, 38, 2


def program(machine: str) -> bytes:
    """Return the bytes of a machine's seccomp filter (`struct sock_filter`s). Raises KeyError."""
    arch, calls = ARCHITECTURES[machine]
    steps = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, arch),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL),
    ]
    for name, number in calls.items():
        if name not in GUARDED:
            steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    for name in GUARDED:
        steps += [
            (_EQUAL, 0, 4, calls[name]),
            (_LOAD, 0, 0, _THIRD),
            (_ANY_BIT, 0, 1, PROT_EXEC),
            (_RETURN, 0, 0, _DENY),
            (_RETURN, 0, 0, _ALLOW),
        ]
    steps.append((_RETURN, 0, 0, _DENY))
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]


def apply() -> None:
    """Lock this process in with the seccomp filter, for good. Raises OSError if the kernel refuses."""
    steps = program(platform.machine())
    buffer = ctypes.create_string_buffer(steps, len(steps))
    filter_program = _Program(len(steps) // 8, ctypes.addressof(buffer))
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_SET_SECCOMP, _FILTER, ctypes.byref(filter_program))


def die_with_parent() -> None:
    """Tell the kernel to kill this process when its parent ends. A change of user clears this."""
    _prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL


def _prctl(option: int, first: int, second: object = 0) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    word = ctypes.c_ulong
    second = word(0) if second == 0 else second
    if libc.prctl(option, word(first), second, word(0), word(0)):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}) failed with errno {number}")
