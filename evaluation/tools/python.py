"""Python in the sandbox: the value of a program's last expression."""

from __future__ import annotations

import ast
from collections.abc import Callable

from evaluation.sandbox.sandbox import Sandbox
from evaluation.tools.base import ToolError


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
