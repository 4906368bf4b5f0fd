"""Models between a program and the log: a loaded module becomes a folder; hand-overs of phases."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runs.errors import ConfigError, NotFoundError
from runs.home import Home
from weights.folders.checkpoint import SHARD_BYTES, digest, publish, write_weights


def named(home: Home, model: Any) -> str:
    """Return a model as a text that names it; a loaded module is written into the home folder.

    It needs `config.name_or_path`, and a tokenizer there, to be measured on text. Raises ConfigError,
    NotFoundError.
    """
    if isinstance(model, str | Path):
        return str(model)
    weights = {name: p.detach().cpu() for name, p in model.named_parameters()}
    folder = home.folder / "models" / digest(weights)
    if not folder.exists():
        publish(folder, lambda place: _save(model, weights, place))
    return str(folder)


def handed(over: Mapping[str, Any], name: str) -> Any:
    """Return what one phase hands over to the next under a name. Raises ConfigError."""
    if name not in over:
        raise ConfigError(
            f"what is handed over has no {name!r}; it has {', '.join(over) or 'nothing'}."
        )
    return over[name]


def _save(module: Any, weights: dict[str, Any], folder: Path) -> None:
    """Write weights, config and the tokenizer of the place that the module was loaded from.

    Raises ConfigError if that place is not known, NotFoundError if it has no tokenizer.
    """
    from weights.architectures.auto_config import AutoTokenizer

    write_weights(folder, weights, SHARD_BYTES)
    module.config.save_pretrained(folder)
    origin = getattr(module.config, "_name_or_path", "")
    if not origin:
        raise ConfigError(
            "a loaded module must come from a folder or the Hub (from_pretrained), so that its "
            "tokenizer is known: save it with its tokenizer and give the folder instead."
        )
    try:
        AutoTokenizer.from_pretrained(origin, trust_remote_code=False).save_pretrained(folder)
    except (OSError, ValueError) as error:
        raise NotFoundError(f"no tokenizer beside the loaded module ({origin}): {error}") from error
