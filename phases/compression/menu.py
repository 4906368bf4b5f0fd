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
    #: Parameters for the embedding that differ from these.
    embedding: Mapping[str, Any] = field(default_factory=dict)


#: Steps of the entropy-coded codec, in root mean squares of a matrix, or of each row of an embedding.
STEPS = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0, 1.2, 1.4, 1.7, 2.0)

#: What a matrix falls back to that a codec does not take, and if a weight is too large for 16 bits.
PLAIN, WHOLE = "plain-16", "plain-32"
#: Name → setting.
MENU: Mapping[str, Setting] = {
    WHOLE: Setting("plain@1", {"dtype": "float32"}),
    PLAIN: Setting("plain@1", {"dtype": "float16"}),
    **{f"rtn-{bits}": Setting("rtn@1", {"bits": bits}) for bits in (8, 4, 3, 2)},
    **{f"gptq-{bits}": Setting("gptq@1", {"bits": bits}) for bits in (4, 3, 2)},
    **{f"uniform-{step:g}": Setting("uniform@1", {"step": step}, {"rows": True}) for step in STEPS},
    "ternary": Setting("ternary@1"),
    "seedlm-4": Setting("seedlm@1", {"bits": 4}),
    "seedlm-3": Setting("seedlm@1", {"bits": 3}),
    "vptq-2": Setting("vptq@1", {"vector": 4, "bits": 8}),
    "hyper-6": Setting("hyper@1", {"points": 2048, "classes": 2}),
    "hyper-4": Setting("hyper@1", {"points": 128, "classes": 2}),
    "chain": Setting("chain@1"),
}
