"""The menu of a compression: codecs at a rate, by name. Pure.

A name says the codec and its rate: bits a weight, or the step in root mean squares of the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Setting:
    """A codec with its parameters; those that are not named have their defaults."""

    codec: str
    params: Mapping[str, Any] = field(default_factory=dict)
    #: Parameters for a matrix that is no linear layer's, such as an embedding that is not the head.
    lone: Mapping[str, Any] = field(default_factory=dict)


def _uniform(step: float) -> Setting:
    return Setting("uniform@1", {"step": step}, {"rows": True})


#: Name → setting. `plain-16` is what a matrix falls back to that a codec does not take.
PLAIN = "plain-16"
MENU: Mapping[str, Setting] = {
    PLAIN: Setting("plain@1", {"dtype": "float16"}),
    "rtn-8": Setting("rtn@1", {"bits": 8}),
    "rtn-4": Setting("rtn@1", {"bits": 4}),
    "rtn-3": Setting("rtn@1", {"bits": 3}),
    "rtn-2": Setting("rtn@1", {"bits": 2}),
    "gptq-4": Setting("gptq@1", {"bits": 4}),
    "gptq-3": Setting("gptq@1", {"bits": 3}),
    "gptq-2": Setting("gptq@1", {"bits": 2}),
    "uniform-0.1": _uniform(0.1),
    "uniform-0.25": _uniform(0.25),
    "uniform-0.5": _uniform(0.5),
    "uniform-0.75": _uniform(0.75),
    "uniform-1": _uniform(1.0),
    "uniform-1.25": _uniform(1.25),
    "uniform-1.5": _uniform(1.5),
    "uniform-2": _uniform(2.0),
    "ternary": Setting("ternary@1"),
}
