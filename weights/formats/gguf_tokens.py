"""Tokenizers as GGUF files have them: of which kind one is."""

from __future__ import annotations

from agent_forge.weights.folders.vocabularies import Tokenizer
from agent_forge.weights.formats import byte_bpe, byte_fallback_bpe
from agent_forge.weights.formats.byte_bpe import Tokens


def of(tokenizer: Tokenizer, size: int) -> Tokens:
    """Return a fast tokenizer of transformers for a model whose embedding has `size` rows.

    Raises SourceError for a tokenizer that llama.cpp does not have.
    """
    model = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
    kind = byte_fallback_bpe if getattr(model, "byte_fallback", False) else byte_bpe
    return kind.of(tokenizer, size)
