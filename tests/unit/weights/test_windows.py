"""Windows: the rows of a step are a function of the recipe and the step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agent_forge.runs.errors import DataError
from agent_forge.weights.training.windows import Batches, seeded, stream_digest

#: Each token says its stream and its place.
STREAMS = {"a": np.arange(100, dtype=np.int32), "b": np.arange(1000, 1050, dtype=np.int32)}
SHARES = {"a": 3.0, "b": 1.0}


def windows(batch: int = 6, seed: int = 0, purpose: str = "toy") -> Batches:
    """Rows of 10 tokens."""
    return Batches(STREAMS, SHARES, batch, 10, (seed, purpose))


def test_rows_do_not_depend_on_which_steps_were_read_before() -> None:
    """A segment begins anywhere; a repeated step is the same step."""
    whole = windows()
    expected = [whole.rows(step) for step in range(8)]
    for order in ([7], [3, 5], [5, 3, 3], [0, 7, 1]):
        other = windows()
        for step in order:
            assert np.array_equal(other.rows(step), expected[step])


def test_rows_are_whole_windows_of_one_stream() -> None:
    """[batch, context + 1] int64, each token the successor of the one before."""
    rows = windows().rows(0)
    assert rows.shape == (6, 11)
    assert rows.dtype == np.int64
    assert np.all(np.diff(rows, axis=1) == 1)


def test_rows_are_those_of_the_first_trainings() -> None:
    """One draw a row among the streams, then one place a row: `forge cognate` has always drawn so."""
    rng = seeded(0, "toy")
    expected = []
    for _ in range(3):
        chosen = rng.choice(2, 6, p=[0.75, 0.25])
        streams = [STREAMS["ab"[int(i)]] for i in chosen]
        starts = [int(rng.integers(0, len(stream) - 11)) for stream in streams]
        expected.append([s[at : at + 11] for s, at in zip(streams, starts, strict=True)])
    assert np.array_equal(windows().rows(2), np.asarray(expected[2]))


def test_streams_are_drawn_by_share() -> None:
    """Three quarters of 2,000 rows within four standard deviations, 0.0097 each."""
    rows = windows(batch=2000).rows(0)
    assert abs(np.mean(rows[:, 0] < 1000) - 0.75) < 4 * 0.0097


def test_seed_and_purpose_are_the_key() -> None:
    """Two trainings of a run do not read the same rows."""
    found = [windows(), windows(seed=1), windows(purpose="other")]
    assert len({made.rows(0).tobytes() for made in found}) == 3


def test_a_stream_that_is_too_short_is_refused() -> None:
    """The shortest has one place more than a window."""
    fits = {"a": STREAMS["a"][:12], "b": STREAMS["b"]}
    assert Batches(fits, SHARES, 50, 10, (0, "toy")).rows(0).shape == (50, 11)
    with pytest.raises(DataError, match=r"'a' has 11 tokens: .* at least 12"):
        Batches(fits | {"a": fits["a"][:11]}, SHARES, 50, 10, (0, "toy"))


def test_the_digest_of_a_stream_covers_its_order_and_not_its_type() -> None:
    """int64 ids of the same text are the same data."""
    wide: Any = STREAMS["a"].astype(np.int64)
    assert stream_digest(STREAMS["a"]) == stream_digest(wide)
    assert stream_digest(STREAMS["a"]) != stream_digest(STREAMS["a"][::-1])
