"""Base class of checks, and verdicts on replies."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

#: A block of Markdown code, its language left out.
_FENCE = re.compile(r"```[^\n`]*\n(.*?)(?:\n```|\Z)", re.DOTALL)


class Check(BaseModel):
    """Base class of an item's check: frozen, without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def no_truth(value: Any) -> Any:
    """Return a value; raise ValueError for true and false, which pydantic takes for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError(f"{str(value).lower()} is not a number")
    return value


@dataclass(frozen=True)
class Verdict:
    """Score of a reply, from 0 (wrong) to 1 (right), and what is wrong with it."""

    score: float
    why: str = ""
    #: False if the verifier itself failed: the item counts 0, and the event says why.
    scored: bool = True


RIGHT = Verdict(1.0)


def wrong(why: str) -> Verdict:
    """Return the verdict 0, with the reason."""
    return Verdict(0.0, why)


def fenced(reply: str) -> str | None:
    """Return the content of the first fenced code block of a reply, or None."""
    match = _FENCE.search(reply)
    return match.group(1) if match else None
