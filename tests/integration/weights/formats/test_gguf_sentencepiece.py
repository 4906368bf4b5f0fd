"""Tokenizers with byte fallback in GGUF files: llama.cpp cuts text as AutoTokenizer does."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from agent_forge.runs.errors import SourceError
from agent_forge.weights.folders.checkpoint import open_checkpoint
from agent_forge.weights.formats import gguf_file
from testing.services.llama_cpp import LlamaCpp

TEXTS = (
    "The theory of the others is rather that one of these gathered there.",
    "for one in those: print(there, other)  # then   others",
    "Größe und Höhe — naïve",
)
SPECIAL = ("<unk>", "<s>", "</s>")
REPLACE = normalizers.Replace(" ", "▁")
PREPENDED = normalizers.Sequence([normalizers.Prepend("▁"), REPLACE])


def metaspace(scheme: str, split: bool = False) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Metaspace("▁", scheme, split)


#: Name → normaliser, pre-tokenizer, notes on what differs.
WAYS: dict[str, tuple[Any, Any, int]] = {
    "Llama 2, old": (PREPENDED, None, 0),
    "Gemma": (REPLACE, pre_tokenizers.Split(" ", "merged_with_previous"), 0),
    "Metaspace never": (None, metaspace("never"), 0),
    "Metaspace always": (None, metaspace("always"), 1),
    "Metaspace first": (None, metaspace("first"), 2),
}


@cache
def trained() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Vocabulary and merges that `tokenizers` finds, with spaces inside of tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = PREPENDED
    trainer = trainers.BpeTrainer(vocab_size=160, show_progress=False, special_tokens=[])
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    told = json.loads(tokenizer.to_str())["model"]
    return told["vocab"], [tuple(pair) for pair in told["merges"]]


def every_way(vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """All merges of the same tokens in the same order, as conversions of SentencePiece have them."""
    return [
        (token[:at], token[at:])
        for token in dict.fromkeys(left + right for left, right in merges)
        for at in range(1, len(token))
        if token[:at] in vocabulary and token[at:] in vocabulary
    ]


def made(normalizer: Any, splitter: Any, merges: Callable[..., Any] = every_way) -> Any:
    """A tokenizer as transformers loads it."""
    found, pairs = trained()
    vocabulary: dict[str, int] = {}
    for token in (*SPECIAL, *(f"<0x{i:02X}>" for i in range(256)), *found, "[INST]"):
        vocabulary.setdefault(token, len(vocabulary))
    model = models.BPE(
        vocabulary, merges(found, pairs), unk_token="<unk>", fuse_unk=True, byte_fallback=True
    )
    tokenizer = Tokenizer(model)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if splitter is not None:
        tokenizer.pre_tokenizer = splitter
    tokenizer.add_special_tokens([*SPECIAL])
    tokenizer.add_tokens(["[INST]"])
    tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def loaded(tokenizer: Tokenizer, folder: Path) -> Any:
    folder.mkdir(exist_ok=True)
    told = json.loads(tokenizer.to_str())
    for row in told["added_tokens"]:
        row["normalized"] = False  # as transformers adds them
    (folder / "tokenizer.json").write_text(json.dumps(told))
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    told = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    return AutoTokenizer.from_pretrained(folder)


def read(tokenizer: Any, folder: Path) -> tuple[LlamaCpp, gguf_file.Tokens]:
    """llama.cpp with this tokenizer and a model of one layer."""
    rows = len(tokenizer) + 3
    config = LlamaConfig(
        vocab_size=rows,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=1,
        max_position_embeddings=64,
    )
    torch.manual_seed(3)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokens = gguf_file.tokens_of(tokenizer, rows)
    gguf_file.write(open_checkpoint(folder), tokens, folder / "m.gguf", "F32", "toy")
    return LlamaCpp(folder / "m.gguf"), tokens


@pytest.fixture(scope="module", params=WAYS)
def both(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, int]:
    """A tokenizer of each way, llama.cpp with it, and how many notes there are."""
    pytest.importorskip("xllamacpp")
    normalizer, splitter, count = WAYS[request.param]
    folder = tmp_path_factory.mktemp("way")
    tokenizer = loaded(made(normalizer, splitter), folder)
    reader, tokens = read(tokenizer, folder)
    told = [note for note in tokens.notes if "overlap" not in note]
    assert len(told) == count
    return tokenizer, reader, count


def test_llama_cpp_cuts_text_as_the_tokenizer_does(both) -> None:
    tokenizer, reader, _ = both
    texts = (*TEXTS, "two  spaces\n\ttab", "unknown: 日本 🙂 \x00", "the" * 30, "a" + " " * 9 + "b")
    for text in texts:
        ids = tokenizer(text).input_ids
        assert reader.tokenize(text, special=True) == ids
        assert ids[0] == 1


def test_special_tokens_inside_a_text(both) -> None:
    """Unless a note says that what follows them differs."""
    tokenizer, reader, count = both
    text = "there</s>[INST]other<s>the [INST]"
    equal = reader.tokenize(text, special=True) == tokenizer(text).input_ids
    assert equal == (count < 2)


def test_a_text_that_begins_with_a_space(both) -> None:
    """Unless a note says that it differs."""
    tokenizer, reader, count = both
    equal = reader.tokenize("  the", special=True) == tokenizer("  the").input_ids
    assert equal == (count < 1)


LETTERS = st.sampled_from([*"thero aniß\n日", "the", "there", "  "])


@settings(max_examples=150, deadline=None)
@given(st.lists(LETTERS, max_size=40))
def test_any_text_is_cut_alike(both, parts: list[str]) -> None:
    tokenizer, reader, count = both
    text = "".join(parts)
    text = text.lstrip(" ") if count else text
    assert reader.tokenize(text, special=True) == tokenizer(text).input_ids


def test_a_tokenizer_with_single_merges_is_refused(tmp_path: Path) -> None:
    """As `tokenizers` trains them: llama.cpp would join other neighbours, too."""
    tokenizer = loaded(made(PREPENDED, None, lambda found, pairs: pairs), tmp_path)
    with pytest.raises(SourceError, match="merges are not those of SentencePiece"):
        gguf_file.tokens_of(tokenizer, 1000)


def refused(match: str, tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    told = json.loads(made(REPLACE, None).to_str())
    gguf_file.tokens_of(loaded(Tokenizer.from_str(json.dumps(told)), tmp_path), 1000)
    change(told)
    with pytest.raises(SourceError, match=match):
        gguf_file.tokens_of(loaded(Tokenizer.from_str(json.dumps(told)), tmp_path), 1000)


def test_other_normalisers_and_splits_are_refused(tmp_path: Path) -> None:
    nfkc = {"type": "NFKC"}
    digits = {"type": "Digits", "individual_digits": True}
    refused("otherwise than SentencePiece", tmp_path, lambda told: told.update(normalizer=nfkc))
    refused("otherwise than SentencePiece", tmp_path, lambda told: told.update(pre_tokenizer=digits))


def test_missing_bytes_and_broken_orders_are_refused(tmp_path: Path) -> None:
    def no_byte(told: dict[str, Any]) -> None:
        vocabulary = told["model"]["vocab"]
        vocabulary["other"] = vocabulary.pop("<0x41>")

    def apart(told: dict[str, Any]) -> None:
        merges = told["model"]["merges"]
        twice = next(i for i in range(len(merges)) if "".join(merges[i]) == "".join(merges[i + 1]))
        merges.append(merges.pop(twice))

    def strips(told: dict[str, Any]) -> None:
        told["added_tokens"][-1]["lstrip"] = True

    refused("no token for the byte <0x41>", tmp_path, no_byte)
    refused("do not stand together", tmp_path, apart)
    refused("is found with the spaces beside it", tmp_path, strips)


def test_tokens_after_a_text_are_told_or_refused(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    tokenizer = made(REPLACE, None)
    ends = [("<s>", 1), ("</s>", 2)]
    tokenizer.post_processor = TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    found = loaded(tokenizer, tmp_path)
    assert read(found, tmp_path)[0].tokenize("the", special=True) == found("the").input_ids
    tokenizer.post_processor = TemplateProcessing(single="<s> <s> $A", special_tokens=ends[:1])
    with pytest.raises(SourceError, match="adds other tokens to a text"):
        gguf_file.tokens_of(loaded(tokenizer, tmp_path), 1000)
