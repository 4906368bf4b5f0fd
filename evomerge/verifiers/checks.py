"""What an item's `check` may be, and who verifies it."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any

from pydantic import Field

from evomerge.sandbox.runner import Sandbox, SandboxUnavailableError
from evomerge.verifiers import exact, number, program, structured
from evomerge.verifiers.exact import Exact
from evomerge.verifiers.number import Number
from evomerge.verifiers.parts import Verdict
from evomerge.verifiers.program import Program
from evomerge.verifiers.scorer import Scored, Scorer
from evomerge.verifiers.structured import Structured

AnyCheck = Annotated[Exact | Number | Structured | Program | Scored, Field(discriminator="kind")]


class Verifier:
    """Verifies replies; the sandbox and the scorers' processes are started when they are needed."""

    def __init__(self) -> None:
        """Nothing is started."""
        self._scorers: dict[str, Scorer] = {}

    @cached_property
    def sandbox(self) -> Sandbox:
        """Where programs are run. Raises SandboxUnavailableError."""
        return Sandbox.open()

    def verify(self, check: AnyCheck, reply: str, item: dict[str, Any]) -> Verdict:
        """Whether a reply to `item` (its id, domain and prompt) is right.

        Raises SandboxUnavailableError where a program cannot be locked in.
        """
        match check:
            case Exact():
                return exact.verify(check, reply)
            case Number():
                return number.verify(check, reply)
            case Structured():
                return structured.verify(check, reply)
            case Program():
                return self._run(check, item["prompt"], reply)
            case Scored():
                scorer = self._scorers.setdefault(check.scorer, Scorer(check.scorer))
                return scorer.verify(reply, {**item, "options": check.options})

    def _run(self, check: Program, prompt: str, reply: str) -> Verdict:
        try:
            return program.verify(check, prompt, reply, self.sandbox)
        except SandboxUnavailableError:
            self.__dict__.pop("sandbox", None)  # a new one is tried next time
            raise
