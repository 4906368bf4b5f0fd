"""Repository: a few Python files in memory whose lines can be changed, and tests in the sandbox.

Files become modules in their order, so a later one may import from earlier ones. A test is
`assert CALL == VALUE`; the call is evaluated in the last file, and the value never enters the sandbox.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from agent_forge.evaluation.sandbox.sandbox import Sandbox
from agent_forge.evaluation.tools.calls import ToolError
from agent_forge.evaluation.verifiers import program
from agent_forge.evaluation.verifiers.program import Program

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
