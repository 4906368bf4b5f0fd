"""llama.cpp (`xllamacpp`) as a reader of GGUF files that is not our own, in a process that may hang.

Set up to compute as transformers does: no flash attention, a cache of F32, one thread. Its server was
seen to hang, and no timeout of Python reaches what hangs in C++: so it runs in a process of its own,
which is killed in the end.

`python -m testing.services.llama_cpp FILE CONTEXT HIDDEN FD` is that process, which writes its address
to FD.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import urllib.request
import weakref
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[2]
#: Seconds that loading a file may take, and how often it is tried.
PATIENCE, TRIES = 300.0, 3


class LlamaCpp:
    """A loaded file; it answers on the loopback address."""

    def __init__(self, file: Path, context: int = 256, hidden: bool = False) -> None:
        """Load a file; with `hidden` it gives states of the last layer, else it generates.

        Raises RuntimeError with what llama.cpp said if it cannot be loaded.
        """
        said = ""
        for _ in range(TRIES):
            self._process, self._address, said = _started(file, context, hidden)
            if self._address:
                break
        else:
            raise RuntimeError(f"llama.cpp does not load {file}: {said[-2000:]}")
        weakref.finalize(self, _end, self._process)

    @property
    def seconds(self) -> float:
        """Processor seconds of the living threads of its process."""
        tasks = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def _ask(self, path: str, body: Any) -> Any:
        request = urllib.request.Request(
            f"{self._address}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
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


def _started(file: Path, context: int, hidden: bool) -> tuple[subprocess.Popen[bytes], str, str]:
    """Return a process, and its address or else what it said; a process without one is killed."""
    read, write = os.pipe()
    with tempfile.TemporaryFile() as said, os.fdopen(read) as line:
        words = [str(file), str(context), str(int(hidden)), str(write)]
        process = subprocess.Popen(
            [sys.executable, "-m", "testing.services.llama_cpp", *words],
            cwd=REPOSITORY,
            pass_fds=[write],
            stdin=subprocess.PIPE,  # it ends with this process
            stdout=said,
            stderr=said,
        )
        os.close(write)
        ready, _, _ = select.select([line], [], [], PATIENCE)
        if address := line.readline().strip() if ready else "":
            return process, address, ""
        _end(process)
        said.seek(0)
        return process, "", said.read().decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(PATIENCE)
    if process.stdin is not None:
        process.stdin.close()


def main() -> None:
    """Load a file, tell the address, and answer until the standard input is closed."""
    xllamacpp: Any = import_module("xllamacpp")
    file, context, hidden, fd = sys.argv[1:]
    params = xllamacpp.CommonParams()
    params.model.path = file
    params.n_ctx = params.n_batch = params.n_ubatch = int(context)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.n_parallel, params.fit_params, params.cache_ram_mib = 1, False, 0
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.warmup = False
    if int(hidden):
        params.embedding, params.embd_normalize = True, -1
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_NONE
    server = xllamacpp.Server(params)
    os.write(int(fd), f"{server.listening_address}\n".encode())
    sys.stdin.read()
    os._exit(0)  # not by way of the server's end, which may hang


if __name__ == "__main__":
    main()
