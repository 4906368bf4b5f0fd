"""Tools of a task: Python in the sandbox, tables, memory stores and repositories. Errors are texts.

The memory stores are files, each replaced as a whole, so that a killed process leaves the old or the
new one:

    FOLDER/semantic.json   key → text; a key is written over
    FOLDER/episodic.json   texts in the order in which they came; the oldest is dropped if it is full
    FOLDER/working.json    a few keys; the one that was used least recently is dropped if it is full

A repository is a few Python files in memory whose lines can be changed. Files become modules in their
order, so a later one may import from earlier ones. A test is `assert CALL == VALUE`; the call is
evaluated in the last file, and the value never enters the sandbox.
"""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_forge.evaluation.sandbox.sandbox import Sandbox
from agent_forge.evaluation.verifiers import program
from agent_forge.evaluation.verifiers.program import Program
from agent_forge.tools.calculator import Calculator
from agent_forge.tools.calls import Call, Tool, ToolError, cut
from agent_forge.tools.search import Index, Search

#: Names of all tools.
NAMES = ("calc", "table", "search", "put", "get", "python", "edit", "test")


@dataclass(frozen=True)
class Answer:
    """Output of a call."""

    output: str
    #: True if the call ran without an error.
    ran: bool


@dataclass(frozen=True)
class World:
    """Data that the tools of a task read and change."""

    table: Mapping[str, str] | None = None
    documents: Sequence[str] = ()
    files: Mapping[str, str] | None = None
    #: Tests of the files: all of them must pass.
    tests: Sequence[str] = ()


class Toolbox:
    """The tools of one task over its own world."""

    def __init__(self, world: World, folder: Path, sandbox: Callable[[], Sandbox]) -> None:
        """Keep memory in the existing `folder`; `sandbox` returns where programs run."""
        self.repository = Repository(world.files or {}, sandbox)
        memory = Memory(folder)
        self.tools: dict[str, Tool] = {
            "calc": Calculator(),
            "table": Table(world.table or {}),
            "search": Search(world.documents),
            "put": Remember(memory),
            "get": Recall(memory),
            "python": Python(sandbox),
            "edit": Edit(self.repository),
            "test": Test(self.repository, world.tests),
        }

    def answer(self, call: Call) -> Answer:
        """Carry out a call. An error of the tool is a text; the output has a bounded length.

        Raises SandboxUnavailableError: that says nothing about the call.
        """
        tool = self.tools.get(call.tool)
        if tool is None:
            return Answer(cut(f"error: there is no tool {call.tool[:40]!r}"), False)
        try:
            return Answer(cut(tool.run(call.arguments)), True)
        except ToolError as error:
            return Answer(cut(f"error: {error}"), False)


def usable(names: Collection[str]) -> dict[str, Tool]:
    """Return some of the tools over an empty world, for what they tell of themselves."""

    def none() -> Sandbox:
        raise ToolError("the tool has no sandbox")

    tools = Toolbox(World(), Path(), none).tools
    return {name: tool for name, tool in tools.items() if name in names}


class Python:
    """`python: x = 3; x * x` → `9`. The program runs in the sandbox alone."""

    usage = "PROGRAM: the value of its last expression; statements are separated by ; or lines"

    def __init__(self, sandbox: Callable[[], Sandbox]) -> None:
        """Use the sandbox that `sandbox` returns, once it is needed."""
        self._sandbox = sandbox

    def run(self, arguments: str) -> str:
        """Return `repr` of the value. Raises ToolError; SandboxUnavailableError without a sandbox."""
        program, last = split(arguments)
        ran = self._sandbox().run(program, [last])
        if ran.why:
            raise ToolError(ran.why)
        if ran.values[0] is None:
            raise ToolError(str(ran.errors[0]))
        return ran.values[0]


