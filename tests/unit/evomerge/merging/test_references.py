"""Every technique beside its plain reference: compiled and in torch, on several shapes and data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from agent_forge.evomerge.merging import method_registry, pipelines
from agent_forge.evomerge.merging.kernels import inner_loops
from agent_forge.evomerge.merging.kernels.chunks import CHUNK, ChunkPool, Stretches, as_rows, whole
from agent_forge.evomerge.merging.methods import (
    arcee_fusion,
    dare,
    dfs,
    frankenmerge,
    linear,
    nearswap,
    slerp,
    ties,
)
from agent_forge.evomerge.recipes import tensor_groups
from agent_forge.evomerge.recipes.recipe import Genes, Merge
from agent_forge.weights import block_names, randomness
from testing.models.toy_tensors import Toys

#: Technique → parameters that it is tried with.
CASES: dict[str, list[dict[str, Any]]] = {
    "linear": [{}, {"weights": "own"}, {"weights": "own", "normalise": False}],
    "task_arithmetic": [{"scale": 0.7}, {"weights": "own", "normalise": True}],
    "slerp": [{}, {"ts": "own"}],
    "karcher": [{}, {"weights": "own", "max_iter": 3}],
    "multislerp": [{}, {"weights": "own", "normalise": False}],
    "ties": [
        {},
        {"density": "own", "weights": "own", "scale": 0.7},
        {"density": 0.6, "normalise": False},
        {"thresholds": "own"},
        {"density": 0.0},
    ],
    "dare": [
        {"drop": 0.5},
        {"drop": "own", "weights": "own", "normalise": False},
        {"drop": 0.4, "vote": True, "scale": 0.7},
        {"drop": 0.5, "rescale": "l1"},
        {"drop": 0.5, "rescale": "none"},
        {"drop": 1.0},
    ],
    "della": [
        {},
        {"density": 0.5, "epsilon": 0.3, "weights": "own", "vote": False},
        {"density": 0.6, "rescale": False, "normalise": False, "scale": 0.7},
        {"density": 1.0},
        {"density": 0.0},
    ],
    "breadcrumbs": [
        {},
        {"density": 0.5, "gamma": 0.2, "weights": "own", "scale": 0.7},
        {"density": "own", "gamma": 0.1, "vote": True},
        {"density": 0.0},
    ],
    "sce": [{}, {"density": 0.3, "scale": 0.7}, {"density": 0.0}],
    "model_stock": [{}, {"by_row": True}],
    "dfs": [{}, {"epsilon": 1.0}],
    "ram": [{"epsilon": 0.3}],
    "ramplus_tl": [{"epsilon": 0.3}, {"epsilon": 0.3, "r": 0.4, "alpha": 0.9}],
    "nuslerp": [{}, {"by": "row", "weights": "own"}, {"by": "column"}],
    "passthrough": [{}, {"scale": 0.7}],
    "tsv_m": [{}, {"weights": "own", "scale": 0.7}],
    "iso_c": [{}, {"weights": "own", "scale": 0.7}],
}
#: Techniques that decompose matrices, and average other tensors.
OF_MATRICES = ("tsv_m", "iso_c")
#: Technique → numbers of inputs that it is tried with.
COUNTS = {"nuslerp": (2,), "passthrough": (1,)}
ANY = (3, 4, 5)
#: Technique → the fewest elements. Karcher's directions of one element are opposite or equal: there is
#: no tangent, and rounding decides.
FEWEST = {"karcher": 2}
#: Elements that may fall on the other side of a threshold: variances are float32. (Those of equal
#: spread may differ in the last bit, so sce's task vectors have no equal elements here.)
AT_THE_EDGE = {"sce": 2}
SHAPES = [(1,), (7,), (1, 1), (5, 1), (6, 4), (3, 4, 5), (70, 61), (1, 1500)]
KINDS = ("apart", "alike", "sparse", "equal", "zero")


def inputs(kind: str, seed: int, count: int, *shape: int) -> list[torch.Tensor]:
    """Return float32 task vectors: how they lie to each other is the kind."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, *shape))
    if kind == "alike":
        x = 0.5 * x + rng.standard_normal(shape)
    elif kind == "sparse":
        x[rng.uniform(size=x.shape) < 0.6] = 0.0
        x = np.round(2 * x) / 2  # many are equal
    elif kind == "equal":
        x[:] = x[0]
    elif kind == "zero":
        x[: max(1, count - 1)] = 0.0
    return list(torch.from_numpy(x).float())


