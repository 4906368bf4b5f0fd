"""Kinds of checks that an item can have, and the verifier that applies them to replies."""

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
    """Verifier of replies; the sandbox and the scorers' processes start when they are needed."""

    def __init__(self) -> None:
        """Prepare a verifier; no process is started yet."""
        self._scorers: dict[str, Scorer] = {}

    @cached_property
    def sandbox(self) -> Sandbox:
        """The sandbox in which programs are run. Raises SandboxUnavailableError."""
        return Sandbox.open()

    def verify(self, check: AnyCheck, reply: str, item: dict[str, Any]) -> Verdict:
        """Return how right a reply to `item` (its id, domain and prompt) is.

        If a verifier fails on a reply, the reply counts 0 and the error is logged: a model's text
        must not end a run. Raises UnavailableError if a sandbox or a scorer is not available on
        this machine, and OSError or MemoryError if the machine lacks resources: these errors say
        nothing about the reply.
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
