"""Tools of a task, and the data that they work on: a table, documents, memory and a repository.

The memory stores are files, each replaced as a whole, so that a killed process leaves the old or the
new one:

    FOLDER/semantic.json   key → text; a new text replaces the old one of its key
    FOLDER/episodic.json   texts in the order in which they came; a full store drops the oldest
    FOLDER/working.json    a few keys; a full store drops the least recently used

A repository is a few Python files in memory whose lines can be changed. Files become modules in their
order, so a later file may import from earlier ones. A test is `assert CALL == VALUE`; the call is
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
from agent_forge.tools.search import Index, SearchTool

#: Names of all tools.
NAMES = ("calc", "table", "search", "put", "get", "python", "edit", "test")


@dataclass(frozen=True)
class ToolOutput:
    """Outcome of a call."""

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
            "table": TableTool(world.table or {}),
            "search": SearchTool(world.documents),
            "put": Remember(memory),
            "get": RecallTool(memory),
            "python": Python(sandbox),
            "edit": Edit(self.repository),
            "test": RunTests(self.repository, world.tests),
        }

    def answer(self, call: Call) -> ToolOutput:
        """Carry out a call; return its output, or its error as text, cut to a limit.

        Raises SandboxUnavailableError, which does not mean that the call was wrong.
        """
        tool = self.tools.get(call.tool)
        if tool is None:
            return ToolOutput(cut(f"error: there is no tool {call.tool[:40]!r}"), False)
        try:
            return ToolOutput(cut(tool.run(call.arguments)), True)
        except ToolError as error:
            return ToolOutput(cut(f"error: {error}"), False)


def usable(names: Collection[str]) -> dict[str, Tool]:
    """Return {name: tool} of `names` over an empty world; only their `usage` is of use."""

    def none() -> Sandbox:
        raise ToolError("the tool has no sandbox")

    tools = Toolbox(World(), Path(), none).tools
    return {name: tool for name, tool in tools.items() if name in names}


class Python:
    """Tool `python`: `python: x = 3; x * x` → `9`. The program runs in the sandbox."""

    usage = "PROGRAM: the value of its last expression; statements are separated by ; or lines"

    def __init__(self, sandbox: Callable[[], Sandbox]) -> None:
        """Store `sandbox`, which is called for each program and returns where it runs."""
        self._sandbox = sandbox

    def run(self, arguments: str) -> str:
        """Return the last expression's `repr`. Raises ToolError, SandboxUnavailableError."""
        program, last = split(arguments)
        ran = self._sandbox().run(program, [last])
        if ran.why:
            raise ToolError(ran.why)
        if ran.values[0] is None:
            raise ToolError(str(ran.errors[0]))
        return ran.values[0]


def split(text: str) -> tuple[str, str]:
    """Return (program without its last expression, that expression) as source. Raises ToolError."""
    try:
        body = ast.parse(text.strip()).body
        if not body or not isinstance(body[-1], ast.Expr):
            raise ToolError("the program ends with no expression")
        whole = ast.Module(body[:-1], [])
        return ast.unparse(whole), ast.unparse(body[-1].value)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ToolError(f"not Python: {error}") from error


class TableTool:
    """Tool `table`: `table: KEY` → the value."""

    usage = "KEY: the value of a key of the table"

    def __init__(self, rows: Mapping[str, str]) -> None:
        """Store `rows`, key → value, with blanks around the keys removed."""
        self._rows = {key.strip(): value for key, value in rows.items()}

    def run(self, arguments: str) -> str:
        """Return the value of a key. Raises ToolError for a missing key."""
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
    """Memory store in a file, as a list of [key, text], the oldest entry first."""

    file: Path
    most: int
    #: True: a full store drops its oldest entry; false: it refuses a new one.
    drops: bool

    def entries(self) -> list[tuple[str, str]]:
        """Return (key, text) of all entries, the oldest first. Raises ToolError for a broken file."""
        if not self.file.exists():
            return []
        try:
            pairs: Any = json.loads(self.file.read_text("utf-8"))
            return [(str(key), str(text)) for key, text in pairs]
        except (ValueError, TypeError) as error:
            raise ToolError(f"the file {self.file.name} holds no memory") from error

    def write(self, entries: Sequence[tuple[str, str]]) -> None:
        """Replace the file by these entries, or the newest `most` of them. Raises ToolError."""
        if len(entries) > self.most and not self.drops:
            raise ToolError(f"the memory is full: it holds {self.most} entries")
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(entries[-self.most :], ensure_ascii=False), "utf-8")
        os.replace(part, self.file)


