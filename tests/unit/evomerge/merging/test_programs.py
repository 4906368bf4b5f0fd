"""One pass over tensors as they are stored, against the same in torch; and properties of techniques."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agent_forge.evomerge.merging import method_registry
from agent_forge.evomerge.merging.kernels import inner_loops
from agent_forge.evomerge.merging.kernels.chunks import ChunkPool, Merge, Stretches, as_rows, whole
from agent_forge.evomerge.merging.kernels.fused_merge import Drop, StageProgram, Vote, stacked
from agent_forge.evomerge.merging.kernels.numba import dropout, dtypes
from agent_forge.runs import keys
from agent_forge.weights import randomness
from testing.waiting import PATIENCE

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
CODES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


def stretches(
    seed: int, count: int, shape: tuple[int, int], dtype: torch.dtype, based: bool = True
) -> Stretches:
    rng = np.random.default_rng(seed)
    base = torch.from_numpy(rng.standard_normal(shape)).to(dtype)
    inputs = [
        (base + torch.from_numpy(rng.standard_normal(shape) * 0.1)).to(dtype) for _ in range(count)
    ]
    return Stretches("t", base if based else None, inputs, ChunkPool(1))


def run(work: Stretches, *merges: Merge, dtype: torch.dtype) -> list[torch.Tensor]:
    outs = [torch.empty(work.rows, work.columns, dtype=dtype) for _ in merges]
    for cut in work.cuts:
        assert work.run(merges, cut, [out[cut] for out in outs]) == 0
    return outs


def in_torch(program: StageProgram) -> Merge:
    """Not known to be a program, and so not compiled."""
    return lambda cut, x: program(cut, x)


@st.composite
def programs(draw: Callable[..., object], count: int, columns: int) -> StageProgram:
    number = st.floats(-2, 2, width=32)

    def some(size: int) -> tuple[float, ...]:
        return tuple(draw(st.lists(number, min_size=size, max_size=size)))  # pyright: ignore

    factors = some(count) if draw(st.booleans()) else None
    layers = range(1 if factors is None else 0, count + 1)
    masks = {
        layer: Drop(draw(st.sampled_from((1, 30_000, 65_535, 65_536))), 1.5, ("mask", layer))  # pyright: ignore
        for layer in draw(st.sets(st.sampled_from(layers)))  # pyright: ignore
    }
    vote = None
    if draw(st.booleans()):
        voters = len(layers)
        high = [draw(st.sampled_from((0.1, 0.3)))] * voters if draw(st.booleans()) else None
        low = [0.03] * voters if draw(st.booleans()) else None
        vote = Vote(some(voters), low, high, draw(st.booleans()))  # pyright: ignore
    epsilon = draw(st.sampled_from((None, None, 0.1, 1.0)))
    if len(layers) < 3:
        epsilon = None
    alone = st.integers(1, count) if epsilon is None else st.just(1)
    return StageProgram(
        count, columns, factors, masks, vote, epsilon, draw(st.sampled_from((1.0, 0.7))), draw(alone)
    )


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    st.data(),
    st.integers(1, 6),
    st.integers(1, 40),
    st.sampled_from((1, 3, 64, 1024, 1500)),
    st.sampled_from(DTYPES),
    st.sampled_from(DTYPES),
    st.booleans(),
)
def test_a_compiled_program_has_the_bits_of_the_one_in_torch(
    data: st.DataObject,
    count: int,
    rows: int,
    columns: int,
    dtype: torch.dtype,
    to: torch.dtype,
    based: bool,
) -> None:
    """But for dfs, whose sums go in another order: one unit in the last place of the output then."""
    program = data.draw(programs(count, columns))
    work = stretches(rows, count, (rows, columns), dtype, based)
    (ours,), (theirs,) = run(work, program, dtype=to), run(work, in_torch(program), dtype=to)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inner_loops, "_on_cpu", lambda _: False)  # the forms that a GPU computes
        (elsewhere,) = run(work, in_torch(program), dtype=to)
    if program.epsilon is None:
        assert torch.equal(ours, theirs)
        assert torch.equal(ours, elsewhere)
    else:
        unit = torch.finfo(to).eps
        for other in (theirs, elsewhere):
            assert torch.allclose(ours.double(), other.double(), rtol=unit, atol=max(unit / 8, 3e-7))


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(2, 4), st.integers(1, 30), st.sampled_from((1, 7, 1024)))
def test_programs_of_one_pass_are_those_of_passes_of_their_own(
    data: st.DataObject, count: int, rows: int, columns: int
) -> None:
    several = [data.draw(programs(count, columns)) for _ in range(data.draw(st.integers(2, 4)))]
    work = stretches(1, count, (rows, columns), torch.bfloat16)
    together = run(work, *several, dtype=torch.bfloat16)
    for program, ours in zip(several, together, strict=True):
        assert torch.equal(ours, run(work, program, dtype=torch.bfloat16)[0])


@pytest.mark.parametrize("drops", [(), (0,), (1,), (0, 2)])
@pytest.mark.parametrize("voting", [False, True])
def test_programs_that_begin_alike_go_on_from_the_first(voting: bool, drops: tuple[int, ...]) -> None:
    """With dfs, with another scale, and again; and what comes after them reads its inputs anew."""
    work = stretches(3, 3, (40, 61), torch.bfloat16)
    alike = StageProgram(
        3,
        61,
        factors=(0.5, 0.3, 0.2),
        drops={n: Drop(20_000, 1.5, ("m", n)) for n in drops},
        vote=Vote((1.0,) * 4, (0.05,) * 4) if voting else None,
    )
    selected, other = replace(alike, epsilon=0.1), StageProgram(3, 61, factors=(0.2, 0.3, 0.5))
    several = [
        alike,
        replace(alike, scale=0.5),
        selected,
        selected,
        alike,
        other,
        StageProgram(3, 61, taken=2),
    ]
    together = run(work, *several, dtype=torch.bfloat16)
    for program, ours in zip(several, together, strict=True):
        assert torch.equal(ours, run(work, program, dtype=torch.bfloat16)[0])


def test_programs_in_torch_leave_the_inputs_to_each_other() -> None:
    """Of float64, which no loop writes: the first takes an input as it is, the second merges it."""
    work = stretches(2, 2, (5, 7), torch.float32)
    programs_ = [StageProgram(2, 7, taken=2), StageProgram(2, 7, factors=(0.5, 0.5))]
    together = run(work, *programs_, dtype=torch.float64)
    for program, ours in zip(programs_, together, strict=True):
        assert torch.equal(ours, run(work, program, dtype=torch.float64)[0])


def test_shapes_that_differ_are_refused_before_anything_is_read() -> None:
    """Compiled loops know addresses, not ends."""
    work = Stretches("t", None, [torch.ones(4, 4), torch.ones(2, 4)], ChunkPool(1))
    with pytest.raises(ValueError, match=r"have one shape"):
        work.run([StageProgram(2, 4, factors=(0.5, 0.5))], slice(0, 4), [torch.empty(4, 4)])
    work = Stretches("t", None, [torch.ones(4, 4)], ChunkPool(1))
    with pytest.raises(ValueError, match=r"do not go into"):
        work.run([StageProgram(1, 4)], slice(0, 4), [torch.empty(2, 4)])


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
def test_tensors_without_elements_stay_so(shape: tuple[int, int]) -> None:
    work = Stretches("t", None, [torch.empty(shape)] * 3, ChunkPool(1))
    out = torch.empty(shape)
    assert not any(work.run([StageProgram(3, shape[1], epsilon=0.1)], c, [out[c]]) for c in work.cuts)


def test_after_an_error_no_other_job_is_begun() -> None:
    """Whichever thread it was that failed. The other one is busy until no job is left."""
    done: list[int] = []
    over = threading.Event()

    class Jobs(list):
        def __iter__(self):
            end = iter(lambda: over.set() or 0, 0)  # reached behind the last job
            return itertools.chain(super().__iter__(), end)

    def job(number: int) -> None:
        done.append(number)
        if number == 3:
            raise KeyError("three")
        if number > 3:
            assert over.wait(PATIENCE)

    with ChunkPool(2) as pool, pytest.raises(KeyError):
        pool.run(Jobs([lambda n=n: job(n) for n in range(200)]))
    assert len(done) <= 5


# ---- numbers as they are stored ------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_every_number_of_16_bits_is_read_as_torch_reads_it(dtype: torch.dtype) -> None:
    bits = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16)
    out, zero = np.empty(1 << 16, np.float32), np.zeros(1 << 16, np.float32)
    assert not dtypes.load(np.uint64(bits.data_ptr()), CODES[dtype], 0, zero, out)
    theirs = bits.view(dtype).float().numpy()
    assert np.array_equal(out, theirs, equal_nan=True)
    assert np.array_equal(np.signbit(out), np.signbit(theirs))


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_rounding_is_torch_s(dtype: torch.dtype) -> None:
    """Ties, subnormals, what leaves the range: bits at random have all of them."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 1 << 18, dtype=np.uint32)
    bits[: 1 << 16] &= 0xFFFF8000  # ties of bfloat16
    bits[1 << 16 : 1 << 17] &= 0xFFFFF000  # of half precision
    values = torch.from_numpy(bits.view(np.float32))
    values = values[~values.isnan()]
    out = torch.empty(len(values), dtype=dtype)
    nothing = np.full(len(values), -0.0, np.float32)
    finite = dtypes.store(
        values.clone().numpy(), np.float32(1), nothing, np.uint64(out.data_ptr()), CODES[dtype], 0
    )
    assert torch.equal(out.view(torch.int16), values.to(dtype).view(torch.int16))
    assert not finite
    nan = torch.full((3,), math.nan)
    dtypes.store(nan.numpy(), np.float32(1), nothing[:3], np.uint64(out.data_ptr()), CODES[dtype], 0)
    assert out[:3].isnan().all()


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**63), st.integers(0, 10**7), st.integers(1, 3000))
def test_compiled_lanes_are_those_of_numpy_s_generator(seed: int, start: int, count: int) -> None:
    key = keys.key(seed, "x")
    out, words = np.empty(count, np.uint16), np.empty(count // 4 + 16, np.uint64)
    low, high = np.uint64(key & (1 << 64) - 1), np.uint64(key >> 64)
    dropout.lanes(low, high, start, out, words)
    assert np.array_equal(out, randomness.lanes(count, seed, "x", start=start))


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32])
def test_what_loops_do_not_read_is_read_as_float32(dtype: torch.dtype) -> None:
    base, other = torch.arange(12).view(3, 4).to(dtype), torch.full((3, 4), 5).to(dtype)
    work = Stretches("t", base, [other], ChunkPool(1))
    (out,) = run(work, StageProgram(1, 4, scale=0.5), dtype=torch.float32)
    assert torch.equal(out, (base + other).float() / 2)


