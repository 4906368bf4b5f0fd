"""Config files of runs: JSON, TOML or YAML, of bounded size."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from runs.errors import ConfigError
from runs.system import bounded_files

#: Bytes of the largest config file.
MOST_BYTES = 4 << 20


def read(path: str | None) -> dict[str, Any]:
    """Return the content of a config file; empty without a path. Raises ConfigError."""
    if path is None:
        return {}
    from runs.system import yaml_reader

    file = Path(path)
    try:
        text = bounded_files.read_text(file, MOST_BYTES, ConfigError)
    except ConfigError as error:
        raise ConfigError(f"config file {file} cannot be read: {error}") from error
    try:
        data = _parsed(file.suffix.lower(), text)
    except ConfigError as error:
        raise ConfigError(f"config file {file}: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"config file {file} is nested too deep.") from error
    except yaml_reader.UNREADABLE as error:
        raise ConfigError(f"config file {file} is not valid: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"config file {file} must hold one object of settings.")
    return data


def _parsed(suffix: str, text: str) -> Any:
    """Return the content of a file. Raises ConfigError, RecursionError or one of UNREADABLE."""
    if suffix in (".yml", ".yaml"):
        from runs.system import yaml_reader

        documents = yaml_reader.load(text)
        if len(documents) > 1:
            raise ConfigError("it holds several documents. Give one.")
        return documents[0] if documents else None
    return json.loads(text) if suffix == ".json" else tomllib.loads(text)
