"""Batch and dtype are measured, pinned, and followed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from agent_forge.evaluation import autotune
from agent_forge.evaluation.autotune import machine_profile
from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data.packing import ItemPack
from agent_forge.evaluation.measures import perplexity
from agent_forge.evomerge.config import parse
from agent_forge.evomerge.tasks import context

CONTEXT = 16


@pytest.fixture
def data() -> dict[str, ItemPack]:
    rng = np.random.default_rng(0)
    return {"d": ItemPack(windows=[rng.integers(1, 320, CONTEXT) for _ in range(8)])}


def timed(monkeypatch: pytest.MonkeyPatch, speeds: dict[int, float]) -> list[int]:
    """Rows → tokens a second, instead of a clock; the rows that were tried."""
    tried: list[int] = []

    def speed(model: ResidentModel, rows: int, context: int) -> float:
        tried.append(rows)
        if rows not in speeds:
            raise torch.OutOfMemoryError
        return speeds[rows]

    monkeypatch.setattr(autotune, "tokens_per_second", speed)
    return tried


def test_the_smallest_of_the_fastest_batches(resident, monkeypatch) -> None:
    """Twice in a row no faster: enough was tried. Within 5 % of the fastest: the smaller one."""
    tried = timed(monkeypatch, {1: 10, 2: 18, 4: 18.5, 8: 18.9, 16: 99})
    assert autotune.chosen(autotune.batch(resident, CONTEXT)) == 2 * CONTEXT
    assert tried == [1, 2, 4, 8]


def test_what_does_not_fit_ends_the_search(resident, monkeypatch) -> None:
    """With half of what fitted, as other passes need more; where nothing fits, that is said."""
    timed(monkeypatch, {1: 10, 2: 20, 4: 40})
    found = autotune.batch(resident, CONTEXT)
    assert found == {CONTEXT: 10, 2 * CONTEXT: 20}
    assert autotune.chosen(found) == 2 * CONTEXT
    timed(monkeypatch, {1: 10})
    assert autotune.batch(resident, CONTEXT) == {CONTEXT: 10}
    timed(monkeypatch, {})
    with pytest.raises(torch.OutOfMemoryError):
        autotune.batch(resident, CONTEXT)
    monkeypatch.undo()
    assert list(autotune.batch(resident, CONTEXT, 2)) == [CONTEXT, 2 * CONTEXT]
    monkeypatch.setattr(autotune, "LOGIT_BYTES", 2 * CONTEXT * 320 * 4)
    assert list(autotune.batch(resident, CONTEXT)) == [CONTEXT, 2 * CONTEXT]


def test_really_timed(resident, weights, data) -> None:
    """Numbers of this machine: above zero; the model is left as it was."""
    speeds = autotune.batch(resident, CONTEXT)
    assert all(speed > 0 for speed in speeds.values())
    before = perplexity.score_windows(resident, data["d"].windows)
    found = autotune.halved(resident, [weights, weights], data, CONTEXT)
    assert found.ratio > 0
    assert 0 < found.change < 0.01
    assert perplexity.score_windows(resident, data["d"].windows) == before


def test_bfloat16_is_computed_in_bfloat16(resident, weights, data) -> None:
    """Another number, by less than the tolerance; what is loaded really is half as wide."""
    own = perplexity.score_windows(resident, data["d"].windows)[0]
    resident.dtype = torch.bfloat16
    resident.load(weights)
    assert {p.dtype for p in resident.module.parameters()} == {torch.bfloat16}
    half = perplexity.score_windows(resident, data["d"].windows)[0]
    assert half != own
    assert half == pytest.approx(own, rel=autotune.TOLERANCE)


@pytest.mark.parametrize(
    ("ratio", "change", "used"),
    [(1.5, 0.004, True), (1.05, 0.0, False), (3.0, 0.006, False), (3.0, float("inf"), False)],
)
def test_it_must_pay_and_give_the_same(ratio: float, change: float, used: bool) -> None:
    assert autotune.Trial(ratio, change).better is used


def test_nan_in_bfloat16_is_not_equal(resident, weights, data) -> None:
    broken = {n: t.clone() for n, t in weights.items()}
    broken["model.norm.weight"].fill_(torch.nan)
    assert autotune.halved(resident, [weights, broken, weights], data, CONTEXT).change == float("inf")


def a_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str) -> None:
    """Let the kernel name a processor with these flags."""
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: fpu {flags} avx512f\n")
    monkeypatch.setattr(autotune, "PROCESSORS", tmp_path / "cpuinfo")


@pytest.mark.parametrize(
    ("flags", "native"),
    [
        ("avx512_bf16", True),
        ("amx_bf16 amx_tile", True),
        ("i8mm bf16 sve", True),
        ("avx512_vbmi2 avx512_bf16x", False),
        ("avx2", False),
    ],
)
def test_a_processor_that_multiplies_in_bfloat16_is_known(
    flags: str, native: bool, tmp_path, monkeypatch
) -> None:
    """By the kernel's own words for x86 and ARM, whole words only."""
    a_processor(tmp_path, monkeypatch, flags)
    assert autotune.has_bfloat16(torch.device("cpu")) is native
    profile = machine_profile("cpu").machine
    assert profile.endswith("bf16") is native, "another processor is another profile"