def test_columns_that_are_not_in_one_piece_are_read_right() -> None:
    whole_ = torch.arange(24.0).view(4, 6)
    (out,) = run(
        Stretches("t", None, [whole_.t()], ChunkPool(1)), StageProgram(1, 4), dtype=torch.float32
    )
    assert torch.equal(out, whole_.t())


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    ("values", "told"),
    [((1.0, 2.0), 0), ((1.0, math.nan), 1), ((math.inf, 0.0), 1), ((60_000.0, 60_000.0), 2)],
)
def test_nan_and_inf_are_told_of(values: tuple[float, float], told: int, compiled: bool) -> None:
    """What came in before what came out."""
    work = Stretches("t", None, [torch.full((2, 3), v) for v in values], ChunkPool(1))
    program = StageProgram(2, 3, factors=(1.0, 1.0))
    merge = program if compiled else in_torch(program)
    out = torch.empty(2, 3, dtype=torch.float16)
    assert work.run([merge], slice(0, 2), [out]) == told


@pytest.mark.slow
def test_dot_products_of_stored_tensors_are_those_of_float64() -> None:
    work = stretches(3, 3, (700, 777), torch.bfloat16)
    base = work.base[:].float() if isinstance(work.base, torch.Tensor) else torch.empty(0)
    wide = torch.stack([(rows[slice(0, 700)].float() - base).double().view(-1) for rows in work.inputs])
    assert np.allclose(work.gram(), (wide @ wide.T).numpy(), rtol=1e-13)


