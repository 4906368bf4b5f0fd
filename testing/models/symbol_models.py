"""Models of the task families' symbols: a token for each, new weights, of some thousand parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from string import ascii_lowercase, digits
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

from agent_forge.weights import operations
from agent_forge.weights.folders.checkpoint import SHARD_BYTES, write_weights
from agent_forge.weights.recipes import Transform

#: The words that tasks are written in, a token each; the end token has id 0.
SYMBOLS = (
    *("<end>", "<unknown>", *ascii_lowercase, *digits, *"()[]{}<>=+-:"),
    *("add", "subtract", "close", "look", "reverse", "sort", "step"),
)
#: Longest sequence of the models.
POSITIONS = 128
#: A shape that learns a constant answer in some seconds.
SMALL = {"hidden": 32, "layers": 2, "heads": 2, "kv_heads": 2, "intermediate": 64}


def write(folder: Path, shape: Mapping[str, int] = SMALL, seed: int = 0) -> Path:
    """Write a model with new weights and a tokenizer of `SYMBOLS`; return the folder."""
    words = {word: number for number, word in enumerate(SYMBOLS)}
    core: Any = Tokenizer(WordLevel(words, unk_token="<unknown>"))
    core.pre_tokenizer = WhitespaceSplit()
    tokenizer: Any = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<end>", pad_token="<end>", unk_token="<unknown>"
    )
    params = {**shape, "vocabulary": len(tokenizer), "context": POSITIONS}
    recipe = operations.complete(Transform(operation="qwen2-init@1", params=params, seed=seed))
    model = operations.apply(recipe, {})
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(dict(model.config), indent=1), "utf-8")
    write_weights(folder, model.weights, SHARD_BYTES)
    return folder
