"""A pipeline's TOML file: parsed, with the line of each fault in errors; and written from settings."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from agent_forge.events.envelope import Data, Plain
from agent_forge.pipeline.config import GateConfig, PhaseConfig, PipelineConfig
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.system import bounded_files

#: Bytes of the largest file.
MOST_BYTES = 1 << 20
#: Bits of the largest whole number.
MOST_BITS = 64
#: Texts and comments of TOML. A text without an end goes on to where it must have ended, so the
#: expression never goes back.
_TEXTS = re.compile(
    r'''"""(?:[^\\"]|\\.|"(?!""))*(?:""")?'''
    r"""|'''(?:[^']|'(?!''))*(?:''')?"""
    r"""|"(?:[^"\\\n]|\\.)*"?|'[^'\n]*'?|#[^\n]*""",
    re.DOTALL,
)
#: Signs outside of texts and comments, how many a file has at most, and what they stand for.
_MOST_SIGNS = (
    ("[", 5_000, "tables and lists"),
    ("=", 10_000, "keys"),
    (".", 4_000, "dots in keys and numbers"),
    (",", 20_000, "entries of lists"),
)
#: The table of names that the file gives to models; every config file may have it.
ALIASES = "aliases"
#: Key of a table in the file → the field that it is, and what its tables hold.
_TABLES: dict[str, tuple[str, type[BaseModel]]] = {
    "phase": ("phases", PhaseConfig),
    "gate": ("gates", GateConfig),
}


def read(path: Path) -> Plain:
    """Return the settings in a pipeline's file as JSON data. Raises ConfigError with the line."""
    return parse(bounded_files.read_text(path, MOST_BYTES, ConfigError), str(path))


def parse(text: str, place: str = "the file") -> dict[str, object]:
    """Return the settings in the text of a pipeline's file, as JSON data.

    `place` names the file in an error. Raises ConfigError with the line.
    """
    try:
        _check_size(text)
        content = tomllib.loads(text)
        _check_plain(content)
    except RecursionError as error:
        raise ConfigError(f"{place} is nested too deeply.") from error
    except ValueError as error:  # tomllib's own errors, too
        raise ConfigError(f"{place}: {error}") from error
    if not isinstance(content.get("phase", []), list):
        raise ConfigError(f"{place}: begin each phase with a line [[phase]].")
    for line, what in _unknown(content, text):
        raise ConfigError(f"{place}, line {line}: {what}")
    return content


def _check_size(text: str) -> None:
    """Raise ValueError if a text has more tables, keys or dots than a pipeline's file needs.

    The parser's time grows with the square of tables, and of the parts of a key; texts and comments
    do not count.
    """
    bare = _TEXTS.sub("", text)
    for sign, most, what in _MOST_SIGNS:
        if bare.count(sign) > most:
            raise ValueError(f"it has more than {most:,} {what}: a pipeline needs a few hundred.")


def _check_plain(value: object) -> None:
    """Raise ValueError for a date, a time, an infinite or a huge number, which no setting has."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for entry in value:
            _check_plain(entry)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is no setting: give a finite number.")
    elif isinstance(value, int):
        if value.bit_length() > MOST_BITS:
            raise ValueError(f"a number has more than {MOST_BITS} bits: give a smaller one.")
    elif not isinstance(value, str):
        raise ValueError(f"{value} is no setting: give a text, a number, true or false.")


def _unknown(content: Mapping[str, object], text: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, error text) for each key that a pipeline's file does not have."""
    starts = [number for number, line in _lines(text) if re.match(r"\[\[\s*phases?\s*\]\]", line)]
    top = (0, starts[0] if starts else 1 << 30)
    settings = {key: content[key] for key in content if key != ALIASES}
    yield from _keys(settings, PipelineConfig, text, top, "a pipeline")
    phases = content.get("phase", content.get("phases", []))
    for place, phase in enumerate(_tables(phases)):
        end = starts[place + 1] if place + 1 < len(starts) else 1 << 30
        span = (starts[place] if place < len(starts) else 0, end)
        yield from _keys(phase, PhaseConfig, text, span, "a phase")
        for gate in _tables(phase.get("gate", phase.get("gates", []))):
            yield from _keys(gate, GateConfig, text, span, "a gate")


def _tables(content: object) -> list[Mapping[str, object]]:
    """Return the tables in a list, or a single table as a list."""
    several = content if isinstance(content, list) else [content]
    return [table for table in several if isinstance(table, Mapping)]


def _keys(
    table: Mapping[str, object], model: type[BaseModel], text: str, span: tuple[int, int], what: str
) -> Iterator[tuple[int, str]]:
    """Yield (line number, error text) for the keys of a table that its model does not have."""
    keys = [*model.model_fields, *(k for k, (f, _) in _TABLES.items() if f in model.model_fields)]
    for key in table:
        if key not in keys:
            line = next((n for n, t in _lines(text) if span[0] <= n < span[1] and _has(t, key)), 1)
            yield line, f"{what} has no {key!r}. It has {', '.join(keys)}."


def _has(line: str, key: str) -> bool:
    """Return True if a line sets the key, as `key =` or in the name of a table."""
    return re.search(rf"(^|[\[{{,.\s\"']){re.escape(key)}[\"']?\s*([=.\]])", line) is not None


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, stripped line without its comment) for each line."""
    for number, line in enumerate(text.splitlines(), start=1):
        yield number, line.partition("#")[0].strip()


#: A key that needs no quotes.
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def text(config: Data) -> str:
    """Return the text of a TOML file with these settings, given as JSON data.

    Raises ValueError for a list with a null in it, which TOML has not.
    """
    top = [line for key, value in config.items() if key != "phases" for line in _top(key, value)]
    phases = ["\n".join(_phase(phase)) for phase in config.get("phases", [])]
    return "\n\n".join(filter(None, ["\n".join(top), *phases])) + "\n"


def _top(key: str, value: Any) -> Iterator[str]:
    """Yield the line of a setting of the pipeline itself; nothing for None."""
    if key == "gates":
        yield f"gate = {_value([_gate(gate) for gate in value])}"
    elif value is not None:
        yield f"{key} = {_value(_single(value))}"


def _phase(phase: Data) -> Iterator[str]:
    """Yield the lines of a phase, without empty settings."""
    yield "[[phase]]"
    for key, value in phase.items():
        if key == "models":
            value = {role: _single(models) for role, models in value.items()}
        if key != "gates" and value not in (None, {}, []):
            yield f"{key} = {_value(_single(value))}"
    for gate in phase.get("gates", []):
        yield "[[phase.gate]]"
        yield from (f"{key} = {_value(value)}" for key, value in _gate(gate).items())


def _gate(gate: Mapping[str, object]) -> dict[str, object]:
    """Return a gate's settings without defaults."""
    return {k: v for k, v in gate.items() if v is not None and (k, v) != ("otherwise", "stop")}


def _single(value: object) -> object:
    """Return the text of a list of one text; other values are unchanged."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _value(value: object) -> str:
    """Return a value as TOML; nulls in tables are left out. Raises ValueError for other nulls."""
    if isinstance(value, Mapping):
        entries = {k if _BARE.fullmatch(k) else _value(k): v for k, v in value.items() if v is not None}
        pairs = (f"{key} = {_value(v)}" for key, v in entries.items())
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