def split(text: str) -> tuple[str, str]:
    """Return a program without its last expression, and that expression. Raises ToolError."""
    try:
        body = ast.parse(text.strip()).body
        if not body or not isinstance(body[-1], ast.Expr):
            raise ToolError("the program ends with no expression")
        whole = ast.Module(body[:-1], [])
        return ast.unparse(whole), ast.unparse(body[-1].value)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ToolError(f"not Python: {error}") from error


class Table:
    """`table: KEY` → the value."""

    usage = "KEY: the value of a key of the table"

    def __init__(self, rows: Mapping[str, str]) -> None:
        """Look up in `rows`, key → value. Blanks around a key do not count."""
        self._rows = {key.strip(): value for key, value in rows.items()}

    def run(self, arguments: str) -> str:
        """Return the value of a key. Raises ToolError for a key that is not there."""
        key = arguments.strip()
        if key not in self._rows:
            raise ToolError(f"there is no key {key[:40]!r}")
        return self._rows[key]


#: Entries of each store, and characters of a key and of a text.
FACTS, EPISODES, SLOTS = 256, 256, 8
KEY, TEXT = 64, 1_024
#: Stores by name.
STORES = ("semantic", "episodic", "working")


@dataclass(frozen=True)
class Store:
    """One store in a file: [key, text] of every entry, the oldest first."""

    file: Path
    most: int
    #: True: a full store drops its oldest entry; false: it refuses a new one.
    drops: bool

    def entries(self) -> list[tuple[str, str]]:
        """Return the entries. Raises ToolError for a file that holds none."""
        if not self.file.exists():
            return []
        try:
            pairs: Any = json.loads(self.file.read_text("utf-8"))
            return [(str(key), str(text)) for key, text in pairs]
        except (ValueError, TypeError) as error:
            raise ToolError(f"the file {self.file.name} holds no memory") from error

    def write(self, entries: Sequence[tuple[str, str]]) -> None:
        """Replace the entries, without the oldest if there are too many. Raises ToolError."""
        if len(entries) > self.most and not self.drops:
            raise ToolError(f"the memory is full: it holds {self.most} entries")
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(entries[-self.most :], ensure_ascii=False), "utf-8")
        os.replace(part, self.file)


class Memory:
    """The three stores of a folder."""

    def __init__(self, folder: Path) -> None:
        """Keep the stores in an existing folder."""
        sizes = {"semantic": FACTS, "episodic": EPISODES, "working": SLOTS}
        self._stores = {
            name: Store(folder / f"{name}.json", most, name != "semantic")
            for name, most in sizes.items()
        }

    def put(self, store: str, key: str, text: str) -> None:
        """Keep a text under a key; an episode is kept beside earlier ones with its key.

        Raises ToolError for an unknown store, an empty or too long key or text, and a full store.
        """
        key, text = key.strip(), text.strip()
        if not key or not text or len(key) > KEY or len(text) > TEXT:
            raise ToolError(f"a key has 1 to {KEY} characters, a text 1 to {TEXT}")
        entries = self._store(store).entries()
        rest = entries if store == "episodic" else [entry for entry in entries if entry[0] != key]
        self._store(store).write([*rest, (key, text)])

    def get(self, store: str, key: str) -> str:
        """Return the text of a key; of episodes, the newest. Raises ToolError if there is none."""
        key, entries = key.strip(), self._store(store).entries()
        texts = [text for name, text in entries if name == key]
        if not texts:
            raise ToolError(f"nothing is kept under {key[:40]!r}")
        if store == "working":  # it was used now
            self._store(store).write(
                [entry for entry in entries if entry[0] != key] + [(key, texts[-1])]
            )
        return texts[-1]

    def search(self, store: str, query: str, count: int = 1) -> list[str]:
        """Return up to `count` texts that fit a query, the best first."""
        entries = self._store(store).entries()
        return Index([f"{key} {text}" for key, text in entries]).best(query, count)

    def _store(self, name: str) -> Store:
        if name not in self._stores:
            raise ToolError(f"there is no memory {name[:40]!r}: there are {', '.join(STORES)}")
        return self._stores[name]


