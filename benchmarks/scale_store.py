"""Measured costs of the artifact store: time, bytes, objects and requests of an artifact.

Used by `benchmarks.scale`. The store is a folder on this machine's disk. Trained models and snapshots
are real ones of the presets of `forge cognate`, after one step of a batch of one window.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agent_forge.phases.cognate import recipes
from agent_forge.phases.cognate.settings import PRESETS, CognateConfig
from agent_forge.runs import keys
from agent_forge.weights import operations
from agent_forge.weights.folders.checkpoint import SHARD_BYTES, write_weights
from agent_forge.weights.recipes import Train
from agent_forge.weights.storage.artifact_store import Vault
from agent_forge.weights.storage.remote_files import StoredFiles, connected
from agent_forge.weights.tensors import Weights
from agent_forge.weights.training import complete
from agent_forge.weights.training.loop import Snapshot, segment
from agent_forge.weights.training.snapshots import Snapshots
from benchmarks.phases.training import recipe

SIZES, OPTIMISERS = ("tiny", "small", "25m"), ("adamw", "muon")
TURNS = 3
#: Artifacts of a store whose names are listed.
LISTED = 100_000
CONTEXT, TOKENS = 64, 100_000


@dataclass(frozen=True)
class Artifact:
    """Costs of one artifact."""

    what: str
    bytes: int
    #: Objects in the store, the manifest included.
    objects: int
    #: Median seconds.
    put: float
    fetch: float
    #: Calls of the file system, by name.
    put_calls: Counter[str]
    fetch_calls: Counter[str]
    remove_calls: Counter[str]


class Counted:
    """The files of a store, whose calls are counted by name."""

    def __init__(self, files: StoredFiles) -> None:
        """Count the calls on `files`."""
        self._files = files
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        """Return a method of the files that counts its calls."""

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls[name] += 1
            return getattr(self._files, name)(*arguments, **named)

        return call

    def of(self, work: Callable[[], object]) -> Counter[str]:
        """Return the calls that some work makes."""
        self.calls = Counter()
        work()
        return self.calls


def training(size: str, optimiser: str) -> tuple[Train, Snapshot]:
    """Return a training of a preset's size, and its snapshot after a step."""
    preset = PRESETS[size].model_copy(update={"batch": 1, "context": CONTEXT})
    drawn = keys.generator("scale", size).integers(0, preset.vocabulary, TOKENS).astype(np.int32)
    asked = recipe(preset, drawn, "float32", 1)
    asked = complete(asked.model_copy(update={"optimiser": recipes.OPTIMISERS[optimiser]}))
    fresh = recipes.fresh(CognateConfig.model_validate({"preset": size}))
    return asked, segment(asked, operations.apply(fresh, {}), None, {"text": drawn}, 0, 1)


def stored(what: str, folder: Path, files: dict[str, Path], number: int) -> Artifact:
    """Put, fetch and remove an artifact several times; return its costs."""
    counted = Counted(connected(f"file://{folder}/store"))
    vault, name = Vault(counted, None), f"{number:064x}"  # pyright: ignore[reportArgumentType]
    puts, fetches = [], []
    put_calls = fetch_calls = remove_calls = Counter[str]()
    objects = 0
    for turn in range(TURNS):
        began = time.perf_counter()
        put_calls = counted.of(lambda: vault.put(name, files))
        puts.append(time.perf_counter() - began)
        objects = sum(path.is_file() for path in (folder / "store").rglob("*"))
        began = time.perf_counter()
        fetch_calls = counted.of(lambda turn=turn: vault.fetch(name, folder / f"fetched-{turn}"))
        fetches.append(time.perf_counter() - began)
        remove_calls = counted.of(lambda: vault.remove(name))
    size = sum(path.stat().st_size for path in files.values())
    put, fetch = statistics.median(puts), statistics.median(fetches)
    return Artifact(what, size, objects, put, fetch, put_calls, fetch_calls, remove_calls)


def model(folder: Path, weights: Weights) -> dict[str, Path]:
    """Write weights as the weights cache does; return the files."""
    folder.mkdir()
    write_weights(folder, weights, SHARD_BYTES)
    return {path.name: path for path in folder.iterdir()}


def measured() -> list[Artifact]:
    """Return the costs of champions (bfloat16), trained models (float32) and snapshots, by size."""
    found: list[Artifact] = []

    def keep(what: str, make: Callable[[Path], dict[str, Path]]) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            found.append(stored(what, folder, make(folder), len(found)))

    for size in SIZES:
        for optimiser in OPTIMISERS:
            asked, after = training(size, optimiser)
            if optimiser == OPTIMISERS[0]:
                half = {n: t.to(torch.bfloat16) for n, t in after.weights.items()}
                keep(f"champion of `{size}`, bfloat16", lambda at, w=half: model(at / "m", w))
                keep(f"trained `{size}`, float32", lambda at, w=after.weights: model(at / "m", dict(w)))

            def snapshot(at: Path, asked: Train = asked, after: Snapshot = after) -> dict[str, Path]:
                kept = Snapshots(at / "snapshots")
                kept.write(asked, after)
                return kept.files(asked)

            keep(f"snapshot of `{size}`, {optimiser}", snapshot)
    return found


def listing() -> float:
    """Return the seconds of listing the names of a store of `LISTED` artifacts."""
    with tempfile.TemporaryDirectory() as name:
        manifests = Path(name) / "manifests"
        manifests.mkdir()
        for number in range(LISTED):
            (manifests / f"{number:064x}").touch()
        vault = Vault.open(f"file://{name}")
        began = time.perf_counter()
        assert len(vault.names()) == LISTED
        return time.perf_counter() - began
