"""Seccomp filter: the system calls that are allowed to a program that has loaded all it needs.

The program may compute: use memory without executable pages, read the time, handle its own signals,
write to the one descriptor it has, and exit. It cannot open a file or socket, or start a process,
thread or other program: such calls fail with EPERM, so that Python raises PermissionError. The
filter is classic BPF over `struct seccomp_data` (Linux, seccomp(2)); a call of another ABI kills
the process.

Standard library only: the jail imports it.
"""

from __future__ import annotations

import ctypes
import platform
import struct

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
    """Return a machine's filter as `struct sock_filter`s. Raises KeyError for unknown machines."""
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
    """Lock this process in, irrevocably. Raises OSError if the kernel refuses."""
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
