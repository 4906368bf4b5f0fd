"""Tokenizers of GGUF files as sources: text has the tokens that llama.cpp gives it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoTokenizer

from agent_forge.runs.errors import SourceError
from agent_forge.weights.folders.gguf_source import conversion, tokens
from testing.services.llama_cpp import LlamaCpp
from testing.shares import one_quick

CODE = 'def f(x):\n\treturn {"a": x[1:-2] ** 3.14}  # naïve\n\n\n    if x != 0:\r\n        pass\n'
TEXTS = (
    CODE,
    "1234567 0.5 ٣٤٥ ½ ²³ 12 3456 IV Ⅷ",
    "I'm sure they'LL say it's DON'T don’t we've",
    "CamelCase snake_case HTTPServer ünïcödé ÄÖÜ ßẞ",
    "Здравствуй, мир! Ελληνικά עברית العربية हिन्दी ไทย 日本語のテキスト 한국어 中文。",
    "🙂👩‍👩‍👧‍👦🇨🇭 e\u0301 a\u0308 \u200b ﬁ",
    "  two   spaces\t\ttabs \n \n\n  end   ",
    " begins with one",
    "<|im_start|>user\nhi<|im_end|>\n<tool> x </tool>",
    "$10 + 5% = a/b\\c~`^|<>[]{}()@#&*!?...,;:'\"",
    "",
)
CONTROL, DEFINED = ("<|bos|>", "<|im_start|>", "<|im_end|>", "<unk>"), ("<tool>", "   ")


def hyperparameters(writer: gguf.GGUFWriter, rows: int) -> None:
    """A model of one layer with weights of zero: only its tokens are of interest."""
    writer.add_block_count(1)
    writer.add_context_length(4096)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(32)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(rows)
    square = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_gate", "ffn_down")
    for name in square:
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros((32, 32), np.float32))
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(32, np.float32))
    writer.add_tensor("token_embd.weight", np.zeros((rows, 32), np.float32))


@cache
def byte_level() -> tuple[list[str], list[str]]:
    """Tokens and merges that `tokenizers` finds in the texts, by GPT-2's splitting."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=500, show_progress=False, initial_alphabet=alphabet)
    tokenizer.train_from_iterator([text for text in TEXTS[:-1] for _ in range(3)], trainer)
    model: Any = json.loads(tokenizer.to_str())["model"]
    names = sorted(model["vocab"], key=model["vocab"].get)
    return names, [" ".join(pair) for pair in model["merges"]]


def file_of(
    file: Path,
    model: str,
    names: list[str],
    merges: list[str] | None = None,
    scores: list[float] | None = None,
    kinds: dict[str, int] | None = None,
    **more: Any,
) -> Path:
    """Write a GGUF file with a tokenizer; `more` are entries of `tokenizer.ggml`."""
    writer = gguf.GGUFWriter(file, "llama")
    names = [*names, *CONTROL, *DEFINED]
    hyperparameters(writer, len(names))
    writer.add_tokenizer_model(model)
    writer.add_token_list(names)
    usual = dict.fromkeys(CONTROL, tokens.CONTROL) | dict.fromkeys(DEFINED, tokens.USER_DEFINED)
    told = usual | (kinds or {})
    writer.add_token_types([told.get(name, tokens.NORMAL) for name in names])
    if merges is not None:
        writer.add_token_merges(merges)
    if scores is not None:
        writer.add_token_scores([*scores, *[0.0] * (len(names) - len(scores))])
    writer.add_bos_token_id(names.index("<|bos|>"))
    writer.add_eos_token_id(names.index("<|im_end|>"))
    writer.add_unk_token_id(names.index("<unk>"))
    for key, value in more.items():
        key = f"tokenizer.ggml.{key}"
        writer.add_string(key, value) if isinstance(value, str) else writer.add_bool(key, value)
    writer.add_chat_template("{{ messages[0].content }}")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def compare(file: Path, cache_: Path, texts: tuple[str, ...] = TEXTS) -> Any:
    """Return the tokenizer; every text has llama.cpp's tokens, with and without bos and eos."""
    pytest.importorskip("xllamacpp")
    tokenizer = AutoTokenizer.from_pretrained(conversion.folder(file, cache_, "x"))
    theirs = LlamaCpp(file)
    for text in texts:
        assert tokenizer(text, add_special_tokens=False).input_ids == theirs.tokenize(text), text
        assert tokenizer(text).input_ids == theirs.tokenize(text, special=True), text
    return tokenizer


