"""The architecture (Qwen2, small) and the tokenizer (byte-level BPE)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from cognate.errors import PresetError
from cognate.presets import Preset

END = "<|endoftext|>"


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE of exactly `vocabulary` tokens: no text is unknown to it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != vocabulary:
        raise PresetError(
            f"the text gives {tokenizer.get_vocab_size()} tokens, the preset asks for {vocabulary}"
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, bos_token=END, pad_token=END
    )


def configuration(preset: Preset) -> Qwen2Config:
    """The preset as a transformers configuration."""
    return Qwen2Config(
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
    """A freshly initialised model. The only use of torch's global generator, and it is put back."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(configuration(preset))
    check_size(model, preset)
    return model


def check_size(model: Any, preset: Preset) -> None:
    """Refuse a model whose parameters (tied ones once) are not the preset's number."""
    counted = sum(p.numel() for p in model.parameters())
    if counted != preset.parameters:
        raise PresetError(
            f"preset {preset.name} is {preset.parameters:,} parameters, the model has {counted:,}"
        )
