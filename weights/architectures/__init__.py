"""Our architectures: models that transformers does not have, as code that it can load.

A folder of such a model names its code in config.json (`auto_map`) and holds it beside the weights, for
programs that load it with `trust_remote_code`. In this program `auto` registers the classes of the
package, and no code of a folder is ever run. This module is pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

#: `model_type` of a config.json → (folder of its code, the key `auto_map` of its config.json).
OWN: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "titans_mag": (
        "titans_mag",
        {
            "AutoConfig": "configuration_titans_mag.TitansMagConfig",
            "AutoModelForCausalLM": "modeling_titans_mag.TitansMagForCausalLM",
        },
    )
}


def auto_map(settings: Mapping[str, object]) -> dict[str, str]:
    """Return the value of `auto_map` for a config.json of our architectures; {} for others."""
    entry = OWN.get(str(settings.get("model_type")))
    return dict(entry[1]) if entry else {}


def note(settings: Mapping[str, object]) -> str:
    """Return the paragraph of a model card about our architecture; "" for other architectures."""
    if not auto_map(settings):
        return ""
    return (
        "\ntransformers does not have this architecture: its code lies beside the weights. To load\n"
        "it, other programs than Agent Forge need `trust_remote_code`, which runs that code.\n"
    )


def code(settings: Mapping[str, object]) -> dict[str, bytes]:
    """Return file name → content of the code of this config.json's architecture; {} for others."""
    entry = OWN.get(str(settings.get("model_type")))
    if entry is None:
        return {}
    place = Path(__file__).parent / entry[0]
    return {
        file.name: file.read_bytes()
        for file in sorted(place.glob("*.py"))
        if not file.name.startswith("__")
    }
