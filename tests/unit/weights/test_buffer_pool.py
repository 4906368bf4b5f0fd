"""Memory of models: one holder at a time, taken again, and never more of it kept than was said."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from agent_forge.weights import buffer_pool
from agent_forge.weights.storage.weight_cache import Artifacts


@pytest.fixture(autouse=True)
def _nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer_pool, "_waiting", {})


def held() -> int:
    return sum(memory.size for memory in buffer_pool._waiting.values())


def test_a_piece_is_taken_again_when_its_last_view_is_gone_and_not_before() -> None:
    memory = buffer_pool.take(10_000)
    place = memory.ctypes.data
    assert (memory.size, place % buffer_pool.ALIGNED) == (10_000, 0)
    tensor = torch.from_numpy(memory[64:128]).view(torch.float32)
    del memory
    assert not buffer_pool._waiting
    other = buffer_pool.take(10_000)
    assert other.ctypes.data != place
    view = tensor.view(4, 4)[1:]
    del tensor
    assert not buffer_pool._waiting
    del view
    assert buffer_pool.take(9_000).ctypes.data == place


def test_what_is_much_too_large_or_too_small_is_left_to_others() -> None:
    buffer_pool.take(10_000)
    assert held() == 10_000 + buffer_pool.ALIGNED
    for size in (10_001, 5_000):
        memory = buffer_pool.take(size)
        assert memory.size == size
        assert 10_000 + buffer_pool.ALIGNED in [kept.size for kept in buffer_pool._waiting.values()]
    assert buffer_pool.take(9_999).size == 9_999


def test_so_much_is_kept_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer_pool, "KEPT", 50_000)
    pieces = [buffer_pool.take(9_000 + n) for n in range(20)]
    del pieces
    gc.collect()
    assert 0 < held() <= 50_000
    buffer_pool.take(60_000)
    assert held() <= 50_000


def test_a_cache_that_gives_its_memory_back_leaves_none_here(tmp_path: Path) -> None:
    cache = Artifacts(tmp_path)
    for name in "abc":
        memory = torch.from_numpy(buffer_pool.take(10_000)).view(torch.float32)
        cache.put(name * 64, {"w": memory})
    del memory
    buffer_pool.take(20_000)
    assert buffer_pool._waiting
    cache.release()
    assert not buffer_pool._waiting


def test_threads_never_hold_the_same_piece() -> None:
    """Each writes its number all over what it took, and finds only that."""
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(300):
            memory = buffer_pool.take(4_096)
            memory[:] = number
            if np.any(memory != number):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert 1 <= len(buffer_pool._waiting) <= 16  # the old and the new of each