#: One name of each way to split.
WAYS = {way: name for name, way in tokens.SPLITTINGS.items()}


@pytest.mark.parametrize("name", one_quick("smollm", *sorted(set(WAYS.values()) - {"smollm"})))
def test_byte_level_tokens_are_llama_cpp_s(tmp_path: Path, name: str) -> None:
    """Code, numbers, scripts, emoji, spaces and special tokens; by every way to split."""
    names, merges = byte_level()
    file = file_of(tmp_path / "m.gguf", "gpt2", names, merges, pre=name)
    cased = name in ("tekken", "gpt-4o", "llama4")  # llama.cpp knows capitals of ASCII alone
    tokenizer = compare(file, tmp_path / "cache", tuple(t for t in TEXTS if not (cased and "ÄÖÜ" in t)))
    for text in TEXTS:
        assert tokenizer.decode(tokenizer(text, add_special_tokens=False).input_ids) == text
    assert tokenizer.chat_template == "{{ messages[0].content }}"
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|bos|>", "<|im_end|>")


@cache
def sentence_piece() -> tuple[list[str], list[float]]:
    """Tokens of SentencePiece's BPE with scores, those of bytes first."""
    tokenizer = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=450, show_progress=False)
    spaced = [text.replace(" ", tokens.SPACE) for text in TEXTS[:-1] for _ in range(3)]
    tokenizer.train_from_iterator(spaced, trainer)
    vocabulary = tokenizer.get_vocab()
    learned = sorted(vocabulary, key=lambda name: vocabulary[name])
    names = [*(f"<0x{byte:02X}>" for byte in range(256)), *learned]
    return names, [0.0] * 256 + [-float(rank) for rank in range(len(learned))]


@pytest.mark.parametrize("more", [{}, {"add_space_prefix": False}, {"add_eos_token": True}])
def test_sentence_piece_tokens_are_llama_cpp_s(tmp_path: Path, more: dict[str, bool]) -> None:
    """Scores become merges; bytes stand for what has no token; a text may get a space in front."""
    names, scores = sentence_piece()
    kinds = dict.fromkeys(names[:256], tokens.BYTE) | {"<unk>": tokens.UNKNOWN}
    file = file_of(tmp_path / "m.gguf", "llama", names, scores=scores, kinds=kinds, **more)
    compare(file, tmp_path / "cache")


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, Any]]:
    """Tokenizers beside llama.cpp with the same file."""
    pytest.importorskip("xllamacpp")
    folder = tmp_path_factory.mktemp("both")
    names, merges = byte_level()
    files = [file_of(folder / "b.gguf", "gpt2", names, merges, pre="llama-bpe")]
    names, scores = sentence_piece()
    kinds = dict.fromkeys(names[:256], tokens.BYTE) | {"<unk>": tokens.UNKNOWN}
    files.append(file_of(folder / "s.gguf", "llama", names, scores=scores, kinds=kinds))
    places = [conversion.folder(file, folder / "cache", "x") for file in files]
    return [
        (AutoTokenizer.from_pretrained(place), LlamaCpp(file))
        for place, file in zip(places, files, strict=True)
    ]


WORDS = st.sampled_from([*"abet10 \n.,'é日🙂", *CONTROL, "<tool>", "   ", "the", " 's"])


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(WORDS, max_size=12).map("".join))
def test_any_text_has_llama_cpp_s_tokens(readers: list[tuple[Any, Any]], text: str) -> None:
    for ours, theirs in readers:
        assert ours(text, add_special_tokens=False).input_ids == theirs.tokenize(text)


@pytest.mark.parametrize(
    ("model", "more", "what"),
    [
        ("gpt2", {"pre": "unheard-of"}, "in the way 'unheard-of'.*known are a.x"),
        ("bert", {}, "its tokenizer is 'bert'"),
        ("gpt2", {"merges": ["a nothing"]}, "merges 'a nothing'"),
        ("gpt2", {"merges": None}, "has no merges"),
        ("llama", {"scores": None}, "has no scores"),
        ("llama", {"scores": [float("nan")]}, "NaN or Inf"),
    ],
)
def test_a_tokenizer_that_is_not_known_is_refused_by_name(
    tmp_path: Path, model: str, more: dict[str, Any], what: str
) -> None:
    names, merges = byte_level()
    words: dict[str, Any] = {"merges": merges, "scores": [0.0], "pre": "smollm", **more}
    file = file_of(tmp_path / "m.gguf", model, names, **words)
    with pytest.raises(SourceError, match=what):
        conversion.folder(file, tmp_path / "cache", "x")
