"""Models in files of coded weights, loaded as models of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def load_coded(file: str | Path, dtype: Any = None) -> Any:
    """Return the causal language model of transformers in a file that `forge` wrote.

        coded = forge.load_coded("small/model.forge")

    `dtype`: a torch dtype for all weights; None: the model's own. Raises SourceError, TamperedError.
    """
    from weights.formats.decompression import load_model

    return load_model(Path(file), dtype)


def load_coded_tokenizer(file: str | Path) -> Any:
    """Return the tokenizer in a file of coded weights.

        coded_tokenizer = forge.load_coded_tokenizer("small/model.forge")

    Raises SourceError if the file holds none, TamperedError.
    """
    from weights.formats.decompression import load_tokenizer

    return load_tokenizer(Path(file))