def test_another_makers_processor_is_another_profile(tmp_path, monkeypatch) -> None:
    """Seen: a training gave other weights on an Intel than on an AMD with the same instructions."""
    found = []
    for told in (
        "vendor_id\t: AuthenticAMD\nflags\t\t: avx512f avx512_bf16\n",
        "vendor_id\t: GenuineIntel\nflags\t\t: avx512f avx512_bf16\n",
        "vendor_id\t: GenuineIntel\nflags\t\t: avx512f avx512_bf16 avx512_fp16 amx_tile\n",
        "CPU implementer\t: 0x41\nFeatures\t: fp asimd bf16\n",
    ):
        (tmp_path / "cpuinfo").write_text(told)
        monkeypatch.setattr(autotune, "PROCESSORS", tmp_path / "cpuinfo")
        found.append(machine_profile("cpu").machine)
    assert len(set(found)) == 4
    assert "AuthenticAMD" in found[0]
    assert found[2].endswith("fp16 amx bf16")
    assert "0x41" in found[3]


def test_where_the_kernel_does_not_tell_there_is_none(tmp_path, monkeypatch) -> None:
    """No Linux: the weights' own dtype is always right."""
    monkeypatch.setattr(autotune, "PROCESSORS", tmp_path / "nothing")
    assert not autotune.has_bfloat16(torch.device("cpu"))


def test_bfloat16_by_default_asks_no_clock(resident, weights, data, tmp_path, monkeypatch) -> None:
    """Two runs on one machine decide alike, however busy it is: processor and perplexity decide."""
    timed(monkeypatch, {})  # any look at a clock raises
    a_processor(tmp_path, monkeypatch, "avx512_bf16")
    assert autotune.natively(resident, [weights, weights], data)
    assert resident.dtype is None, "the model is left as it was"
    broken = {n: t.clone() for n, t in weights.items()}
    broken["model.norm.weight"].fill_(torch.nan)
    assert not autotune.natively(resident, [weights, broken], data), "NaN is not equal"
    monkeypatch.setattr(autotune, "TOLERANCE", 0.0)
    assert not autotune.natively(resident, [weights], data), "beyond the tolerance"
    monkeypatch.undo()
    a_processor(tmp_path, monkeypatch, "avx2")
    assert not autotune.natively(resident, [weights], data), "it would be emulated"


def test_weights_that_are_in_bfloat16_stay_as_they_are(
    resident, weights, data, tmp_path, monkeypatch
) -> None:
    """Their own dtype is it already: the profile need not say more."""
    a_processor(tmp_path, monkeypatch, "avx512_bf16")
    half = {n: t.to(torch.bfloat16) for n, t in weights.items()}
    assert not autotune.natively(resident, [half], data)


def test_batch_tokens_decide_how_many_go_together(resident, monkeypatch) -> None:
    """64 tokens: four windows of 16 in each pass."""
    shapes: list[tuple[int, ...]] = []
    logits = resident.logits

    def watched(ids: torch.Tensor) -> torch.Tensor:
        shapes.append(tuple(ids.shape))
        return logits(ids)

    monkeypatch.setattr(resident, "logits", watched)
    resident.batch_tokens = 64
    perplexity.score_windows(resident, [np.ones(CONTEXT, np.int64)] * 9)
    assert shapes == [(4, CONTEXT), (4, CONTEXT), (1, CONTEXT)]


def test_a_budget_bounds_what_compiling_could_save() -> None:
    """A run that only its budget ends has ten thousand generations, and time for few of them."""
    config = parse({"budget": "1h", "population_size": 8})
    assert context._search_tokens(config, each=10**6, speed=1000.0) == 3_600_000
    assert context._search_tokens(config, each=10, speed=1000.0) == 800_000
    config = parse({"generations": 5, "population_size": 8})
    assert context._search_tokens(config, each=10**6, speed=1000.0) == 40_000_000