@pytest.mark.slow
def test_magnitudes_between_bounds_are_found_in_stored_tensors_as_in_others() -> None:
    work = stretches(4, 2, (50, 333), torch.float32)
    x, stored_ = work.at(work.cuts[0]).clone(), work.stored(work.cuts[0])
    factors = inner_loops.floats((0.5, 0.5))
    bounds = [(0.05, 0.06), (0.1, 0.1), (0.0, math.inf)]
    found = inner_loops.splits(stored_, factors, [1, 2, 2], bounds)
    for (counts, between), layer, (low, high) in zip(found, [1, 2, 2], bounds, strict=True):
        wanted_counts, wanted = inner_loops.split(x[layer], low, high)
        assert counts.tolist() == wanted_counts.tolist()
        assert np.array_equal(between, wanted)
    sample = inner_loops.sampled(stored_, factors, [2], 7)
    assert np.array_equal(sample[0], x[2].reshape(-1)[::7].abs().numpy())


# ---- properties of techniques --------------------------------------------------------------


def merged(name: str, inputs: list[torch.Tensor], **params: object) -> torch.Tensor:
    given = method_registry.parameters(name, params)
    return whole(inputs, lambda work: method_registry.prepare(name, work, given, 0))


def models(seed: int, count: int, size: int) -> list[torch.Tensor]:
    rng = np.random.default_rng(seed)
    return [torch.from_numpy(rng.standard_normal((size, 5))).float() for _ in range(count)]