class Remember:
    """`put: KEY = TEXT` keeps a text."""

    def __init__(self, memory: Memory, store: str = "semantic") -> None:
        """Keep texts in one of the stores."""
        self._memory, self._store = memory, store
        self.usage = f"KEY = TEXT: keep a text in the {store} memory"

    def run(self, arguments: str) -> str:
        """Keep a text. Raises ToolError."""
        key, sign, text = arguments.partition("=")
        if not sign:
            raise ToolError("write KEY = TEXT")
        self._memory.put(self._store, key, text)
        return "kept"


class Recall:
    """`get: KEY` → the text that is kept under a key."""

    def __init__(self, memory: Memory, store: str = "semantic") -> None:
        """Read texts from one of the stores."""
        self._memory, self._store = memory, store
        self.usage = f"KEY: the text that the {store} memory has under a key"

    def run(self, arguments: str) -> str:
        """Return the text of a key, or the best match of its words. Raises ToolError."""
        try:
            return self._memory.get(self._store, arguments)
        except ToolError:
            texts = self._memory.search(self._store, arguments)
            if not texts:
                raise
            return texts[0]


#: Program that makes modules of files, a list of (name, source), and leaves the last one's names.
_LOAD = """
def _load(files):
    import sys
    from types import ModuleType

    for name, source in files:
        module = ModuleType(name)
        sys.modules[name] = module
        exec(compile(source, name + ".py", "exec"), module.__dict__)
    return module.__dict__


globals().update(_load({files!r}))
"""


class Repository:
    """The files of a task."""

    def __init__(self, files: Mapping[str, str], sandbox: Callable[[], Sandbox]) -> None:
        """Take copies of files, name → text. `sandbox` returns the place in which tests run."""
        self.files = dict(files)
        self._sandbox = sandbox

    def replace(self, file: str, number: int, line: str) -> None:
        """Replace a line, counted from 1; its indentation stays. Raises ToolError."""
        lines = self.files.get(file, "").splitlines()
        if file not in self.files:
            raise ToolError(f"there is no file {file[:40]!r}")
        if not 1 <= number <= len(lines):
            raise ToolError(f"{file} has lines 1 to {len(lines)}")
        old = lines[number - 1]
        lines[number - 1] = old[: len(old) - len(old.lstrip())] + line.strip()
        self.files[file] = "\n".join(lines) + "\n"

    def failing(self, tests: Sequence[str]) -> list[str]:
        """Return the tests that fail. Raises SandboxUnavailableError."""
        named = [(name.removesuffix(".py"), text) for name, text in self.files.items()]
        source = _LOAD.format(files=named)
        sandbox = self._sandbox()
        return [
            test
            for test in tests
            if not program.verify(Program(kind="program", tests=(test,)), source, "", sandbox).score
        ]


class Edit:
    """`edit: FILE LINE TEXT` replaces a line of a repository."""

    usage = "FILE LINE TEXT: replace a line of a file; its indentation stays"

    def __init__(self, repository: Repository) -> None:
        """Change the files of a repository."""
        self._repository = repository

    def run(self, arguments: str) -> str:
        """Replace a line. Raises ToolError."""
        parts = arguments.strip().split(maxsplit=2)
        if len(parts) < 3 or not (parts[1].isascii() and parts[1].isdigit()):
            raise ToolError("write FILE LINE TEXT")
        self._repository.replace(parts[0], int(parts[1][:9]), parts[2])
        return "changed"


class Test:
    """`test: all` runs the tests of a repository."""

    __test__ = False
    usage = "all: the number of tests that fail"

    def __init__(self, repository: Repository, tests: Sequence[str]) -> None:
        """Run these tests."""
        self._repository, self._tests = repository, tests

    def run(self, arguments: str) -> str:
        """Return how many tests fail. Raises SandboxUnavailableError."""
        return f"{len(self._repository.failing(self._tests))} of {len(self._tests)} tests fail"
