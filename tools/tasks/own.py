"""Family `own`: the user's repairs: files, an issue, tests that fail before the fix, and the fix.

The parts are those of an item of SWE-bench (arXiv 2310.06770): problem statement, repository, tests
that fail before and pass after, and the edits of a solution. An item needs nothing from outside: the
sandbox has no files, no network and no packages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from agent_forge.evaluation.data.slices import Slice, slice_of
from agent_forge.evaluation.sandbox.sandbox import Sandbox
from agent_forge.evaluation.task_families import SHARES
from agent_forge.evaluation.verifiers.program import parsed
from agent_forge.runs.errors import DataError
from agent_forge.tools.calls import Call, Form, ToolError
from agent_forge.tools.tasks.base import ToolItem
from agent_forge.tools.toolbox import Repository, World

NAME = "own"
#: Tools of a repair.
TOOLS = ("edit", "test")
FileName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}\.py$")]
Text = Annotated[str, Field(min_length=1, max_length=65_536, pattern=r"\S")]
Line = Annotated[str, Field(min_length=1, max_length=2_000, pattern=r"^[^\r\n]*[^\s][^\r\n]*$")]
Id = Annotated[str, Field(max_length=128, pattern=r"^\S[^\r\n]*$")]
#: Seconds that the check of all repairs' tests may take.
TRIED_SECONDS = 240


class File(BaseModel):
    """A file of a repair. Files are a list: an object of JSON has no order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: FileName
    text: Text


class Fixed(BaseModel):
    """A line of a solution, in the place of the line with this number, whose indentation stays."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: FileName
    line: int = Field(ge=1)
    text: Line


class OwnRepair(BaseModel):
    """A repair: the tests are evaluated in the last file, which may import from those before it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Id
    issue: Text
    files: tuple[File, ...] = Field(min_length=1, max_length=16)
    tests: tuple[Line, ...] = Field(min_length=1, max_length=64)
    fix: tuple[Fixed, ...] = Field(min_length=1, max_length=16)

    _are_tests = field_validator("tests")(parsed)

    @model_validator(mode="after")
    def _can_be_mended(self) -> OwnRepair:
        names = [file.name for file in self.files]
        if len(set(names)) < len(names):
            raise ValueError(f"repair {self.id!r}: two files have one name")
        for edit in self.fix:
            if edit.file not in names:
                raise ValueError(f"repair {self.id!r}: the fix changes {edit.file!r}, no file of it")
        return self

    @property
    def slice(self) -> Slice:
        """The slice that the repair is in: it follows from the id."""
        return slice_of(f"tool-tasks/{NAME}/{self.id}", SHARES)

    @property
    def size(self) -> int:
        """The number of characters of all its parts."""
        texts = [self.id, self.issue, *self.tests]
        texts += [file.name + file.text for file in self.files]
        texts += [edit.file + edit.text for edit in self.fix]
        return sum(map(len, texts))

    @property
    def contents(self) -> dict[str, str]:
        """File name → text, in the order of the files."""
        return {file.name: file.text for file in self.files}

    @property
    def question(self) -> str:
        """The issue, and every file with line numbers."""
        shown = (
            f"{name}\n" + "\n".join(f"{n} {line}" for n, line in enumerate(text.splitlines(), 1))
            for name, text in self.contents.items()
        )
        return "\n".join((f"issue: {self.issue.strip()}", *shown, "fix:"))

    @property
    def calls(self) -> tuple[Call, ...]:
        """The tool calls of the solution, an edit each."""
        return tuple(Call("edit", f"{edit.file} {edit.line} {edit.text}") for edit in self.fix)

    def item(self) -> ToolItem:
        """Return the repair as a tool item of one session."""
        world = World(files=self.contents, tests=self.tests)
        return ToolItem(NAME, 1, (self.question,), None, world, (self.calls,), TOOLS)


def taken(repairs: Sequence[OwnRepair], on: Slice, limit: int) -> list[OwnRepair]:
    """Return up to `limit` repairs of a slice, in the order in which they are given."""
    return [repair for repair in repairs if repair.slice == on][:limit]


def check_written(repairs: Sequence[OwnRepair], form: Form, calls: int) -> None:
    """Raise DataError if a repair's fix has too many calls, or a call that the form cannot write."""
    for repair in repairs:
        if len(repair.fix) > calls:
            raise DataError(
                f"repair {repair.id!r}: its fix has {len(repair.fix)} edits, and a session has {calls} "
                "calls at most: set `calls`."
            )
        for call in repair.calls:
            text = form.written(call)
            end = text.find(form.close.strip()) + len(form.close.strip())  # a turn ends there
            try:
                read = form.parse(text[:end])
            except ToolError:
                read = None
            if read != Call(call.tool, call.arguments.strip()):
                raise DataError(
                    f"repair {repair.id!r}: the call {call.arguments[:80]!r} of its fix "
                    f"cannot be written in the form {form.name!r}, because it contains a mark of "
                    "that form. Set another `form`."
                )


def check_tests(repairs: Sequence[OwnRepair], sandbox: Callable[[], Sandbox]) -> None:
    """Raise DataError if a repair's tests all pass before its fix, or if one fails after it."""
    began = time.monotonic()
    for repair in repairs:
        repository = Repository(repair.contents, sandbox)
        if not any(repository.failing([test]) for test in repair.tests):
            raise DataError(f"repair {repair.id!r}: all its tests pass before it is mended.")
        try:
            for edit in repair.fix:
                repository.replace(edit.file, edit.line, edit.text)
        except ToolError as error:
            raise DataError(f"repair {repair.id!r}: its fix cannot be made: {error}.") from error
        if failing := repository.failing(repair.tests):
            raise DataError(f"repair {repair.id!r}: after its fix the test {failing[0]!r} fails.")
        if time.monotonic() - began > TRIED_SECONDS:
            raise DataError(
                f"repair {repair.id!r}: to try the tests of all repairs up to this one took more than "
                f"{TRIED_SECONDS} s. Give quicker tests, or fewer."
            )
