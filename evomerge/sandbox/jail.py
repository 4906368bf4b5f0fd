"""The jail: reads requests from its standard input, forks a locked child for each, answers.

The process has nothing of ours: an empty environment, an empty folder, three pipes. It has loaded
what programs may import (`OFFERED`); a child then gives up files, root, and all system calls but
those of `filters`, runs the program, evaluates the given expressions in it and writes their `repr`
into a pipe. What the values should be the child never knows: they are compared on our side, so that
a program can pass only by computing them.

A request is one line of JSON: program, calls, cpu and wall (seconds), memory (bytes). An answer is
one line: {"how": "…", "said": "what the child wrote"}; how is "" where the child ended by itself.

Standard library only.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import time
from typing import Any

from evomerge.sandbox import filters

#: Modules that programs may import; nothing can be loaded later.
OFFERED = (
    "abc", "array", "base64", "bisect", "calendar", "cmath", "collections", "collections.abc",
    "contextlib", "copy", "csv", "dataclasses", "datetime", "decimal", "enum", "fractions",
    "functools", "hashlib", "heapq", "html", "io", "itertools", "json", "math", "numbers",
    "operator", "queue", "random", "re", "statistics", "string", "struct", "textwrap", "time",
    "types", "typing", "unicodedata", "uuid", "zlib",
)  # fmt: skip

#: Bytes that a child may answer with.
ANSWER = 1 << 20
#: Whom root becomes: "nobody" everywhere.
NOBODY = 65534
#: The one descriptor that a child can write its answer to.
_OUT = 3


def serve() -> None:
    """Answer requests until the input ends."""
    filters.die_with_parent()
    for name in OFFERED:
        __import__(name)
    for line in sys.stdin:
        answer = _one(json.loads(line))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _one(request: dict[str, Any]) -> dict[str, str]:
    """Run one program in a child and wait for it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _locked(request, writing)
        except BaseException as error:
            os.write(_OUT, json.dumps({"jail": f"{type(error).__name__}: {error}"}).encode())
        finally:
            os._exit(0)
    os.close(writing)
    said, how = _listen(reading, time.monotonic() + request["wall"])
    os.close(reading)
    if how:
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if not how and os.WIFSIGNALED(status):
        how = _death(os.WTERMSIG(status))
    return {"how": how, "said": said.decode("utf-8", "replace")}


def _listen(reading: int, deadline: float) -> tuple[bytes, str]:
    """What a child writes until it closes the pipe, and why we did not wait for that."""
    said = b""
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([reading], [], [], left)[0]:
            return said, "ran out of time"
        piece = os.read(reading, 1 << 16)
        if not piece:
            return said, ""
        said += piece
        if len(said) > ANSWER:
            return b"", "answered too much"


def _death(number: int) -> str:
    if number in (signal.SIGXCPU, signal.SIGKILL):
        return "ran out of time"
    return f"ended by {signal.Signals(number).name}"


def _locked(request: dict[str, Any], writing: int) -> None:
    """In the child: give everything up, then run the program."""
    os.dup2(writing, _OUT)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.closerange(_OUT + 1, 4096)
    os.setsid()
    _limit(request["cpu"], request["memory"])
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    filters.die_with_parent()
    filters.apply()
    told = _run(request["program"], request["calls"])
    os.write(_OUT, json.dumps(told).encode())


def _limit(cpu: int, memory: int) -> None:
    for what, bound in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, ANSWER),
        (resource.RLIMIT_NOFILE, 16),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_AS, memory),
    ):
        resource.setrlimit(what, (bound, bound))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))


def _run(program: str, calls: list[str]) -> dict[str, Any]:
    """{"error": …} or {"values": [[repr, error], …]}, one pair for every call."""
    random = sys.modules["random"]
    random.seed(0)
    space: dict[str, Any] = {"__name__": "program"}
    try:
        exec(compile(program, "program", "exec"), space)
    except BaseException as error:
        return {"error": _describe(error)}
    values: list[list[str | None]] = []
    for call in calls:
        try:
            values.append([repr(eval(compile(call, "call", "eval"), space)), None])
        except BaseException as error:
            values.append([None, _describe(error)])
    return {"values": values}


def _describe(error: BaseException) -> str:
    """A short text, whatever the program made of its exceptions."""
    try:
        return f"{type(error).__name__}: {error}"[:200]
    except BaseException:
        return "an exception that cannot be shown"
