"""Programs of models: what they may do, what they may not, and that nothing of it reaches us."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_forge.evaluation.sandbox import jail
from agent_forge.evaluation.sandbox import sandbox as sandbox_sandbox
from agent_forge.evaluation.sandbox.sandbox import Sandbox, SandboxUnavailableError

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """A jail with a second of processor time for each program."""
    with Sandbox.open(cpu=1, memory=256 << 20) as opened:
        yield opened


def test_a_program_computes(sandbox: Sandbox):
    """Values come back as they are written in Python; a call that raises is told apart."""
    ran = sandbox.run(
        "from math import gcd\ndef f(a, b):\n    return {'g': gcd(a, b), 'pair': (a, b)}",
        ["f(12, 18)", "f(1)", "'é'"],
    )
    assert ran.values == ("{'g': 6, 'pair': (12, 18)}", None, "'é'")
    assert ran.errors[1] is not None
    assert "missing 1 required positional argument" in ran.errors[1]
    assert ran.why == ""


def test_standard_modules_are_offered(sandbox: Sandbox):
    """What ordinary solutions import is there; the rest cannot be loaded."""
    imports = "import re, json, heapq, itertools, collections, datetime, random, string, decimal"
    assert sandbox.run(imports, ["re.sub('a', 'b', 'cat')"]).values == ("'cbt'",)
    assert "ModuleNotFoundError" in sandbox.run("import socket", ["1"]).why


HOSTILE = {
    "fork bomb": ("import os\nwhile True:\n    os.fork()", "PermissionError"),
    "threads": ("import _thread\n_thread.start_new_thread(print, ())", "RuntimeError"),
    "infinite loop": ("while True: pass", "ran out of time"),
    "loop that ignores its end": (
        "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
        "ran out of time",
    ),
    "memory": ("a = 'x'\nwhile True: a += a", "MemoryError"),
    "file for reading": ("open('/etc/passwd').read()", "PermissionError"),
    "path escape": ("open('../../../../../../etc/shadow').read()", "PermissionError"),
    "file for writing": ("open('here', 'w').write('x')", "PermissionError"),
    "another program": ("import os\nos.execv('/bin/sh', ['sh'])", "PermissionError"),
    "a shell": ("import os\nos.system('true')\nraise ValueError(os.system('true'))", "ValueError"),
    "network": ("import ctypes\nraise ValueError(ctypes.CDLL(None).socket(2, 1, 0))", "ValueError: -1"),
    "killing its parent": ("import os\nos.kill(os.getppid(), 9)", "PermissionError"),
    "killing everybody": ("import os\nos.kill(-1, 9)", "PermissionError"),
    "machine code": (
        "import ctypes\n"
        "p = ctypes.CDLL(None, use_errno=True)\n"
        "raise ValueError(p.mmap(None, 4096, 7, 0x22, -1, 0))",
        "ValueError: -1",
    ),
    "a crash": ("import ctypes\nctypes.string_at(0)", "SIGSEGV"),
    "leaving early": ("import os\nos._exit(0)", "ended without an answer"),
    "leaving politely": ("raise SystemExit(0)", "SystemExit"),
    "a flood of answers": ("import os\nwhile True: os.write(3, b'x' * 65536)", "answered too much"),
    "an answer that is none": ("import os\nos.write(3, b'[1, 2')\nos._exit(0)", "without an answer"),
    "answers of the wrong kind": (
        "import os\nos.write(3, b'{\"values\": 7}')\nos._exit(0)",
        "without an answer",
    ),
    "an exception that raises": (
        "class E(Exception):\n    def __str__(self): raise ValueError\nraise E",
        "cannot be shown",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_program_is_contained(sandbox: Sandbox, name: str):
    """It ends, with a reason, and the next program is none the worse."""
    program, why = HOSTILE[name]
    ran = sandbox.run(program, ["1"])
    assert why in ran.why
    assert ran.values == (None,)
    assert sandbox.run("x = 1", ["x + 1"]).values == ("2",)


def test_printing_without_end_goes_nowhere(sandbox: Sandbox):
    """Neither to our output nor to memory; only processor time bounds it."""
    assert sandbox.run("print('x' * 10**7)", ["1"]).values == ("1",)
    assert sandbox.run("while True: print('x' * 65536)", ["1"]).why == "ran out of time"


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    """A jail with a second of time asleep, whose other limits no test waits for."""
    monkeypatch.setattr(sandbox_sandbox, "PATIENCE", 3600)
    with Sandbox(cpu=1) as opened:
        yield opened


def test_a_program_that_sleeps_meets_the_clock(brief: Sandbox):
    """Sleeping takes no processor time; it cost ten times as long as computing without end."""
    assert brief.run("import time\ntime.sleep(7200)", ["1"]).why == "ran out of time"
    assert brief.run("import time\ntime.sleep(0.3)", ["1"]).values == ("1",)


def test_a_program_that_naps_for_ever_meets_the_clock(brief: Sandbox):
    """Naps are added up, however short they are."""
    naps = "import time\nwhile True: time.sleep(0.2)"
    assert brief.run(naps, ["1"]).why == "ran out of time"


@pytest.mark.parametrize(
    ("waited", "how"),
    [(lambda passed: 0.0, "ran out of time"), (lambda passed: passed, "")],
    ids=["idle", "without a processor"],
)
def test_a_wait_for_a_processor_is_no_fault_of_a_program(
    monkeypatch: pytest.MonkeyPatch, waited: Callable[[float], float], how: str
):
    """At a load of twenty a program that needs a second and a half had fifteen, and lost them."""
    began = time.monotonic()
    monkeypatch.setattr(jail, "_waited", lambda child: waited(time.monotonic() - began))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    try:
        child = subprocess.Popen(["sleep", "1"])
        assert jail._ended(child.pid, 3600, 0.2) == how
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    child.returncode = 0


def test_the_kernel_says_how_long_a_program_waited():
    """Of this process some time; of none that is gone."""
    assert jail._waited(os.getpid()) > 0
    assert jail._waited(1 << 30) == 0


@pytest.mark.slow
@pytest.mark.parametrize("said", ["", 'os.write(3, b\'{"values": [["1", null]]}\')\n'])
def test_a_program_that_closes_its_pipe_and_sleeps_meets_the_clock_too(said: str):
    """It has nothing more to say and does not end: the jail must go on."""
    with Sandbox(cpu=1) as short:
        program = f"import os, time\n{said}os.close(3)\ntime.sleep(1e6)"
        assert short.run(program, ["1"]).why == "ran out of time"
        assert short.run("x = 2", ["x"]).values == ("2",)


def test_an_interrupted_question_is_not_answered_later(monkeypatch: pytest.MonkeyPatch):
    """Ctrl-C between question and answer: the next program must not get that answer."""
    opened = Sandbox.open()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("agent_forge.runs.system.line_process.select.select", interrupted)
        with pytest.raises(KeyboardInterrupt):
            opened.run("x = 1", ["x"])
    with pytest.raises(SandboxUnavailableError):
        opened.run("x = 2", ["x"])


def test_a_sandbox_outlives_the_thread_that_opened_it():
    """Workers have threads."""
    found: list[Sandbox] = []
    thread = threading.Thread(target=lambda: found.append(Sandbox.open()))
    thread.start()
    thread.join()
    assert found[0].run("x = 3", ["x"]).values == ("3",)


def test_dates_can_be_parsed(sandbox: Sandbox):
    """What a module loads only when it is used must be there as well."""
    call = "datetime.strptime('2024-02-29', '%Y-%m-%d').isoformat()"
    assert sandbox.run("from datetime import datetime", [call]).values == ("'2024-02-29T00:00:00'",)


def test_two_programs_share_nothing(sandbox: Sandbox):
    """Not even a module that one of them has changed."""
    sandbox.run("import math\nmath.pi = 3", ["1"])
    assert sandbox.run("import math", ["math.pi == 3"]).values == ("False",)


#: Finds `SECRET-` or `ANSWER-` and thirty digits anywhere in its own memory. A page that
#: is not there is told by EFAULT of a call that does nothing else.
SCAN = """
import ctypes, re, sys
libc = ctypes.CDLL(None, use_errno=True)
pattern = re.compile(rb"(?:SECRET|ANSWER)-[0-9]{30}")
def there(page):
    ctypes.set_errno(0)
    libc.syscall(14, 99, ctypes.c_void_p(page), None, 8)  # rt_sigprocmask of no known kind
    return ctypes.get_errno() == 22
