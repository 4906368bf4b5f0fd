"""Lookup of algorithms in plain tables, imported when asked for: NAME@VERSION → "MODULE:CLASS"."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from agent_forge.runs.errors import ConfigError, UnknownAlgorithmError

_Params = TypeVar("_Params", bound=BaseModel)


def find(table: Mapping[str, str], name: str, what: str) -> Any:
    """Return the class that `table` names for `name`; `what` is the table's subject, for the error.

    Raises UnknownAlgorithmError.
    """
    place = table.get(name)
    if place is None:
        raise UnknownAlgorithmError(
            f"{what} {name!r} is not known to this program. It knows: {', '.join(sorted(table))}. "
            "A newer version may know it."
        )
    return _load(place)


@cache
def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def complete(params: type[BaseModel], values: Mapping[str, object], what: str) -> dict[str, object]:
    """Return name → JSON value of `values` with every default added. Raises ConfigError if invalid."""
    try:
        return params.model_validate(dict(values)).model_dump(mode="json")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "its parameters"
        raise ConfigError(f"{what}: {where}: {first['msg']}") from error


def check_complete(params: type[_Params], values: Mapping[str, object], what: str) -> _Params:
    """Return a recipe's parameters as a `params` object. Raises ConfigError if a default is left out.

    With a default left out, one computation would have two ids.
    """
    whole = complete(params, values, what)
    if whole != dict(values):
        lacking = ", ".join(sorted(n for n in whole if values.get(n) != whole[n]))
        raise ConfigError(f"{what}: the recipe does not write out {lacking}. Complete it first.")
    return params.model_validate(whole)
