"""Forward passes compiled by TorchInductor (`torch.compile`), from token ids to losses.

Of one module and one shape, so that which passes are compiled hangs on nothing but shapes. Weights
stay what they are in the module: parameters that can be pointed elsewhere, without compiling again.
Nothing that was compiled is kept on disk but shared objects: its other caches are pickles.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from importlib import metadata
from typing import Any

import torch
from torch.nn import functional as F

#: [batch, length] ids → −log p (float32) and whether it was the most likely token, both
#: [batch, length − 1], on the ids' device.
Scorer = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def scored(logits: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What a `Scorer` gives, from the ids and their logits [batch, length, vocabulary]."""
    predicted, targets = logits[:, :-1].float(), ids[:, 1:]
    losses = F.cross_entropy(predicted.flatten(0, 1), targets.flatten(), reduction="none")
    return losses.view_as(targets), predicted.argmax(dim=-1) == targets


def compiler(device: torch.device) -> str:
    """What compiles for a device, with its version; empty where nothing does."""
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
    told = subprocess.run([name, "--version"], capture_output=True, text=True, check=False)
    return told.stdout.splitlines()[0] if told.returncode == 0 and told.stdout else ""


def scorer(module: Any) -> Scorer:
    """Compiled when it is first called. Raises torch._dynamo.exc.TorchDynamoException then, where the
    module's code cannot be.
    """
    import torch._dynamo.config
    import torch._functorch.config

    torch._functorch.config.enable_autograd_cache = False
    torch._dynamo.config.automatic_dynamic_local_pgo = False

    def whole(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return scored(module(input_ids=ids, use_cache=False).logits, ids)

    compile_: Any = torch.compile  # its types lack `isolate_recompiles`
    return compile_(
        whole, fullgraph=True, dynamic=False, isolate_recompiles=True,
        # For the vector instructions that torch names as the machine's capability, which profiles pin,
        # not for this very processor.
        options={"fx_graph_cache": False, "compile_threads": 1, "cpp.march": ""},
    )  # fmt: skip
