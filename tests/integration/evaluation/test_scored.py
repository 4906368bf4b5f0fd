"""Losses in little memory are those of the whole logits, to the bit."""

from __future__ import annotations

import pytest
import torch

from agent_forge.evaluation.backends import inductor, local_backend


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "length", "vocabulary"), [(3, 40, 300), (2, 90, 49152), (2, 1, 7)])
def test_chunks_change_no_bit(rows: int, length: int, vocabulary: int, dtype: torch.dtype) -> None:
    """Ties, of which bfloat16 has many, go to the first of the likeliest; NaN stays NaN."""
    draws = torch.Generator().manual_seed(0)
    logits = (torch.randn(rows, length, vocabulary, generator=draws) * 3).to(dtype)
    ids = torch.randint(0, vocabulary, (rows, length), generator=draws)
    if length > 1:
        likeliest = logits.argmax(dim=-1)
        ids[:, 1::3] = likeliest[:, :-1][:, ::3]  # every third token is the likeliest
        logits[0, 3] = logits[0, 3, 0]
        logits[0, 4, int(ids[0, 5])] = float("nan")
        logits[0, 6, int(ids[0, 7]) - 1] = float("nan")
    losses, best = local_backend.scored(logits, ids)
    whole_losses, whole_best = inductor.scored(logits, ids)
    assert torch.equal(losses.nan_to_num(-1), whole_losses.nan_to_num(-1))
    assert torch.equal(best, whole_best)
    assert length == 1 or 0 < int(best.sum()) < best.numel()