def scan():
    libc.sbrk.restype = ctypes.c_void_p
    found, seen = set(), 0
    near = [libc.sbrk(0), id(found), id(sys), id(scan), id(pattern), ctypes.addressof(libc.syscall)]
    near += [id(bytearray(9 ** n)) for n in range(1, 7)]
    pages = {p for n in near for p in range((n >> 12 << 12) - (16 << 20), n + (16 << 20), 4096)}
    for page in sorted(pages):
        if there(page):
            seen += 1
            found.update(pattern.findall(ctypes.string_at(page, 4096)))
    return seen > 500, sorted(found)
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of the call is x86-64's")
def test_a_program_finds_nothing_of_an_earlier_one_in_its_memory():
    """A model made for it could pass tests by what others answered; and programs are others' text."""
    digits = "1234567890" * 3
    secret = f"# SECRET-{digits}\ndef f(n): return 'ANSWER-' + '1234567890' * n\n"
    with Sandbox(cpu=20) as shared:
        own = shared.run(secret + SCAN, ["f(3)", "scan()"])
        assert own.values[1] is not None, own
        assert "SECRET" in own.values[1], "the search finds what is there"
        for _ in range(3):
            assert shared.run(secret, ["f(3)"]).values == (f"'ANSWER-{digits}'",)
        assert shared.run(SCAN, ["scan()"]).values == ("(True, [])",)