SYMMETRIC = {
    "linear": True,
    "task_arithmetic": True,
    "ties": True,
    "breadcrumbs": True,
    "karcher": True,
    "dfs": False,
    "model_stock": False,
    "sce": False,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SYMMETRIC)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(3, 5))
def test_the_order_of_sources_does_not_matter(name: str, seed: int, count: int) -> None:
    """With their weights; but for the order of additions."""
    inputs = models(seed, count, 40)
    weights = np.random.default_rng(seed).uniform(0.1, 1, count).round(3)
    order = np.random.default_rng(seed + 1).permutation(count)

    def given(places: np.ndarray) -> dict[str, object]:
        return {"weights": tuple(weights[places].tolist())} if SYMMETRIC[name] else {}

    ours = merged(name, inputs, **given(np.arange(count)))
    theirs = merged(name, [inputs[i] for i in order], **given(order))
    assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.floats(0.01, 10), min_size=2, max_size=5))
def test_linear_of_one_model_many_times_is_that_model(seed: int, weights: list[float]) -> None:
    """Its weights add up to one."""
    (x,) = models(seed, 1, 20)
    made = merged("linear", [x] * len(weights), weights=tuple(weights))
    assert torch.allclose(made, x, rtol=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 5))
def test_ties_of_everything_with_agreeing_signs_is_the_mean(seed: int, count: int) -> None:
    inputs = [x.abs() for x in models(seed, count, 20)]
    made = merged("ties", inputs, density=1.0)
    assert torch.allclose(made, torch.stack(inputs).mean(dim=0), rtol=1e-6)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 6), st.floats(0.001, 10))
def test_dfs_of_equal_inputs_is_the_identity(seed: int, count: int, epsilon: float) -> None:
    (x,) = models(seed, 1, 30)
    assert torch.equal(merged("dfs", [x] * count, epsilon=epsilon), x)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**4), st.floats(0.1, 0.95))
def test_dare_expects_the_task_vector(seed: int, drop: float) -> None:
    """The mean over masks, within six of its standard errors."""
    (x,) = models(seed, 1, 10)
    given, masks = method_registry.parameters("dare", {"drop": drop}), 400
    assume(drop < 0.94)
    total = sum(
        (
            whole([x], lambda work, s=s: method_registry.prepare("dare", work, given, s))
            for s in range(masks)
        ),
        torch.zeros_like(x),
    )
    error = x.abs() * math.sqrt(drop / (1 - drop) / masks)
    assert bool(((total / masks - x).abs() <= 6 * error + 1e-6).all())


@pytest.mark.parametrize("name", ["passthrough", "linear", "task_arithmetic"])
def test_a_path_of_one_model_is_that_model(name: str) -> None:
    (x,) = models(0, 1, 30)
    assert torch.equal(merged(name, [x]), x)


# ---- on a GPU ------------------------------------------------------------------------------

