"""The architecture (Qwen2, small) and the tokenizer (byte-level BPE)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import torch
from tokenizers import pre_tokenizers, trainers
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.models.qwen2.tokenization_qwen2 import Qwen2Tokenizer

from phases.cognate.errors import PresetError
from phases.cognate.presets import Preset

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
        raise PresetError(
            f"the text gives {core.get_vocab_size()} tokens, the preset asks for {vocabulary}"
        )
    merges: Any = [tuple(pair) for pair in json.loads(core.to_str())["model"]["merges"]]
    return Qwen2Tokenizer(vocab=core.get_vocab(), merges=merges, bos_token=END)


def configuration(preset: Preset) -> Qwen2Config:
    """Return the preset as a transformers configuration."""
    return Qwen2Config(
        architectures=["Qwen2ForCausalLM"],
        vocab_size=preset.vocabulary,
        hidden_size=preset.hidden,
        num_hidden_layers=preset.layers,
        num_attention_heads=preset.heads,
        num_key_value_heads=preset.kv_heads,
        intermediate_size=preset.intermediate,
        max_position_embeddings=preset.context,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
        use_cache=False,
        dtype="float32",
    )


def new_model(preset: Preset, seed: int) -> Any:
    """Return a freshly initialised model. Raises PresetError if its size is not the preset's.

    This is the only use of torch's global generator, whose state is restored afterwards.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(configuration(preset))
    check_size(model, preset)
    return model


def check_size(model: Any, preset: Preset) -> None:
    """Raise PresetError if the number of parameters (tied ones once) is not the preset's."""
    counted = sum(p.numel() for p in model.parameters())
    if counted != preset.parameters:
        raise PresetError(
            f"preset {preset.name} is {preset.parameters:,} parameters, the model has {counted:,}"
        )