def test_an_answer_may_be_as_large_as_is_allowed_and_no_larger(sandbox: Sandbox):
    """It is passed on by its size, through pipes that hold less."""
    most = jail.ANSWER - 100
    assert sandbox.run("x = 1", [f"'a' * {most}"]).values == ("'" + "a" * most + "'",)
    assert sandbox.run("x = 1", [f"'a' * {jail.ANSWER}"]).why == "answered too much"
    assert sandbox.run("x = 1", ["x"]).values == ("1",)


def test_a_long_program_is_read_whole(sandbox: Sandbox):
    """The child reads it from a pipe that holds less."""
    assert sandbox.run(f"x = {'a' * 300_000!r}", ["len(x)"]).values == ("300000",)


def test_the_same_program_gives_the_same_values(sandbox: Sandbox):
    """Hashes and the random module start alike in every jail."""
    asked = ("import random", ["random.random()", "hash('a')", "{'b', 'a', 'c'}"])
    first = sandbox.run(*asked)
    with Sandbox.open() as other:
        assert other.run(*asked) == sandbox.run(*asked) == first


def test_nothing_of_ours_is_inherited(sandbox: Sandbox):
    """Environment, arguments, descriptors, user."""
    os.environ["FORGE_SECRET_OF_A_TEST"] = "s"
    try:
        with Sandbox.open() as fresh:
            ran = fresh.run("import os", ["dict(os.environ)", "os.getuid()"])
    finally:
        del os.environ["FORGE_SECRET_OF_A_TEST"]
    assert "FORGE_SECRET" not in str(ran.values[0])
    own = os.getuid()
    assert ran.values[1] == str(own if own else 65534)
    with tempfile.TemporaryFile() as ours:
        ours.write(b"secret")
        ours.flush()
        os.set_inheritable(ours.fileno(), True)
        with Sandbox.open() as fresh:
            reads = "[n for n in range(3, 64) if can(n)]"
            program = (
                "import os\ndef can(n):\n    try:\n        os.fstat(n)\n        return n != 3\n"
                "    except OSError:\n        return False"
            )
            assert fresh.run(program, [reads]).values == ("[]",)


def test_closing_leaves_no_process_and_nobody_leaves_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Also when nobody closes it: the object's end is the jail's. The folder is gone while it runs."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    opened = Sandbox.open()
    process = opened._jail.process
    assert os.readlink(f"/proc/{process.pid}/cwd").startswith(str(tmp_path))
    assert [*tmp_path.iterdir()] == []
    assert opened.run("x = 1", ["x"]).values == ("1",)
    del opened
    assert process.poll() is not None