CASES = {
    "linear": {},
    "slerp": {},
    "task_arithmetic": {"scale": 0.7},
    "ties": {"density": 0.3},
    "dare": {"drop": 0.8},
    "dfs": {},
    "della": {"density": 0.6},
    "breadcrumbs": {},
    "sce": {},
    "model_stock": {},
    "karcher": {},
    "multislerp": {},
    "ram": {"epsilon": 0.01},
    "ramplus_tl": {"epsilon": 0.01},
    "stages": {"name": "slerp-ties-dfs", "genes": {}},
}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("dtype", DTYPES[:2])
@pytest.mark.parametrize("name", CASES)
def test_a_gpu_gives_the_same_masks_and_values_within_a_unit(name: str, dtype: torch.dtype) -> None:
    """docs/merging.md: masks identical, values within one unit in the last place of the output."""
    host = stretches(7, 3, (600, 512), dtype)
    made = {}
    for device in ("cpu", "cuda"):
        work = Stretches("t", host.base, host.inputs, ChunkPool(1, device))
        params = method_registry.parameters(name, CASES[name])
        out = torch.empty(600, 512, dtype=dtype)
        merge = method_registry.prepare(name, work, params, 3)
        for cut in work.cuts:
            assert work.run([merge], cut, [as_rows(out)[cut]]) == 0
        made[device] = out
    kept = [
        out != host.base[:] if isinstance(host.base, torch.Tensor) else out for out in made.values()
    ]
    if name in ("dare", "della", "ties", "breadcrumbs"):
        assert torch.equal(*kept)
    unit = torch.finfo(dtype).eps
    assert torch.allclose(made["cpu"].double(), made["cuda"].double(), rtol=unit, atol=unit / 64)


# ---- sums of three -------------------------------------------------------------------------


@pytest.mark.parametrize("based", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_of_three_have_a_loop_of_their_own_with_the_same_bits(
    dtype: torch.dtype, based: bool
) -> None:
    """Of tensors that are stored alike; of others, block by block. Zeros keep their sign."""
    for rows, scale in ((1, 1.0), (37, 0.7)):
        work = stretches(rows, 3, (rows, 61), dtype, based)
        for rows_ in work.inputs:
            rows_[:, 0] = -0.0
        program = StageProgram(3, 61, factors=(0.5, 0.3, 0.2), scale=scale)
        for to in (dtype, torch.float32):
            (ours,), (theirs,) = (run(work, program, dtype=to), run(work, in_torch(program), dtype=to))
            assert ours.view(torch.uint8).equal(theirs.view(torch.uint8))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_of_three_tell_what_is_not_finite(dtype: torch.dtype, bad: float) -> None:
    """Wherever it stands; and where only the result leaves the range."""
    program = StageProgram(3, 61, factors=(0.5, 0.3, 0.2))
    for place in (0, 60, 33 * 61 + 7, 37 * 61 - 1):
        for which in range(3):
            work = stretches(0, 3, (37, 61), dtype)
            work.inputs[which].view(-1)[place] = bad  # pyright: ignore
            assert [work.run([program], c, [torch.empty(37, 61, dtype=dtype)]) for c in work.cuts] == [
                1
            ]
    work = stretches(0, 3, (37, 61), dtype, based=False)
    for rows in work.inputs:
        rows[5, 5] = torch.finfo(dtype).max
    large = StageProgram(3, 61, factors=(1.0, 1.0, 1.0))
    assert [work.run([large], c, [torch.empty(37, 61, dtype=dtype)]) for c in work.cuts] == [2]


def test_a_program_is_not_told_of_inputs_that_it_does_not_read() -> None:
    """One that takes the second input whole, after one that read all of them."""
    work = stretches(0, 3, (9, 40), torch.float32)
    work.inputs[0].view(-1)[100] = math.nan  # pyright: ignore
    several = [
        StageProgram(3, 40, factors=(0.5, 0.3, 0.2), vote=Vote((1.0,) * 4)),
        StageProgram(3, 40, taken=2),
    ]
    outs = [torch.empty(9, 40) for _ in several]
    told = inner_loops.merged(work.stored(work.cuts[0]), 0, stacked(several), outs)
    assert told == [1, 0]
    assert outs[1].isfinite().all()
