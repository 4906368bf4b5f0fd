"""The architecture as a configuration, and the tokenizer (byte-level BPE)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tokenizers import pre_tokenizers, trainers
from transformers import PretrainedConfig
from transformers.models.qwen2.tokenization_qwen2 import Qwen2Tokenizer

from phases.cognate import architectures
from phases.cognate.errors import PresetError
from phases.cognate.presets import Preset
from weights.operations import qwen2_init, titans_mag_init

END = "<|endoftext|>"


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Qwen2Tokenizer:
    """Train a byte-level BPE of exactly `vocabulary` tokens, which can encode any text.

    It splits text as Qwen2's own tokenizer does, because AutoTokenizer will split so when it reads
    a Qwen2 folder. With another splitting every user would get other tokens than the model was
    trained on. Raises PresetError if the texts give another number of tokens.
    """
    core = Qwen2Tokenizer().backend_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    if core.get_vocab_size() != vocabulary:
        count = core.get_vocab_size()
        raise PresetError(
            f"the text gives {count} tokens, and the tokenizer needs {vocabulary}: too few pieces of "
            f"the text come more than once. Set vocabulary to {count} (--set vocabulary={count}), or "
            "give more, and more varied, text."
        )
    merges: Any = [tuple(pair) for pair in json.loads(core.to_str())["model"]["merges"]]
    return Qwen2Tokenizer(vocab=core.get_vocab(), merges=merges, bos_token=END)


def configuration(preset: Preset) -> PretrainedConfig:
    """Return the preset as a transformers configuration."""
    operation, shape = architectures.initialisation(preset)
    if operation == "titans-mag-init@1":
        return titans_mag_init.configuration(titans_mag_init.Shape(**shape))
    return qwen2_init.configuration(qwen2_init.Shape(**shape))