def test_a_jail_that_was_killed_is_an_error_not_a_wrong_answer():
    """An item is never scored by a sandbox that is not there."""
    opened = Sandbox.open()
    opened._jail.process.kill()
    with pytest.raises(SandboxUnavailableError, match="process has ended"):
        opened.run("x = 1", ["x"])
    opened.close()


WATCHED = """
import array, ctypes, fcntl, os, signal, sys, termios, time
sys.path.insert(0, {root!r})
from agent_forge.evaluation.sandbox.sandbox import Sandbox
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
signal.alarm(600)
opened = Sandbox()
pipe = opened._jail.process.stdin
pipe.write(b'[1, {{"program"')
pipe.flush()
left = array.array("i", [1])
while left[0]:
    time.sleep(0.01)
    fcntl.ioctl(pipe, termios.FIONREAD, left)
opened.close()
pid, status = os.waitpid(-1, 0)
print(os.waitstatus_to_exitcode(status))
"""


def test_a_child_ends_no_process_but_its_jail():
    """One that outlives its jail has another parent: the service that reaps orphans, say."""
    code = WATCHED.format(root=str(ROOT))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "-9\n", "the kernel ended it with its jail"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86-64")
@pytest.mark.parametrize(
    ("call", "number", "named"),
    [("openat", 257, "read"), ("socket", 41, "connect"), ("kill", 62, "kill")],
)
def test_a_filter_with_a_hole_is_found_when_it_opens(
    call: str, number: int, named: str, monkeypatch: pytest.MonkeyPatch
):
    """The trial at the start is a check that can fail."""
    hole = f"filters.ARCHITECTURES['x86_64'][1][{call!r}] = {number}; "
    start = sandbox_sandbox._START.replace("jail.serve()", "")
    start += f"from agent_forge.evaluation.sandbox import jail as filters; {hole}jail.serve()"
    monkeypatch.setattr(sandbox_sandbox, "_START", start)
    with pytest.raises(SandboxUnavailableError, match=rf"a program can .*{named}"):
        Sandbox.open()


def test_without_seccomp_nothing_is_run(monkeypatch: pytest.MonkeyPatch):
    """A machine that has no table: the reason is said, the program is not run loosely."""
    start = sandbox_sandbox._START.replace("; jail.serve()", "")
    start += "; jail.ARCHITECTURES.clear()"
    start += "; jail.serve()"
    monkeypatch.setattr(sandbox_sandbox, "_START", start)
    with pytest.raises(SandboxUnavailableError, match="does not hold on this machine: KeyError"):
        Sandbox.open()


def test_other_systems_are_told(monkeypatch: pytest.MonkeyPatch):
    """The lock is Linux's."""
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SandboxUnavailableError, match="on Linux only, this is darwin"):
        Sandbox.open()


def test_filters_of_both_machines_are_whole():
    """Every name is in both tables, but for `time`, which arm64 never had; steps are 8 bytes."""
    (_, first), (_, second) = jail.ARCHITECTURES.values()
    assert set(first) - {"time"} == set(second)
    for machine in jail.ARCHITECTURES:
        assert len(jail.program(machine)) % 8 == 0


AS_OTHER = """
import sys
sys.path.insert(0, {root!r})
from agent_forge.evaluation.sandbox.sandbox import Sandbox
with Sandbox.open(cpu=1) as s:
    print(s.run("import os", ["os.getuid()"]).values[0], s.run("while 1: pass", []).why)
with Sandbox.open(cpu=10) as s:  # to fill the memory takes more than a second on a busy machine
    for program in {programs!r}:
        print(s.run(program, ["1"]).why)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="the tests above ran as an ordinary user already")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv changes the user here")
def test_an_ordinary_user_has_the_same_lock():
    """Not being root needs no privilege and gives none: the same programs, contained alike.

    The user may read what root may, because the interpreter may lie in root's home.
    """
    tried = {program: why for program, why in HOSTILE.values() if "time" not in why}
    code = AS_OTHER.format(root=str(ROOT), programs=list(tried))
    user = ["--reuid=65533", "--regid=65533", "--clear-groups"]
    reading = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
    done = subprocess.run(
        ["setpriv", *user, *reading, sys.executable, "-c", code],
        cwd="/",
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    assert first == "65533 ran out of time"
    for said, why in zip(rest, tried.values(), strict=True):
        assert why in said
