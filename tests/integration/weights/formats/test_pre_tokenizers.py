"""Ways to split text, by llama.cpp's names: tokens of text are the same there."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, models, trainers
from tokenizers import pre_tokenizers as steps
from transformers import PreTrainedTokenizerFast

from agent_forge.evaluation.data.builtin import corpus
from agent_forge.runs.errors import SourceError
from agent_forge.weights.folders.checkpoint import open_checkpoint
from agent_forge.weights.formats import byte_bpe, gguf_file
from testing.models.toys import Toys
from testing.services.llama_cpp import LlamaCpp
from testing.shares import one_quick

#: Rows of the toys' embedding.
SIZE = 320
TEXTS = (
    "def f(x):\n    return x+1 # 12345 and 7 and 2026-11-29",
    "Größe, naïve — 日本 русский नमस्ते 'RE you've it's I'LL",
    "  two  spaces\t\r\n\n\n   end  ",
    "\n1\n 22\n  333 4444a b5",
    byte_bpe.TEXT,
)
WAYS = {name: way for way, name in byte_bpe.SPLITS.items()}


def tokenizer(way: tuple[tuple[str, ...], bool]) -> Any:
    """Train a byte-level BPE that splits text in a way of SPLITS."""
    patterns, whole = way
    core: Any = Tokenizer(models.BPE(ignore_merges=whole))
    parts = [
        steps.Digits(individual_digits=True)
        if pattern == byte_bpe.DIGITS
        else steps.Split(Regex(pattern), "isolated")
        for pattern in patterns
    ]
    own = patterns in ((), (byte_bpe.DIGITS,))
    level = steps.ByteLevel(add_prefix_space=False, use_regex=own)
    core.pre_tokenizer = steps.Sequence([*parts, level]) if parts else level
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        initial_alphabet=steps.ByteLevel.alphabet(),
        special_tokens=["<s>"],
        show_progress=False,
    )
    texts = [row["text"] for row in corpus.default(1) if "text" in row]
    core.train_from_iterator([*texts[:200], *TEXTS], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="<s>")


@pytest.mark.parametrize("name", one_quick("smollm", *sorted({*WAYS} - {"smollm"})))
def test_llama_cpp_cuts_text_alike_by_the_name_of_each_way(
    toys: Toys, tmp_path: Path, name: str
) -> None:
    pytest.importorskip("xllamacpp")
    trained, file = tokenizer(WAYS[name]), tmp_path / "m.gguf"
    tokens = byte_bpe.of(trained, SIZE)
    assert tokens.split == name
    gguf_file.write(open_checkpoint(toys.base), tokens, file, "F32", "toy")
    reader = LlamaCpp(file)
    for text in TEXTS:
        assert reader.tokenize(text) == trained.encode(text, add_special_tokens=False)


def test_a_published_tokenizer_is_known_by_the_hash_of_its_tokens(monkeypatch) -> None:
    """The hash, not the steps: transformers may load a tokenizer with other steps than its file has."""
    trained = tokenizer(((), False))
    ids = trained.encode(byte_bpe.TEXT)
    hashes = {hashlib.sha256(str(ids).encode()).hexdigest(): "smollm"}
    monkeypatch.setattr(byte_bpe, "HASHES", hashes)
    assert byte_bpe.of(trained, SIZE).split == "smollm"


@pytest.mark.parametrize(
    "step",
    [
        steps.Whitespace(),
        steps.ByteLevel(add_prefix_space=True),
        steps.Sequence([steps.Digits(individual_digits=False), steps.ByteLevel(False)]),
        steps.Sequence([steps.Split(Regex(r"\w+"), "isolated"), steps.ByteLevel(False)]),
    ],
)
def test_a_way_without_a_name_is_refused(step: Any) -> None:
    trained = tokenizer(((), False))
    trained.backend_tokenizer.pre_tokenizer = step
    with pytest.raises(SourceError, match=r"has no name in llama\.cpp here: known are those of a\.x"):
        byte_bpe.of(trained, SIZE)


def test_the_text_and_the_hashes_are_those_of_the_converter() -> None:
    """Its text has this SHA-256; 64 digits a hash."""
    digest = hashlib.sha256(byte_bpe.TEXT.encode()).hexdigest()
    assert digest == "a36179c1e2b1cfcfbfad1dc779addad2ffc778201e4cf0d538bddeafa2c526da"
    assert all(len(key) == 64 and int(key, 16) for key in byte_bpe.HASHES)
