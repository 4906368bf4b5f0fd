"""Text of a pipeline's file, written from its settings: TOML that `file.parse` reads. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

#: A key that needs no quotes.
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def text(config: Mapping[str, Any]) -> str:
    """Return the text of a file with these settings, plain JSON by the names that the settings have.

    Raises ValueError for a list with a null in it, which TOML has not.
    """
    top = [line for key, value in config.items() if key != "phases" for line in _top(key, value)]
    phases = ["\n".join(_phase(phase)) for phase in config.get("phases", [])]
    return "\n\n".join(filter(None, ["\n".join(top), *phases])) + "\n"


def _top(key: str, value: Any) -> Iterator[str]:
    """Yield the line of a setting of the pipeline itself."""
    if key == "gates":
        yield f"gate = {_value([_gate(gate) for gate in value])}"
    elif value is not None:
        yield f"{key} = {_value(_single(value))}"


def _phase(phase: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a phase, without settings that are empty."""
    yield "[[phase]]"
    for key, value in phase.items():
        if key == "models":
            value = {role: _single(models) for role, models in value.items()}
        if key != "gates" and value not in (None, {}, []):
            yield f"{key} = {_value(_single(value))}"
    for gate in phase.get("gates", []):
        yield "[[phase.gate]]"
        yield from (f"{key} = {_value(value)}" for key, value in _gate(gate).items())


def _gate(gate: Mapping[str, Any]) -> dict[str, Any]:
    """Return a gate without what it has anyway."""
    return {k: v for k, v in gate.items() if v is not None and (k, v) != ("otherwise", "stop")}


def _single(value: Any) -> Any:
    """Return a list of one text as the text."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _value(value: Any) -> str:
    """Return a value as TOML has it; a null in a table is left out. Raises ValueError."""
    if isinstance(value, Mapping):
        pairs = (f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None)
        return "{ " + ", ".join(pairs) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if value is None:
        raise ValueError("TOML has no null")
    return repr(value)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _value(key)
