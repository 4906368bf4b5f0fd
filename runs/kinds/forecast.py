"""Forecasts of runs before they are begun: what one will cost here, and what models it gives. Pure.

A forecast holds no guess. An amount is measured when it is asked for, counted exactly, or not known;
and its text says which of these, and from what.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

#: Setting of a config.json → its value; and `TOKENIZER`, if that is known.
Architecture = Mapping[str, Any]
#: Role → architectures of the models that a run is given; None: not known.
Architectures = Mapping[str, Sequence[Architecture | None]]
#: The folder of a model that has the same tokenizer.
TOKENIZER = "tokenizer"
#: Settings that are compared: the number or a side of tensors. Numbers of heads are not among them:
#: tensors may agree although these differ.
KEYS = ("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")


@dataclass(frozen=True)
class Amount:
    """A number and what it is derived from; None and why it is not known."""

    value: float | None
    how: str


@dataclass(frozen=True)
class Forecast:
    """The cost of a run on this machine by one process, and models like those that it will give."""

    #: Of work, in seconds.
    seconds: Amount
    #: Bytes that are on disk once the run has ended.
    disk: Amount
    #: Bytes that its tasks need at once.
    memory: Amount
    #: Role → folder of an untrained model of the shape of the one that the run will give; empty if
    #: that is not known. By these, a run over the models can be tried before they are made.
    models: Mapping[str, Path] = field(default_factory=dict[str, Path])
    #: File of the items that the run will pin.
    items: Path | None = None

    def held(self, peak: int) -> Forecast:
        """Return the forecast with `peak`, the bytes that its trial took, if more than was counted.

        What is counted is more for several processes, and for models on a GPU.
        """
        if self.memory.value is None or peak <= self.memory.value:
            return self
        how = "measured here: the most private memory of this process while it tried the work"
        return replace(self, memory=Amount(peak, how))


def unknown(why: str) -> Forecast:
    """Return a forecast whose amounts are all unknown, for the reason `why`."""
    nothing = Amount(None, why)
    return Forecast(nothing, nothing, nothing)


def of_config(config: Mapping[str, object]) -> Architecture:
    """Return the settings of a config.json that are numbers, texts or `layer_types`, as a dict."""
    settings = {key: value for key, value in config.items() if isinstance(value, int | str)}
    types = {"layer_types": config["layer_types"]} if config.get("layer_types") else {}
    return {**settings, **types}


def differing(architecture: Architecture, other: Architecture) -> list[str]:
    """Return the names of the settings among `KEYS` that two architectures have and differ in."""
    return [
        key for key in KEYS if key in architecture and key in other and architecture[key] != other[key]
    ]


def told(architecture: Architecture, keys: Iterable[str]) -> str:
    """Return an architecture in words with the settings `keys`: "llama of hidden_size 64"."""
    sizes = [f"{key} {architecture[key]}" for key in keys if key != "model_type"]
    return " of ".join(
        [str(architecture.get("model_type", "model")), *([", ".join(sizes)] if sizes else [])]
    )
