"""Form of a reply: the reply matches a pattern, or parses as data. The right answer is not needed."""

from __future__ import annotations

import csv
import io
import json
import re
import tomllib
from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator
from typing_extensions import override

from agent_forge.evaluation.verifiers.exact import Exact
from agent_forge.evaluation.verifiers.number import Number
from agent_forge.evaluation.verifiers.program import RIGHT, ItemCheck, Rating, fenced, wrong
from agent_forge.evaluation.verifiers.scorer import Scored
from agent_forge.evaluation.verifiers.verifier import Verifier
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.system import patterns

#: Characters of a reply that a pattern is matched against, at most.
MOST = 20_000


class Pattern(ItemCheck):
    """`pattern` is a regular expression; the whole reply matches, or with `search` a part of it."""

    kind: Literal["pattern"]
    pattern: Annotated[str, Field(min_length=1, max_length=4096)]
    search: bool = False

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
        return pattern


class Parses(ItemCheck):
    """The reply, or its first fenced code block, is data in a format; `keys` are in the object."""

    kind: Literal["parses"]
    format: Literal["json", "csv", "toml"]
    #: Keys of the object, or columns of the rows, that must be there.
    keys: tuple[str, ...] = ()


AnyForm = Annotated[Pattern | Parses | Exact | Number | Scored, Field(discriminator="kind")]


class FormVerifier(Verifier):
    """Verifier of replies whose form is checked, beside the checks of answers."""

    @override
    def _verdict(self, check: Any, reply: str, item: dict[str, object]) -> Rating:
        if isinstance(check, Pattern):
            return matches(check, reply)
        if isinstance(check, Parses):
            return parses(check, reply)
        return super()._verdict(check, reply, item)


def check_patterns(checks: Iterable[ItemCheck | None]) -> None:
    """Raise ConfigError if a check has a pattern that cannot be matched."""
    for check in checks:
        if isinstance(check, Pattern):
            try:
                _matcher(check.pattern)
            except ValueError as error:
                raise ConfigError(f"the pattern {check.pattern[:60]!r}: {error}.") from error


def matches(check: Pattern, reply: str) -> Rating:
    """Return a Rating: 1 if the reply, without outer blanks, matches the pattern, else 0."""
    text = reply.strip()[:MOST]
    try:
        matcher = _matcher(check.pattern)
    except ValueError as error:  # only in logs of earlier versions: submission refuses it
        return wrong(f"the pattern cannot be matched: {error}")
    fits = matcher.search(text) if check.search else matcher.fullmatch(text)
    return RIGHT if fits else wrong("the pattern does not match")


@lru_cache(maxsize=64)
def _matcher(pattern: str) -> patterns.Matcher:
    """Return the matcher of a check's pattern. Raise ValueError as `patterns.Matcher` does."""
    return patterns.Matcher(pattern, dot_all=True)


def parses(check: Parses, reply: str) -> Rating:
    """Return a Rating: 1 if the reply, or its first code block, parses and has the keys, else 0."""
    inner = fenced(reply)
    text = (reply if inner is None else inner).strip()
    try:
        document = _parsed(check.format, text)
    except (ValueError, LookupError, RecursionError, csv.Error) as error:
        return wrong(f"not {check.format.upper()}: {error}".splitlines()[0][:200])
    rows = document if isinstance(document, list) else [document]
    if check.keys and not (
        rows and all(isinstance(row, dict) and set(check.keys) <= set(row) for row in rows)
    ):
        return wrong("a key is missing")
    return RIGHT


def _parsed(format_: str, text: str) -> object:
    """Return the data in a text, of CSV one dict per row. Raises ValueError and the parsers' errors."""
    if not text:
        raise ValueError("the reply is empty")
    match format_:
        case "json":
            return json.loads(text)
        case "toml":
            return tomllib.loads(text)
    rows = [*csv.reader(io.StringIO(text), strict=True)]
    if len({len(row) for row in rows}) > 1 or len(rows[0]) < 2:
        raise ValueError("rows of different lengths, or of one field")
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]] or [dict.fromkeys(rows[0])]
