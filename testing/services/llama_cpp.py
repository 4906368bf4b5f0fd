"""llama.cpp in this process (`xllamacpp`), as a reader of GGUF files that is not our own.

Set up to compute as transformers does: no flash attention, a cache of F32, one thread.
"""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np


class LlamaCpp:
    """A loaded file; it answers on the loopback address."""

    def __init__(self, file: Path, context: int = 256, hidden: bool = False) -> None:
        """Load a file; with `hidden` it gives states of the last layer, else it generates."""
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = str(file)
        params.n_ctx = params.n_batch = params.n_ubatch = context
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        params.n_parallel, params.fit_params, params.cache_ram_mib = 1, False, 0
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        params.warmup = False
        if hidden:
            params.embedding, params.embd_normalize = True, -1
            params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_NONE
        self._server = xllamacpp.Server(params)

    def _ask(self, path: str, body: Any) -> Any:
        request = urllib.request.Request(
            f"{self._server.listening_address}{path}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def tokenize(self, text: str, special: bool = False) -> list[int]:
        """Return the ids of a text; if `special`, with those that the file adds to every text."""
        return self._ask("/tokenize", {"content": text, "add_special": special})["tokens"]

    def states(self, ids: list[int]) -> np.ndarray:
        """Return [tokens, hidden] float64: states after the last norm."""
        told = self._ask("/embedding", {"content": ids, "embd_normalize": -1})
        return np.array(told[0]["embedding"])

    def greedy(self, ids: list[int], count: int) -> list[int]:
        """Return the most likely continuation, token by token."""
        wanted = {
            "prompt": ids,
            "n_predict": count,
            "temperature": 0,
            "samplers": ["top_k"],
            "top_k": 1,
            "return_tokens": True,
            "ignore_eos": True,
        }
        return self._ask("/completion", wanted)["tokens"]
