"""The verifier of replies, which applies an item's check; and the check of structured data.

Structured data are parsed and compared with the answer, field by field. A field is a leaf with its
path. The score is the share of right fields among all fields that either side has: a missing field
counts like a superfluous one. Texts, numbers and booleans are different things; 1 and 1.0 are the same
number. A CSV file is a list of rows whose values are texts. The content of a fenced code block is used
without its fence.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import textwrap
import tomllib
from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, JsonValue, model_validator

from agent_forge.evaluation.sandbox.sandbox import Sandbox, SandboxUnavailableError
from agent_forge.evaluation.verifiers import calls, exact, number, program
from agent_forge.evaluation.verifiers.calls import Calls
from agent_forge.evaluation.verifiers.exact import Exact
from agent_forge.evaluation.verifiers.number import Number
from agent_forge.evaluation.verifiers.program import RIGHT, ItemCheck, Program, Rating, fenced, wrong
from agent_forge.evaluation.verifiers.scorer import Scored, Scorer
from agent_forge.runs.errors import UnavailableError

#: Most fields of a reply; a reply with more of them is wrong.
MOST = 10_000
#: Deepest nesting of a reply; a deeper reply is wrong.
DEEPEST = 50

#: Types of leaves that are kept; leaves of other types become texts.
_PLAIN = (str, int, float, type(None), dict, list)

Format = Literal["json", "csv", "yaml", "toml"]


class Structured(ItemCheck):
    """`answer` is the data itself, as JSON."""

    kind: Literal["data"]
    format: Format
    answer: JsonValue

    @model_validator(mode="after")
    def _csv_is_rows(self) -> Structured:
        if self.format == "csv" and not (
            isinstance(self.answer, list) and all(isinstance(row, dict) for row in self.answer)
        ):
            raise ValueError("the answer of a CSV item is a list of objects, one for each row")
        return self


#: Errors of parsers for text that is not their format; YAML's tags can raise nearly any of them.
_UNREADABLE = (
    ValueError,
    LookupError,
    AttributeError,
    TypeError,
    OverflowError,
    RecursionError,
    yaml.YAMLError,
    csv.Error,
)


class _NoAliases(yaml.SafeLoader):
    """YAML loader that refuses aliases: a few lines of them can stand for billions of fields."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not taken")
        return super().compose_node(parent, index)


def _csv(text: str) -> list[dict[str, str]]:
    rows = [*csv.DictReader(io.StringIO(text), strict=True)]
    if any(None in row or None in row.values() for row in rows):
        raise ValueError("rows of different lengths")
    return rows


_PARSERS = {
    "json": json.loads,
    "csv": _csv,
    "yaml": lambda text: yaml.load(text, _NoAliases),
    "toml": tomllib.loads,
}


def verify(check: Structured, reply: str) -> Rating:
    """Return a Rating: the share of fields that are right, 0 if the reply does not parse."""
    inner = fenced(reply)
    text = textwrap.dedent((reply if inner is None else inner).strip("\n")).strip()
    expected = _as_rows(check.answer) if check.format == "csv" else check.answer
    try:
        fields = dict(_leaves(_PARSERS[check.format](text)))
    except _UNREADABLE as error:
        return wrong(f"not {check.format.upper()}: {error}".splitlines()[0][:200])
    meant = dict(_leaves(expected))
    right = sum(1 for path, value in meant.items() if path in fields and _same(value, fields[path]))
    union = len(meant.keys() | fields.keys())
    return RIGHT if right == union else Rating(right / union, f"{right} of {union} fields are right")


def _as_rows(answer: Any) -> list[dict[str, str]]:
    """Return a list of dicts, the answer as rows of a CSV file: every value is a text."""
    return [{key: _cell(value) for key, value in row.items()} for row in answer]


def _cell(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _same(a: object, b: object) -> bool:
    """Return True if two leaves are equal and of one kind: True is not 1, and "1" is not 1."""
    numbers = (int, float)
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, numbers) and isinstance(b, numbers):
        return a == b
    return type(a) is type(b) and a == b


def _leaves(value: object) -> Iterator[tuple[tuple, object]]:
    """Yield (path, leaf) of all leaves; empty lists and objects are leaves. Raises ValueError."""
    count = 0
    waiting: list[tuple[tuple, object]] = [((), value)]
    while waiting:
        path, inner = waiting.pop()
        if len(path) > DEEPEST:
            raise ValueError("nested too deep")
        if isinstance(inner, dict) and inner:
            waiting += [((*path, str(key)), entry) for key, entry in inner.items()]
        elif isinstance(inner, list) and inner:
            waiting += [((*path, place), entry) for place, entry in enumerate(inner)]
        else:
            count += 1
            if count > MOST:
                raise ValueError("too many fields")
            yield path, inner if isinstance(inner, _PLAIN) else str(inner)  # dates in YAML and TOML


log = logging.getLogger(__name__)

AnyCheck = Annotated[
    Exact | Number | Structured | Calls | Program | Scored, Field(discriminator="kind")
]


class Verifier:
    """Verifier of replies; the sandbox and the scorers' processes start when they are needed."""

    def __init__(self) -> None:
        """Prepare a verifier; no process is started yet."""
        self._scorers: dict[str, Scorer] = {}

    @cached_property
    def sandbox(self) -> Sandbox:
        """The sandbox in which programs are run. Raises SandboxUnavailableError."""
        return Sandbox.open()

    def verify(self, check: AnyCheck, reply: str, item: dict[str, object]) -> Rating:
        """Return a Rating of a reply to `item` (its id, domain and prompt).

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
            log.exception("the verifier of %s failed on the reply to %s", check.kind, item.get("id"))
            why = f"the verifier raised {type(error).__name__}: {error}"[:200]
            return Rating(0.0, why, scored=False)

    def _verdict(self, check: AnyCheck, reply: str, item: dict[str, Any]) -> Rating:
        match check:
            case Exact():
                return exact.verify(check, reply)
            case Number():
                return number.verify(check, reply)
            case Structured():
                return verify(check, reply)
            case Calls():
                return calls.rate(check, reply)
            case Program():
                return self._run(check, item["prompt"], reply)
            case Scored():
                scorer = self._scorers.setdefault(check.scorer, Scorer(check.scorer))
                return scorer.verify(reply, {**item, "options": check.options})

    def _run(self, check: Program, prompt: str, reply: str) -> Rating:
        try:
            return program.verify(check, prompt, reply, self.sandbox)
        except SandboxUnavailableError:
            self.__dict__.pop("sandbox", None)  # a new one is tried next time
            raise
