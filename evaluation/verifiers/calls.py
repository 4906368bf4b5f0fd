"""Function calls in a reply, in the form of Hermes, and whether they are those of a right reply.

    <tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>

Calls are right if they are the same functions with the same arguments, in any order. A right reply
without a call is one in words: any reply without a call is as right.

The check `Calls` allows several values for an argument and compares as the Berkeley Function Calling
Leaderboard does (Patil et al. 2025, `ast_checker` of `bfcl-eval`), oddities included.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, JsonValue, model_validator

from agent_forge.evaluation.verifiers.program import RIGHT, ItemCheck, Rating, wrong
from agent_forge.events import canonical_json

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_CALL = re.compile(re.escape(OPEN) + r"(.*?)" + re.escape(CLOSE), re.DOTALL)
#: Characters of a reply beyond which it has no calls that are read.
LONGEST = 1 << 16

#: A call: the function's name, and its arguments.
Written = tuple[str, dict[str, object]]


def calls_in(reply: str) -> list[Written] | None:
    """Return (name, arguments) of the calls in a reply; None if one of them is malformed.

    A call that is begun and not ended is malformed, and so is one of a reply beyond `LONGEST`.
    """
    if len(reply) > LONGEST or reply.count(OPEN) != reply.count(CLOSE):
        return None
    bodies = _CALL.findall(reply)
    if reply.count(OPEN) != len(bodies):
        return None
    calls: list[Written] = []
    for body in bodies:
        try:
            call = json.loads(body)
            canonical_json(call)  # no NaN, no number without bound
        except (ValueError, RecursionError):
            return None
        if not isinstance(call, dict):
            return None
        name, arguments = call.get("name"), call.get("arguments", {})
        if not isinstance(name, str) or not isinstance(arguments, dict):
            return None
        calls.append((name, arguments))
    return calls


def is_right(reply: str, right: str) -> bool:
    """Return True if a reply has the calls of the `right` one; or none, and that one has none."""
    calls = calls_in(reply)
    return calls is not None and _sorted(calls) == _sorted(calls_in(right) or [])


def _sorted(calls: list[Written]) -> list[str]:
    """Return the calls as texts, sorted: 1 and 1.0 are the same number, and True is another value."""
    return sorted(canonical_json(_settled(call)) for call in calls)


def _settled(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _settled(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [*map(_settled, value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value


# ---- the leaderboard's rules ---------------------------------------------------------------------

_NAMES = {
    str: "string any",
    bool: "boolean",
    int: "integer",
    float: "float number",
    list: "array tuple",
    dict: "dict object",
}
#: Type of an argument → the Python type of its values.
TYPES = {name: type_ for type_, names in _NAMES.items() for name in names.split()}
#: Characters that do not count in texts.
_LEFT_OUT = re.compile(r"[ ,./\-_*^]")

ArgumentType = Annotated[
    str, Field(pattern=rf"^({'|'.join(TYPES)}|(array|tuple) of ({'|'.join(TYPES)}))$")
]


class AllowedCall(ItemCheck):
    """A function and the values that its arguments may have; "" among them: it may be left out."""

    name: str
    arguments: dict[str, tuple[JsonValue, ...]]
    #: Argument → its type. An argument without a type is unexpected. Empty: types are those of the
    #: first allowed values.
    types: dict[str, ArgumentType] = {}
    #: Arguments that may not be left out, whatever their values are.
    required: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _lists_within_objects(self) -> AllowedCall:
        """Raise ValueError for an object among the values that does not list its own values."""
        values = [value for allowed in self.arguments.values() for value in allowed]
        values += [member for value in values if isinstance(value, list) for member in value]
        for value in values:
            if isinstance(value, dict) and not all(isinstance(v, list) for v in value.values()):
                raise ValueError(f"an object lists the right values of each key: {str(value)[:100]}")
        return self


class Calls(ItemCheck):
    """`allowed` has a member for each call that a right reply makes; without any, it makes no call."""

    kind: Literal["calls"]
    allowed: tuple[AllowedCall, ...]


def rate(check: Calls, reply: str) -> Rating:
    """Return a Rating: 1 if the reply has exactly the allowed calls, in any order, else 0.

    A malformed call is no call.
    """
    calls = calls_in(reply) or []
    if len(calls) != len(check.allowed):
        return wrong(f"the number of calls is {len(calls)}, not {len(check.allowed)}")
    for allowed in check.allowed:
        faults = [_fault(*call, allowed) for call in calls]
        if "" not in faults:
            return wrong(faults[0][:200])
        calls.pop(faults.index(""))
    return RIGHT


def _fault(name: str, arguments: dict[str, object], allowed: AllowedCall) -> str:
    """Return what is wrong with a call; '' for a right one."""
    if name != allowed.name:
        return f"the function is {name!r}, not {allowed.name!r}"
    for argument, value in arguments.items():
        values = allowed.arguments.get(argument)
        type_ = allowed.types.get(argument, "")
        if values is None or (allowed.types and not type_):
            return f"the argument {argument!r} of {name} is unexpected"
        if not _is_allowed(value, values, *(map(TYPES.get, type_.split(" of ")) if type_ else ())):
            return f"the argument {argument!r} of {name} is {value!r}"
    optional = {argument for argument, values in allowed.arguments.items() if "" in values}
    missing = {*allowed.required, *(allowed.arguments.keys() - optional)} - arguments.keys()
    return f"the argument {min(missing)!r} of {name} is missing" if missing else ""


def _is_allowed(
    value: object, allowed: Sequence[object], outer: type | None = None, inner: type | None = None
) -> bool:
    """Return True if a value of the type `outer`, or a list of `inner`, is one of those allowed."""
    first = next((a for a in allowed if a != ""), None)
    if outer is None:
        outer = str if first is None else type(first)
        inner = dict if isinstance(first, list) and first and isinstance(first[0], dict) else None
    if outer is float and type(value) is int:
        value = float(str(value))  # float(value) raises OverflowError for a long one
    if not _has_type(value, allowed, outer, inner):
        return False
    # Values of another type than the schema's, such as a variable's name, must be equal.
    if type(value) is not outer or type(first) not in (outer, type(None)):
        return value in allowed
    if outer is str:
        return _plain(value) in [_plain(a) for a in allowed if isinstance(a, str)]
    if outer is dict:
        return any(_has_entries(value, a) for a in allowed)
    if isinstance(value, list):
        lists = [a for a in allowed if isinstance(a, list | str)]  # "" is read as []
        if inner is dict:
            return any(len(value) == len(a) and all(map(_has_entries, value, a)) for a in lists)
        return [*map(_plain, value)] in [[*map(_plain, a)] for a in lists]
    return value in allowed


def _has_type(value: object, allowed: Sequence[object], outer: type, inner: type | None) -> bool:
    """Return True if a value has the type `outer`, or that of the first value allowed.

    A list's members have the type `inner`, or that of the first member of a list that is allowed.
    """
    if type(value) is not outer:
        return type(value) is next((type(a) for a in allowed if a != ""), None)
    members = value if isinstance(value, list) else []
    return inner is None or any(
        not isinstance(a, list) or all(_has_type(v, a, inner, None) for v in members) for a in allowed
    )


def _has_entries(value: object, allowed: object) -> bool:
    """Return True if an object has the values that `allowed` lists for each of its keys."""
    return (
        isinstance(value, dict)
        and isinstance(allowed, dict)
        and all(k in allowed and _plain(v) in map(_plain, allowed[k]) for k, v in value.items())
        and all(key in value or "" in values for key, values in allowed.items())
    )


def _plain(value: object) -> object:
    """Return a text in small letters without blanks and punctuation; any other value as it is."""
    if not isinstance(value, str):
        return value
    return _LEFT_OUT.sub("", value).lower().replace("'", '"')