def vectors(name: str, kind: str, seed: int, *shape: int) -> list[torch.Tensor]:
    """Return `inputs` that the technique can be compared on; `shape` begins with their number."""
    return inputs("apart" if (name, kind) == ("sce", "sparse") else kind, seed, *shape)


def parameters(name: str, given: dict[str, Any], count: int) -> Any:
    """Return parameters, in which "own" stands for a number for each model."""
    steps = (np.linspace(3, 15, count).round() / 16).tolist()  # sums of them are exact
    own = {"weights": [1.25, *steps[1:]], "ts": steps[1:], "thresholds": steps}
    filled = {k: own.get(k, steps) if v == "own" else v for k, v in given.items()}
    return method_registry.parameters(name, filled)


def rows(x: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return float64 [models, rows, columns], which references take."""
    return torch.stack([as_rows(v) for v in x]).double()


def plain(name: str, x: Sequence[torch.Tensor], params: Any, seed: int) -> torch.Tensor:
    """Return the reference's result, in the inputs' shape."""
    module, wide = method_registry.module(name), rows(x)
    if name in OF_MATRICES and x[0].dim() != 2:
        weights = torch.tensor(params.weights or [1.0] * len(x)).double()
        return params.scale * torch.tensordot(weights, wide, 1).reshape(x[0].shape) / len(x)
    extra = []
    if name in method_registry.SEEDED:
        extra = [torch.stack([uniform(v, seed, "", i, name) for i, v in enumerate(wide)])]
    return module.reference(wide, params, *extra).reshape(x[0].shape)


def uniform(like: torch.Tensor, *key: str | int) -> torch.Tensor:
    """Return the random numbers of [0, 1) that a mask of this key is drawn with."""
    lanes = randomness.lanes(like.numel(), *key).astype(np.float64) / randomness.LANES
    return torch.from_numpy(lanes).view(like.shape)


def fast(name: str, x: Sequence[torch.Tensor], params: Any, seed: int, compiled: bool):
    """Return what a merge computes; not compiled, the form that a GPU computes."""

    def prepare(work: Stretches):
        merge = method_registry.prepare(name, work, params, seed)
        return merge if compiled else lambda cut, stretch: merge(cut, stretch)

    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr(inner_loops, "_on_cpu", lambda _: False)
        return whole(x, prepare)


def assert_alike(found: torch.Tensor, wanted: torch.Tensor, off: int = 0) -> None:
    """Fail if more than `off` elements differ by more than float32's rounding of a few sums."""
    assert bool(wanted.isfinite().all())
    unit = 4e-6 * max(1.0, float(wanted.abs().max()))
    assert int(((found.double() - wanted).abs() > unit).sum()) <= off


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "torch"])
@pytest.mark.parametrize("name", CASES)
def test_a_technique_is_its_reference(name: str, compiled: bool) -> None:
    """Each set of parameters on each shape, number of models and kind of task vectors."""
    for case, given in enumerate(CASES[name]):
        for number, shape in enumerate(SHAPES):
            kind = KINDS[(case + number) % len(KINDS)]
            for count in COUNTS.get(name, ANY) if math.prod(shape) >= FEWEST.get(name, 1) else ():
                x = vectors(name, kind, 10 * number + case, count, *shape)
                params = parameters(name, given, count)
                found = fast(name, x, params, 5, compiled)
                assert_alike(found, plain(name, x, params, 5), AT_THE_EDGE.get(name, 0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_a_technique_is_its_reference_on_every_kind_of_task_vectors(name: str, kind: str) -> None:
    for given in CASES[name]:
        x = vectors(name, kind, 3, COUNTS.get(name, ANY)[0], 20, 31)
        params = parameters(name, given, len(x))
        found = fast(name, x, params, 6, compiled=True)
        assert_alike(found, plain(name, x, params, 6), AT_THE_EDGE.get(name, 0))


@pytest.mark.parametrize("name", CASES)
def test_a_technique_is_its_reference_in_several_stretches(name: str) -> None:
    """What is measured goes through all of them; thresholds are found by a sample."""
    x = inputs("alike", 1, COUNTS.get(name, ANY)[0], CHUNK // 64 + 3, 96)
    for given in CASES[name][:2]:
        params = parameters(name, given, len(x))
        found = fast(name, x, params, 7, compiled=True)
        assert_alike(found, plain(name, x, params, 7), AT_THE_EDGE.get(name, 0))


def test_every_technique_has_a_reference() -> None:
    """A new file without one fails here; `stages` is put together from the others, below."""
    elsewhere = {"stages", "arcee_fusion", "nearswap"}
    assert set(CASES) == set(method_registry.TECHNIQUES) - elsewhere
    for name in {*CASES, *elsewhere} - {"stages"}:
        assert callable(method_registry.module(name).reference)


# ---- those that take a base ----------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1,), (5000,), (5, 1), (3, 5), (70, 33), (300, 200), (900, 700)])
def test_arcee_fusion_is_its_reference(shape: tuple[int, ...]) -> None:
    """Also where the quantiles are found by a sample, and in several stretches."""
    base, move = inputs("apart", 3, 2, *shape)
    base, model = 0.05 * base, 0.05 * base + 0.01 * move
    out = torch.empty_like(base)
    with ChunkPool(1) as pool:
        work = Stretches("w", as_rows(base), [as_rows(model)], pool)
        merge = method_registry.prepare("arcee_fusion", work, arcee_fusion.Params(), 0)
        for cut in work.cuts:
            assert work.run([merge], cut, [as_rows(out)[cut]]) == 0
    wanted = arcee_fusion.reference(*rows([model, base])).reshape(shape)
    off = (out.double() - wanted).abs() > 1e-6
    assert int(off.sum()) <= 1  # at the threshold itself
    if base.numel() > 100:
        assert 0 < float((out != base).double().mean()) < 0.4


@pytest.mark.parametrize("t", [0.0, 0.3, 10.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_nearswap_is_its_reference(shape: tuple[int, ...], t: float) -> None:
    a, b = inputs("sparse", 2, 2, *shape)
    params = nearswap.Params(t=t)
    found = a + whole([b - a], lambda work: nearswap.prepare(work, params))
    assert_alike(found, nearswap.reference(a.double(), b.double(), params))


def test_frankenmerge_is_its_reference() -> None:
    """Bit for bit, over the whole model: blocks, then embedding and norm."""
    toys, layers = Toys(), (1, 2, 0, 2, 1, 0)
    count = block_names.count(list(toys.origin))
    models = [
        [{n: x for n, x in m.items() if tensor_groups.group(n, count) == g} for g in range(6)]
        for m in toys.inputs()
    ]
    params = frankenmerge.Params(layers=layers)
    recipe = Merge(
        method="frankenmerge", inputs=toys.sources, base=toys.base, params=params.model_dump(), seed=5
    )
    wanted = {n: x for group in frankenmerge.reference(models, params) for n, x in group.items()}
    found = toys.build(recipe)
    assert set(found) == set(wanted)
    assert all(torch.equal(found[n], wanted[n]) for n in found)


# ---- pipelines -----------------------------------------------------------------------------


def staged(name: str, x: torch.Tensor, genes: Genes, seed: int) -> torch.Tensor:
    """Return interpolation, then task arithmetic, then selection, each by its reference."""
    first, second, third = name.split("-")
    if first == "linear":
        made = linear.reference(x, linear.Params(weights=genes.weights))
    else:
        made = slerp.reference(x, slerp.Params(ts=genes.ts))
    if second == "dare":
        mask = uniform(made, seed, "", 0, "dare")[None]
        made = dare.reference(made[None], dare.Params(drop=genes.drop), mask)
    else:
        made = ties.reference(torch.cat([made[None], x]), ties.Params(density=genes.density))
    if third == "dfs":
        made = dfs.reference(torch.cat([made[None], x]), dfs.Params(epsilon=genes.epsilon))
    return genes.scale * made


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("name", pipelines.NAMES)
def test_a_pipeline_is_its_stages_one_after_another(name: str, count: int) -> None:
    """Fused in one pass, nothing is rounded between stages."""
    steps = tuple(np.linspace(0.3, 0.7, count).round(3).tolist())
    genes = Genes(weights=steps, ts=steps[1:], density=0.4, drop=0.3, epsilon=0.2, scale=0.8)
    params = pipelines.Params(name=name, genes=genes)
    x = inputs("alike", 4, count, 60, 45)
    found = fast("stages", x, params, 9, compiled=True)
    # An element of the consensus may fall on the other side of its threshold.
    assert_alike(found, staged(name, rows(x), genes, 9), 45 if "ties" in name else 0)
