"""The race of `benchmarks.evomerge.gates`: who ends, and after how many windows."""

from __future__ import annotations

from agent_forge.evaluation.data.outcomes import DomainOutcomes, Draw
from benchmarks.evomerge.gates import race

WINDOWS = 24


def losses(*of_windows: float) -> dict[str, DomainOutcomes]:
    """Outcomes of one domain: −log p a token of each window, of ten tokens each."""
    count = len(of_windows)
    nll = tuple(10 * loss for loss in of_windows)
    return {"text": DomainOutcomes(nll=nll, tokens=(10,) * count, hits=(0,) * count)}


def test_candidates_clearly_worse_than_the_middle_end_after_the_block_that_shows_it() -> None:
    """The better half reads all; noise alone ends nobody; what shows later ends later."""
    wave = [1.0 + 0.01 * (i % 3) for i in range(WINDOWS)]
    candidates = {
        "best": losses(*wave),
        "middle": losses(*(x + 0.001 for x in wave)),
        "noisy": losses(*(x + (0.5 if i % 2 else -0.49) for i, x in enumerate(wave))),
        "late": losses(*(x + 0.001 + 0.3 * (i % 5) * (i >= 8) for i, x in enumerate(wave))),
        "broken": losses(*(x + 3 + 0.1 * (i % 2) for i, x in enumerate(wave))),
    }
    draws = {"text": Draw(windows=tuple(range(WINDOWS)), questions=())}
    parts = [
        {"text": Draw(windows=tuple(range(first, first + 8)), questions=())} for first in (0, 8, 16)
    ]
    assert race(candidates, draws, parts, 2, 0.05) == {
        "best": 24,
        "middle": 24,
        "noisy": 24,
        "late": 16,
        "broken": 8,
    }
    assert race(candidates, draws, parts, 5, 0.05) == dict.fromkeys(candidates, WINDOWS)
