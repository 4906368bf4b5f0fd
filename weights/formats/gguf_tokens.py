"""Choice of the converter of a tokenizer to GGUF: byte-level BPE, or BPE with bytes as fallback."""

from __future__ import annotations

from agent_forge.weights.folders.vocabularies import Tokenizer
from agent_forge.weights.formats import byte_bpe, byte_fallback_bpe
from agent_forge.weights.formats.byte_bpe import Tokens


def of(tokenizer: Tokenizer, size: int) -> Tokens:
    """Return a tokenizer as GGUF's Tokens, for a model whose embedding has `size` rows.

    Raises SourceError for a tokenizer that llama.cpp does not have.
    """
    model = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
    kind = byte_fallback_bpe if getattr(model, "byte_fallback", False) else byte_bpe
    return kind.of(tokenizer, size)
