"""Tokens a second of an evaluation against a bare transformers loop, 25M parameters, one batch size.

    python -m benchmarks.evaluate

The bare loop is `model(input_ids=…, labels=…)` on the same windows in the same batches. Ours
records the loss of every window and the hits as well.
"""

from __future__ import annotations

import numpy as np
import torch
from transformers import Qwen2ForCausalLM

from benchmarks.common import best, machine
from cognate.model import configuration
from cognate.presets import M25
from evomerge.fitness.perplexity import rows_per_batch, score_windows
from evomerge.fitness.resident import ResidentModel


def main() -> None:
    """Print the ratio."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = Qwen2ForCausalLM(configuration(M25)).eval()
    resident = ResidentModel.from_module(module)
    rng = np.random.default_rng(0)
    windows = [rng.integers(0, M25.vocabulary, 256) for _ in range(64)]
    rows = rows_per_batch(256, M25.vocabulary)
    stacked = torch.from_numpy(np.stack(windows))

    @torch.inference_mode()
    def bare() -> None:
        for start in range(0, len(stacked), rows):
            ids = stacked[start : start + rows]
            float(module(input_ids=ids, labels=ids, use_cache=False).loss)

    tokens = stacked.numel()
    theirs = ours = 0.0
    for _ in range(3):  # in turns, so that a busy moment of the machine hits both
        theirs = max(theirs, tokens / best(bare, 2))
        ours = max(ours, tokens / best(lambda: score_windows(resident, windows), 2))
    ratio = ours / theirs
    print(f"{machine()}; bare {theirs:,.0f} tokens/s, ours {ours:,.0f}: ratio {ratio:.2f} "
          f"({'ok' if ratio >= 0.9 else 'UNDER 0.9'})")  # fmt: skip


if __name__ == "__main__":
    main()
