"""What verifiers are made of."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

#: A block of Markdown code, its language left out.
_FENCE = re.compile(r"```[^\n`]*\n(.*?)(?:\n```|\Z)", re.DOTALL)


class Check(BaseModel):
    """Frozen, and nothing that is not known."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True)
class Verdict:
    """How right a reply is, from 0 to 1, and what is wrong with it."""

    score: float
    why: str = ""
    #: False where the verifier itself failed: the item counts 0, and the event says why.
    scored: bool = True


RIGHT = Verdict(1.0)


def wrong(why: str) -> Verdict:
    """Not right at all."""
    return Verdict(0.0, why)


def fenced(reply: str) -> str | None:
    """The first fenced code block of a reply, or None."""
    found = _FENCE.search(reply)
    return found.group(1) if found else None
