"""Exact match: the reply, without surrounding whitespace, is one of the right answers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from agent_forge.evaluation.verifiers.program import RIGHT, ItemCheck, Rating, wrong

Answer = Annotated[str, Field(min_length=1, pattern=r"\S")]


class Exact(ItemCheck):
    """`answer` may be one text or several, of which any is right."""

    kind: Literal["exact"]
    answer: Answer | Annotated[tuple[Answer, ...], Field(min_length=1)]
    ignore_case: bool = False


def verify(check: Exact, reply: str) -> Rating:
    """Return a Rating: 1 if the reply, without outer blanks, is one of the answers, else 0."""
    answers = (check.answer,) if isinstance(check.answer, str) else check.answer
    form = str.casefold if check.ignore_case else str
    text = form(reply.strip())
    return RIGHT if text in {form(a.strip()) for a in answers} else wrong("another text")
