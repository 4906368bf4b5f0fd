"""Parts that all model cards share: the Hub's models behind a model, and code to load it. No torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from agent_forge.weights import architectures

#: Ending of a file of coded weights.
CODED = ".forge"


def lines(folder: str, names: Sequence[str], config: Mapping[str, object]) -> list[str]:
    """Return lines of Python that load model and tokenizer from a folder with files of these names.

    `config` is the folder's config.json, empty if there is none. [] means that there is no model.
    """
    coded = [name for name in names if name.endswith(CODED)]
    if coded:
        file = f'"{folder}/{coded[0]}"'
        return [
            "from agent_forge import load, load_tokenizer",
            f"model = load({file})",
            f"tokenizer = load_tokenizer({file})",
        ]
    if not config:
        return []
    has_code = bool(architectures.auto_map(config))  # its code lies in the folder
    trust = f", trust_remote_code={has_code}" if has_code else ""
    return [
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        f'model = AutoModelForCausalLM.from_pretrained("{folder}"{trust})',
        f'tokenizer = AutoTokenizer.from_pretrained("{folder}"{trust})',
    ]


def merged_from(hub_ids: Iterable[str]) -> list[str]:
    """Return the front matter's lines on the Hub's models of a merge; [] if there are none.

    A GGUF file counts as its repository. Folders are left out: their paths mean nothing on another
    machine.
    """
    repositories = dict.fromkeys("/".join(id_.split("/")[:2]) for id_ in hub_ids)
    ids = [f"- {json.dumps(id_)}" for id_ in repositories]
    return ["base_model:", *ids, "base_model_relation: merge"] if ids else []


def section(config: Mapping[str, object]) -> str:
    """Return the Markdown section "Use" of a model card, with code that loads the model."""
    code = "\n".join(lines(".", (), config))
    return f"\n## Use\n\nIn the folder of this file:\n\n```python\n{code}\n```\n"