class Memory:
    """The three memory stores of a folder."""

    def __init__(self, folder: Path) -> None:
        """Use the stores of an existing folder."""
        sizes = {"semantic": FACTS, "episodic": EPISODES, "working": SLOTS}
        self._stores = {
            name: Store(folder / f"{name}.json", most, name != "semantic")
            for name, most in sizes.items()
        }

    def put(self, store: str, key: str, text: str) -> None:
        """Store a text under a key, in place of the old one; an episode does not replace earlier ones.

        Raises ToolError for an unknown store, an empty or too long key or text, and a full store.
        """
        key, text = key.strip(), text.strip()
        if not key or not text or len(key) > KEY or len(text) > TEXT:
            raise ToolError(f"a key has 1 to {KEY} characters, a text 1 to {TEXT}")
        entries = self._store(store).entries()
        rest = entries if store == "episodic" else [entry for entry in entries if entry[0] != key]
        self._store(store).write([*rest, (key, text)])

    def get(self, store: str, key: str) -> str:
        """Return a key's newest text; the working memory makes it its newest. Raises ToolError."""
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
        """Return up to `count` entries, as "KEY TEXT", that share a word with a query, best first."""
        entries = self._store(store).entries()
        return Index([f"{key} {text}" for key, text in entries]).best(query, count)

    def _store(self, name: str) -> Store:
        if name not in self._stores:
            raise ToolError(f"there is no memory {name[:40]!r}: there are {', '.join(STORES)}")
        return self._stores[name]


class Remember:
    """Tool `put`: `put: KEY = TEXT` stores a text."""

    def __init__(self, memory: Memory, store: str = "semantic") -> None:
        """Store the memory and the name of the memory store to write to."""
        self._memory, self._store = memory, store
        self.usage = f"KEY = TEXT: keep a text in the {store} memory"

    def run(self, arguments: str) -> str:
        """Store the text of `KEY = TEXT`; return "kept". Raises ToolError."""
        key, sign, text = arguments.partition("=")
        if not sign:
            raise ToolError("write KEY = TEXT")
        self._memory.put(self._store, key, text)
        return "kept"


class RecallTool:
    """Tool `get`: `get: KEY` → the text of a key."""

    def __init__(self, memory: Memory, store: str = "semantic") -> None:
        """Store the memory and the name of the memory store to read from."""
        self._memory, self._store = memory, store
        self.usage = f"KEY: the text that the {store} memory has under a key"

    def run(self, arguments: str) -> str:
        """Return a key's text, or else "KEY TEXT" of the best match of its words. Raises ToolError."""
        try:
            return self._memory.get(self._store, arguments)
        except ToolError:
            texts = self._memory.search(self._store, arguments)
            if not texts:
                raise
            return texts[0]


#: Program that makes modules of `files`, a list of (name, source), and defines the last one's names.
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
    """Repository of a task: its Python files, held in memory."""

    def __init__(self, files: Mapping[str, str], sandbox: Callable[[], Sandbox]) -> None:
        """Copy `files`, name → text. `sandbox` returns the sandbox in which tests run."""
        self.files = dict(files)
        self._sandbox = sandbox

    def replace(self, file: str, number: int, line: str) -> None:
        """Replace line `number` (from 1) of a file; its indentation stays. Raises ToolError."""
        lines = self.files.get(file, "").splitlines()
        if file not in self.files:
            raise ToolError(f"there is no file {file[:40]!r}")
        if not 1 <= number <= len(lines):
            raise ToolError(f"{file} has lines 1 to {len(lines)}")
        old = lines[number - 1]
        lines[number - 1] = old[: len(old) - len(old.lstrip())] + line.strip()
        self.files[file] = "\n".join(lines) + "\n"

    def failing(self, tests: Sequence[str]) -> list[str]:
        """Run tests; return those that fail. Raises SandboxUnavailableError."""
        named = [(name.removesuffix(".py"), text) for name, text in self.files.items()]
        source = _LOAD.format(files=named)
        sandbox = self._sandbox()
        return [
            test
            for test in tests
            if not program.verify(Program(kind="program", tests=(test,)), source, "", sandbox).score
        ]


class Edit:
    """Tool `edit`: `edit: FILE LINE TEXT` replaces a line of a repository."""

    usage = "FILE LINE TEXT: replace a line of a file; its indentation stays"

    def __init__(self, repository: Repository) -> None:
        """Store the repository whose lines the tool replaces."""
        self._repository = repository

    def run(self, arguments: str) -> str:
        """Replace the line of `FILE LINE TEXT`; return "changed". Raises ToolError."""
        parts = arguments.strip().split(maxsplit=2)
        if len(parts) < 3 or not (parts[1].isascii() and parts[1].isdigit()):
            raise ToolError("write FILE LINE TEXT")
        self._repository.replace(parts[0], int(parts[1][:9]), parts[2])
        return "changed"


class RunTests:
    """Tool `test`: `test: all` runs the tests of a repository."""

    __test__ = False
    usage = "all: the number of tests that fail"

    def __init__(self, repository: Repository, tests: Sequence[str]) -> None:
        """Store the repository and its tests."""
        self._repository, self._tests = repository, tests

    def run(self, arguments: str) -> str:
        """Run the tests; return "N of M tests fail". Raises SandboxUnavailableError."""
        return f"{len(self._repository.failing(self._tests))} of {len(self._tests)} tests fail"
