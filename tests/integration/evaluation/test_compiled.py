"""Compiled passes: the same numbers, weights still swapped, and only the shape that was asked for."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agent_forge.evaluation import autotune
from agent_forge.evaluation.backends import inductor
from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data.packing import ItemPack
from agent_forge.evaluation.measures import perplexity

CONTEXT, ROWS = 16, 4


def windows(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(1, 320, CONTEXT) for _ in range(count)]


@pytest.mark.slow
def test_the_same_losses_from_whatever_weights_are_loaded(resident, weights, monkeypatch) -> None:
    """Compiled once; a swap needs no second time. Hits are the same, losses to the sixth digit."""
    other = {n: t * 1.5 for n, t in weights.items()}
    ids = torch.from_numpy(np.stack(windows(ROWS)))
    plain = {}
    for name, own in (("a", weights), ("b", other)):
        resident.load(own)
        plain[name] = resident.token_losses(ids)
    resident.compiled = (ROWS, CONTEXT)
    for name, own in (("b", other), ("a", weights), ("b", other)):
        resident.load(own)
        losses, best = resident.token_losses(ids)
        assert losses.dtype == np.float32
        np.testing.assert_allclose(losses, plain[name][0], rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(best, plain[name][1])
        monkeypatch.setattr(resident, "logits", lambda ids: pytest.fail("not compiled"))
    assert not np.allclose(plain["a"][0], plain["b"][0], rtol=1e-3)
    data = {"d": ItemPack(windows=windows(6))}
    monkeypatch.undo()
    resident.batch_tokens = ROWS * CONTEXT
    tried = autotune.compiled(resident, [weights, other], data, CONTEXT)
    assert tried.ratio > 0
    assert tried.seconds > 0
    assert tried.change < 1e-5
    assert resident.compiled is None


def test_only_full_batches_are_compiled(resident, monkeypatch) -> None:
    """Nine windows, four a pass: two passes are, the last is not, nor is any other shape."""
    seen: list[tuple[int, ...]] = []

    def scorer(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen.append(tuple(ids.shape))
        return inductor.scored(resident.logits(ids), ids)

    monkeypatch.setattr(inductor, "scorer", lambda module: scorer)
    resident.batch_tokens, resident.compiled = ROWS * CONTEXT, (ROWS, CONTEXT)
    asked = [w[:7] for w in windows(ROWS)]
    found = perplexity.score_windows(resident, [*windows(9), *asked])
    assert seen == [(ROWS, CONTEXT)] * 2
    resident.compiled = None
    assert perplexity.score_windows(resident, [*windows(9), *asked]) == found


def test_other_depths_are_not_compiled(resident, weights, monkeypatch) -> None:
    monkeypatch.setattr(inductor, "scorer", lambda module: pytest.fail("compiled"))
    resident.compiled = (ROWS, CONTEXT)
    blocks = resident.config.num_hidden_layers
    last = f"model.layers.{blocks - 1}."
    longer = weights | {
        n.replace(last, f"model.layers.{blocks}."): t for n, t in weights.items() if last in n
    }
    resident.load(longer, blocks + 1)
    resident.token_losses(torch.from_numpy(np.stack(windows(ROWS))))


@pytest.mark.parametrize(
    ("ratio", "change", "tokens", "pays"),
    [
        (1.5, 0.0, 3_100, True),
        (1.5, 0.0, 2_900, False),
        (1.05, 0.0, 1e9, False),
        (1.5, 0.006, 1e9, False),
    ],
)
def test_it_must_win_back_what_compiling_takes(ratio, change, tokens, pays) -> None:
    """By hand: 3,000 tokens at 100 a second are 30 s, a third of it is saved, compiling takes 10."""
    assert autotune.Trial(ratio, change, 10.0, 100.0).pays(tokens) is pays


def test_it_is_tried_on_whole_windows_of_every_domain(resident: ResidentModel, weights) -> None:
    short = {"a": ItemPack(windows=[w[:9] for w in windows(3)])}
    with pytest.raises(
        inductor.NotCompiledError, match="no calibration text is as long as a window of 16 tokens"
    ):
        autotune.compiled(resident, [weights], short, CONTEXT)
    one, two = windows(2)
    full = autotune.full_batch(
        short | {"b": ItemPack(windows=[two]), "a": ItemPack(windows=[one])}, 3, 16
    )
    np.testing.assert_array_equal(full, [one, two, one])


@pytest.mark.slow
def test_code_that_cannot_be_compiled_is_said(resident, weights, monkeypatch) -> None:
    """What looks at a value on its way; the model is left as it was."""
    forward = resident.module.forward

    def looking(input_ids: torch.Tensor, **options: Any) -> Any:
        return forward(input_ids=input_ids, **options) if int(input_ids.sum()) >= 0 else None

    monkeypatch.setattr(resident.module, "forward", looking)
    resident.batch_tokens = ROWS * CONTEXT
    with pytest.raises(inductor.NotCompiledError, match="data-dependent"):
        autotune.compiled(resident, [weights], {"d": ItemPack(windows=windows(4))}, CONTEXT)
    assert resident.compiled is None
    assert perplexity.score_windows(resident, windows(4))[0]


def test_what_compiles_is_named_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert inductor.compiler(cpu) == ""
    monkeypatch.setenv("CXX", "false")
    assert inductor.compiler(cpu) == ""
    monkeypatch.delenv("CXX")
    assert re.search(r"[+][+].*, avx|neon|sve|asimd", inductor.compiler(cpu))


def test_compiled_code_lies_in_a_folder_of_its_compiler_and_ours(tmp_path, monkeypatch) -> None:
    """Not where another user, or anybody, may have written."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    first, second = map(inductor._folder, ("g++ 12 of this test", "g++ 13 of this test"))
    assert first != second
    assert Path(first).stat().st_mode & 0o777 == 0o700
    inductor._folder.cache_clear()
    assert inductor._folder("g++ 12 of this test") == first
    Path(first).chmod(0o777)
    inductor._folder.cache_clear()
    assert inductor._folder("g++ 12 of this test") not in (first, second)
