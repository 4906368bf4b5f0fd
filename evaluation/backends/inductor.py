"""Forward passes compiled by TorchInductor (`torch.compile`), from token ids to losses.

One module and one shape are compiled, so that only its shape decides if a pass is compiled. Weights
stay parameters of the module: they can be pointed at other tensors without compiling again.
TorchInductor's caches of pickles are off; generated sources and shared objects stay on disk.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from agent_forge.runs.errors import UnavailableError

#: [batch, length] ids → −log p (float32) and True for each most likely token, both
#: [batch, length − 1], on the ids' device.
Scorer = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def scored(logits: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (−log p of each next token, True if it is the likeliest), both [batch, length − 1].

    For compiled passes, which fuse it; `local_backend.scored` gives the same in little memory.
    """
    predicted, targets = logits[:, :-1].float(), ids[:, 1:]
    losses = F.cross_entropy(predicted.flatten(0, 1), targets.flatten(), reduction="none")
    return losses.view_as(targets), predicted.argmax(dim=-1) == targets


class NotCompiledError(UnavailableError):
    """Forward passes cannot be compiled, on this machine or for this model."""


def compiler(device: torch.device) -> str:
    """Return a device's compiler, its version and instruction set as text; '' without a compiler."""
    if device.type == "cuda":
        try:
            return f"triton {metadata.version('triton')}"
        except metadata.PackageNotFoundError:
            return ""
    return _of_system(os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++"))


@lru_cache
def _of_system(name: str) -> str:
    if shutil.which(name) is None:
        return ""
    process = subprocess.run([name, "--version"], capture_output=True, text=True, check=False)
    if process.returncode or not process.stdout:
        return ""
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    return f"{process.stdout.splitlines()[0]}, {pick_vec_isa()}"


def scorer(module: torch.nn.Module) -> Scorer:
    """Return a `Scorer` that compiles the module when it is first called.

    That call raises NotCompiledError if the module cannot be compiled.
    """
    import torch._dynamo.config
    import torch._functorch.config
    from torch._dynamo.exc import TorchDynamoException

    torch._functorch.config.enable_autograd_cache = False
    torch._dynamo.config.automatic_dynamic_local_pgo = False
    device = next(module.parameters()).device
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = _folder(compiler(device))

    def whole(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return scored(module(input_ids=ids, use_cache=False).logits, ids)

    run = _compile(whole, device)

    def compiled(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        try:
            return run(ids)
        except TorchDynamoException as error:
            lines = str(error).strip().splitlines()
            raise NotCompiledError(
                f"evaluation cannot be compiled here, {type(error).__name__}: "
                f"{lines[0] if lines else ''}"
            ) from error

    return compiled


def _compile(function: Callable, device: torch.device) -> Callable:
    """Return the function under `torch.compile`: for one shape, without caches of pickles or timing.

    Raises NotCompiledError if this version of torch cannot leave this processor's own instructions
    out of compiled code: they are no part of the profile.
    """
    from torch._inductor import config

    options: dict[str, Any] = {"fx_graph_cache": False, "compile_threads": 1, "deterministic": True}
    if device.type == "cpu":
        if not hasattr(config.cpp, "march"):
            raise NotCompiledError(
                f"torch {torch.__version__} compiles for all instructions of this very processor, "
                "which no profile pins; torch 2.13 can leave them out."
            )
        options["cpp.march"] = ""  # the instructions that `compiler` names, and no more
    further: dict[str, Any] = {}
    if "isolate_recompiles" in inspect.signature(torch.compile).parameters:  # not in torch 2.11
        further["isolate_recompiles"] = True
    compile_: Any = torch.compile  # its types lack `isolate_recompiles`
    return compile_(function, fullgraph=True, dynamic=False, options=options, **further)


@lru_cache
def _folder(made_by: str) -> str:
    """Return the path of this user's folder for code of one compiler (file names do not tell which).

    If another user owns this folder or can write to it, return a new temporary folder.
    """
    digest = hashlib.sha256(made_by.encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"evomerge-compiled-{os.getuid()}-{digest}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022:
        return str(folder)
    return tempfile.mkdtemp(prefix="evomerge-compiled-")
