"""What an item's `check` may be, and who verifies it."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field

from evaluation.sandbox.sandbox import Sandbox, SandboxUnavailableError
from evaluation.verifiers import exact, number, program, structured
from evaluation.verifiers.base import Verdict
from evaluation.verifiers.exact import Exact
from evaluation.verifiers.number import Number
from evaluation.verifiers.program import Program
from evaluation.verifiers.scorer import Scored, Scorer
from evaluation.verifiers.structured import Structured
from runs.errors import UnavailableError

log = logging.getLogger(__name__)

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
        """Return how right a reply to `item` (its id, domain and prompt) is.

        A reply over which a verifier breaks counts 0 and is logged: a model's text must not end a run.
        Raise UnavailableError if a sandbox or a scorer is not to be had on this machine, OSError or
        MemoryError if the machine is short of something: that says nothing of the reply.
        """
        try:
            return self._verdict(check, reply, item)
        except (UnavailableError, OSError, MemoryError):
            raise
        except Exception as error:
            log.exception(
                "the verifier of %s failed on the reply to %s", check.kind, item.get("id")
            )
            why = f"the verifier raised {type(error).__name__}: {error}"[:200]
            return Verdict(0.0, why, scored=False)

    def _verdict(self, check: AnyCheck, reply: str, item: dict[str, Any]) -> Verdict:
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
