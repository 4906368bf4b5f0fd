"""The jail: reads requests from its standard input, forks a locked child for each, answers.

The process has nothing of ours: an empty environment, an empty folder, three pipes. It has loaded
what programs may import (`OFFERED`); a child then gives up files, root, and all system calls but
those of `filters`, runs the program, evaluates the given expressions in it and writes their `repr`
into a pipe. What the values should be the child never knows: they are compared on our side, so that
a program can pass only by computing them.

A request is one line of JSON (see `evomerge.asking`): program, calls, cpu and wall (seconds), memory
(bytes). An answer is one, too: how ("" where the child ended by itself) and said, what it wrote.

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

#: Loaded too, because some of the above load it when it is first needed.
_QUIETLY = ("_strptime", "pprint", "traceback", "encodings.latin_1", "encodings.ascii")

#: Lines at its end that a program may be shortened by until it is one.
CUT = 200

#: Bytes that a child may answer with.
ANSWER = 1 << 16
#: Whom root becomes: "nobody" everywhere.
NOBODY = 65534
#: The one descriptor that a child can write its answer to.
_OUT = 3


def serve() -> None:
    """Answer requests until the input ends. The folder is gone at once: nothing can be left in it."""
    os.rmdir(os.getcwd())
    for name in (*OFFERED, *_QUIETLY):
        __import__(name)
    for line in sys.stdin:
        number, request = json.loads(line)
        sys.stdout.write(json.dumps([number, _one(request)]) + "\n")
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
    deadline = time.monotonic() + request["wall"]
    said, how = _listen(reading, deadline)
    os.close(reading)
    status = None if how else _ended(child, deadline)
    if status is None:
        how = how or "ran out of time"
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    elif os.WIFSIGNALED(status):
        how = _death(os.WTERMSIG(status))
    return {"how": how, "said": said.decode("utf-8", "replace")}


def _ended(child: int, deadline: float) -> int | None:
    """How a child that said all it had to say has ended; None where it goes on."""
    pause = 0.0005
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        if time.monotonic() > deadline:
            return None
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


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
    """The program, without lines at its end that are none: a reply is cut, or goes on in prose."""
    lines = program.rstrip().split("\n")
    for dropped in range(min(CUT, len(lines))):
        try:
            return compile("\n".join(lines[: len(lines) - dropped]) + "\n", "program", "exec")
        except SyntaxError:
            continue
    return compile(program, "program", "exec")


def _plain(value: Any) -> Any:
    """Counters, named tuples and the like as what they are kinds of, whose text is a literal."""
    if isinstance(value, dict):
        return {_plain(k): _plain(v) for k, v in value.items()}
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return kind(map(_plain, value))
    return value


def _describe(error: BaseException) -> str:
    """A short text, whatever the program made of its exceptions."""
    try:
        return f"{type(error).__name__}: {error}"[:200]
    except BaseException:
        return "an exception that cannot be shown"
