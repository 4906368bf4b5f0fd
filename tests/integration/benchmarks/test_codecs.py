"""The benchmark of codecs: bytes of other libraries' quantisers, and codecs side by side."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from agent_forge.studies.comparison import draws
from agent_forge.studies.events import Observe, answered
from benchmarks.weights import library_codecs
from benchmarks.weights.codecs import Bench, Row, show_ahead


def test_bytes_of_gguf_types_are_those_of_their_blocks() -> None:
    """Q8_0: 32 weights in 34 bytes; Q4_0: in 18; TQ2_0: 256 in 66 (llama.cpp, ggml-common.h)."""
    matrix = torch.linspace(-1, 1, 4 * 256).reshape(4, 256)
    found = library_codecs.trials()
    for name, size in (("Q8_0", 34 * 32), ("Q4_0", 18 * 32), ("TQ2_0", 66 * 4)):
        trial = found[f"gguf {name}"]
        assert callable(trial)
        assert trial(matrix, matrix)[0] == size


def test_a_library_that_is_missing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows stand in the table, so that nobody takes them for measured."""
    monkeypatch.setattr(library_codecs, "find_spec", lambda _: None)
    found = library_codecs.trials()
    assert found["hqq 2 bit, groups of 64"] == "hqq is not installed"
    assert found["torchao intx 4 bit, groups of 64"] == "torchao is not installed"


def row(name: str, bits: float, nats: tuple[float, ...]) -> Row:
    task = Observe("0" * 64, "rolling-bits-per-byte@1", "selection")
    return Row(name, bits, answered(task, {"a": nats}, {"a": (1,) * len(nats)}, 0.0))


def test_each_codec_stands_beside_the_largest_step_code_that_is_no_larger(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each document needs ln 2 nats less, so the difference is one bit, and so is the interval."""
    bench: Any = SimpleNamespace(drawn=draws({"a": 3}, "t", 0), documents=3)
    bench.less = lambda one, other: Bench.less(bench, one, other)
    nat = 0.6931471805599453
    rows = [
        row("uniform, step 1, feedback", 2.0, (nat, 2 * nat, 3 * nat)),
        row("uniform, step 2, feedback", 1.0, (9.0, 9.0, 9.0)),
        row("uniform, step 1, no feedback", 2.2, (0.0, 0.0, 0.0)),
        row("rtn", 2.3, (2 * nat, 3 * nat, 4 * nat)),
        row("less than any", 0.5, (nat, nat, nat)),
    ]
    show_ahead(bench, rows)
    lines = capsys.readouterr().out.splitlines()[2:]
    assert lines == ["| rtn | 2.30 | step 1 | 2.00 | 1.0000 (1.0000 to 1.0000) |"]
