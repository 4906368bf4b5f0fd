"""Attribution of a candidate's layers to its sources, computed once and cached in the home.

Each layer of a merge is a weighted sum of the sources' task vectors. For each block, and for the
tensors outside of blocks, find the coefficients c that minimise ‖Δ − Σ c_i τ_i‖. Δ is the difference of
the merge from the base, and τ_i that of source i. The share of ‖Δ‖² that the sum explains is 1 if the
merge is such a sum, and less if the merge dropped elements, voted or added noise. The method is
ordinary least squares by the normal equations in float64. If sources are alike, c is the shortest one.

`python -m evomerge.tasks.attribution RUN CANDIDATE` computes it in a process of its own, so that a
server that shows runs need not hold models.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from agent_forge.events import canonical_json
from agent_forge.events.envelope import Plain
from agent_forge.evomerge.recipes.recipe import Flow, path
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.run.views import candidates
from agent_forge.runs.errors import ForgeError
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home
from agent_forge.weights import block_names
from agent_forge.weights.tensors import HEADS

Weights = Mapping[str, torch.Tensor]

#: Elements of a tensor that are held in float64 at once.
STRETCH = 1 << 20


@dataclass
class LayerAttribution:
    """Attribution of one layer."""

    layer: str
    #: One coefficient for each source, in the order of the sources.
    coefficients: list[float]
    #: Share of the squared norm that the sum explains; None if the merge equals the base here.
    explained: float | None
    #: ‖Δ‖ over the mean ‖τ‖; None if no source differs from the base.
    moved: float | None


def layer_of(name: str) -> str:
    """Return the layer of a tensor: "block 3", "embedding", "head" or "rest" (final norms, …)."""
    number = block_names.block_of(name)
    if number is not None:
        return f"block {number}"
    if name in HEADS:
        return "embedding"
    return "head" if name in HEADS.values() else "rest"


def makeup(
    merged: Weights, base: Weights, sources: Sequence[Weights], path: Flow | None = None
) -> list[LayerAttribution]:
    """Return one `LayerAttribution` per layer of `merged`, in the order embedding, blocks, rest, head.

    Tensors may have any floating-point dtype and are read one at a time. With a path, a block of
    the merge is compared with the block that the path took.
    """
    count = len(sources)
    sums: dict[str, tuple[np.ndarray, np.ndarray, float]] = {}
    for name, tensor, origin, source_tensors in _tensors(merged, base, sources, path):
        layer = layer_of(name)
        gram, right, square = sums.get(layer, (np.zeros((count, count)), np.zeros(count), 0.0))
        for start in range(0, tensor.numel(), STRETCH):
            part = slice(start, start + STRETCH)
            zero = origin[part].double()
            delta = tensor[part].double() - zero
            taus = torch.stack([their[part].double() - zero for their in source_tensors])
            gram += (taus @ taus.T).numpy()
            right += (taus @ delta).numpy()
            square += float(delta @ delta)
        sums[layer] = gram, right, square
    return [_row(layer, *sums[layer]) for layer in sorted(sums, key=_order)]


def _tensors(
    merged: Weights, base: Weights, sources: Sequence[Weights], path: Flow | None
) -> Iterator[tuple[str, torch.Tensor, torch.Tensor, list[torch.Tensor]]]:
    for name, tensor in merged.items():
        there = name
        number = block_names.block_of(name)
        if path is not None and number is not None:
            there = block_names.rename(name, path.steps[number].block)
        if there not in base or not tensor.is_floating_point():
            continue
        source_tensors = [source[there].flatten() for source in sources]
        yield name, tensor.flatten(), base[there].flatten(), source_tensors


def _row(layer: str, gram: np.ndarray, right: np.ndarray, square: float) -> LayerAttribution:
    coefficients = np.linalg.pinv(gram, hermitian=True) @ right
    lengths = np.sqrt(np.clip(np.diag(gram), 0.0, None))
    usual = float(lengths.mean())
    left = square - 2 * coefficients @ right + coefficients @ gram @ coefficients
    return LayerAttribution(
        layer,
        [float(c) for c in coefficients],
        float(np.clip(1 - left / square, 0.0, 1.0)) if square > 0 else None,
        float(np.sqrt(square)) / usual if usual > 0 else None,
    )


def _order(layer: str) -> tuple[object, ...]:
    kind, _, number = layer.partition(" ")
    return (["embedding", "block", "rest", "head"].index(kind), int(number or 0))


def key(state: RunState, recipe_id: str) -> str:
    """Return the cache key, a hex SHA-256 over the candidate, the base, and the sources in order."""
    assert state.started
    sources = [(s.recipe_id, s.name) for s in state.started.sources]
    text = canonical_json([recipe_id, state.started.base.recipe_id, sources])
    return hashlib.sha256(text.encode()).hexdigest()


def kept(home: Home, state: RunState, recipe_id: str) -> dict[str, object] | None:
    """Return the cached attribution (dict); None if it is missing or unreadable."""
    try:
        return json.loads(_file(home, key(state, recipe_id)).read_text("utf-8"))
    except (OSError, ValueError):
        return None


def _file(home: Home, name: str) -> Path:
    return home.folder / "makeup" / f"{name}.json"


def find(home: Home, state: RunState, recipe_id: str) -> Plain:
    """Return the attribution {candidate, sources, rows}, from the cache if possible.

    Otherwise load the candidate's weights, or build them, compute the result and cache it.
    """
    cached_attribution = kept(home, state, recipe_id)
    if cached_attribution is not None:
        return cached_attribution
    from agent_forge.evomerge.tasks.context import MergeContext
    from agent_forge.weights.storage.weight_cache import Artifacts
    from agent_forge.weights.threads import set_threads

    assert state.started
    set_threads(state.started.profile.threads)
    bench = MergeContext(state, Artifacts.of(home))
    bench.check_sources()
    taken = path(state.recipes[recipe_id], state.recipes)
    rows = makeup(bench.weights(recipe_id), bench.origin, bench.source_weights, taken)
    attribution = {
        "candidate": recipe_id,
        "sources": [source.name for source in state.started.sources],
        "rows": [asdict(row) for row in rows],
    }
    _keep(_file(home, key(state, recipe_id)), attribution)
    return attribution


def _keep(file: Path, attribution: dict[str, object]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent, suffix=".tmp")
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        json.dump(attribution, out)
    os.replace(name, file)


def main(run: str, candidate: str) -> int:
    """Compute and cache an attribution; return 0, or an exit code with the reason on stderr."""
    home = Home.default()
    try:
        with closing(home.open_store()) as store:
            state = repository.load(store, run, showing=True)
        find(home, state, candidates.find(state, candidate))
    except ForgeError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
