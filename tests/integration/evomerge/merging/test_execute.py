"""Plans are executed into memory or files, alone or together, with the same bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch

from agent_forge.evomerge.merging import tensor_ops
from agent_forge.evomerge.merging.builder import Builder, Weights
from agent_forge.evomerge.merging.execute import MemorySink, execute
from agent_forge.evomerge.merging.kernels.chunks import ChunkPool, Stretches
from agent_forge.evomerge.merging.plan import plan, reads
from agent_forge.evomerge.merging.safetensors_sink import JOURNAL, SafetensorsSink, mapped
from agent_forge.evomerge.merging.tensor_ops import MergeInputs, TensorSpec
from agent_forge.evomerge.recipes import tensor_groups
from agent_forge.evomerge.recipes.recipe import (
    PIPELINES,
    Flow,
    Genes,
    Grouped,
    Merge,
    Mutate,
    Noise,
    Pipeline,
    Recipe,
    Source,
    Step,
    closure,
)
from agent_forge.runs.errors import ConfigError, NotFiniteError
from agent_forge.runs.system import process_limits
from agent_forge.weights.folders import checkpoint
from testing.models.toy_tensors import Toys, same
from testing.shares import one_quick

#: Three blocks, tensors of several chunks, projections that write into the stream.
SHAPES: dict[str, tuple[int, ...]] = {
    "lm_head.weight": (700, 40),
    "model.embed_tokens.weight": (7_000, 40),
    **{f"model.layers.{b}.mlp.down_proj.weight": (40, 90) for b in range(3)},
    **{f"model.layers.{b}.self_attn.o_proj.weight": (40, 40) for b in range(3)},
    "model.layers.1.mlp.up_proj.weight": (90, 40),
    "model.layers.1.norm.weight": (40,),
    "model.norm.weight": (40,),
}


def recipes(toys: Toys) -> dict[str, Recipe]:
    """Every kind of recipe over the toys, and some that read other candidates."""
    base, sources = toys.base, toys.sources
    found: dict[str, Recipe] = {"source": toys.known[sources[0]]}
    for method in ("linear", "slerp", "task_arithmetic", "ties", "dare", "dfs"):
        found[method] = Merge(method=method, inputs=sources, base=base, seed=3)
    found["linear alone"] = Merge(method="linear", inputs=sources, base=None)
    layers = {"layers": (1, 2, 0, 2, 1, 0)}
    found["frankenmerge"] = Merge(method="frankenmerge", inputs=sources, base=base, params=layers)
    for number, (first, second, third) in enumerate(PIPELINES):
        genes = Genes(layers=(0, number % 3, 0), scale=0.9)
        found["-".join((first, second, third))] = Pipeline(
            inputs=sources,
            base=base,
            interpolation=first,
            arithmetic=second,
            selection=third,
            genes=genes,
            seed=number,
        )
    groups = tensor_groups.count(2)
    params = tuple({"density": 0.1 + 0.05 * group} for group in range(groups))
    grouped = Grouped(method="ties", inputs=sources, base=base, depths=2, params=params)
    found["grouped"] = grouped
    # Blocks that write into the stream have the same shapes; 0 and 2 have no other tensors.
    steps = (Step(model=0, block=0), Step(model=2, block=2, scale=0.7), Step(model=0, block=2))
    found["flow"] = flow = Flow(merged=grouped, steps=(*steps, Step(model=0, block=0, scale=1.3)))
    noise = Noise(rate=0.3, sigma=0.5, relative_to="task_vector", seed=1)
    absolute = Noise(rate=1.0, sigma=0.01, relative_to="absolute", seed=2)
    parent = found["slerp-ties-dfs"]
    found["mutant"] = mutant = Mutate(parent=parent.id, base=base, noise=noise)
    found["second mutant"] = second = Mutate(parent=mutant.id, base=base, noise=absolute)
    stated = found["linear-dare-dfs"]
    assert isinstance(stated, Pipeline)
    found["other genes"] = Mutate(parent=second.id, base=base, pipeline=stated, noise=noise)
    found["mutant of a source"] = Mutate(parent=sources[1], base=base, noise=absolute)
    found["mutant of a path"] = Mutate(parent=flow.id, base=base, noise=noise)
    found["path and noise"] = Mutate(parent=flow.id, base=base, pipeline=flow, noise=noise)
    found["of candidates"] = Merge(method="slerp", inputs=(mutant.id, parent.id), base=base)
    return found


def mixed(toys: Toys) -> Toys:
    """The toys with a base of another dtype than the sources, and a tensor of integers."""
    toys.stored[toys.base] = {n: x.to(torch.bfloat16) for n, x in toys.origin.items()}
    for number, model in enumerate(toys.stored.values()):
        model["model.position_ids"] = torch.arange(4) + number  # pyright: ignore
    return toys


@pytest.fixture(scope="module", params=one_quick("mixed", "float32", "bfloat16"))
def toys(request: pytest.FixtureRequest) -> Toys:
    """Three sources in one dtype, or on a base of another one."""
    if request.param == "mixed":
        return mixed(Toys(SHAPES))
    return Toys(SHAPES, dtype=getattr(torch, request.param))


def test_recipes_built_together_are_those_built_alone(toys: Toys) -> None:
    """One pass for all kinds at once changes no bit, also of candidates that read candidates."""
    all_ = recipes(toys)
    builder = toys.builder(all_.values())
    together = builder.build_many(list(all_.values()))
    for name, weights in zip(all_, together, strict=True):
        assert same(weights, builder.build(all_[name])), name


def test_recipes_built_together_read_what_they_share_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight pipelines open each tensor once with all inputs, not eight times."""
    toys, opened = Toys(SHAPES), []
    init = Stretches.__init__

    def counted(self: Stretches, name: str, *rest: object) -> None:
        opened.append(name)
        init(self, name, *rest)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(Stretches, "__init__", counted)
    pipelines = [r for r in recipes(toys).values() if isinstance(r, Pipeline) and r.number % 2]
    toys.builder(pipelines).build_many(pipelines)
    assert sorted(opened) == sorted(SHAPES)


def test_files_have_the_bits_of_memory(toys: Toys, tmp_path: Path) -> None:
    """Every kind of recipe, out of core, with its ancestors out of core too."""
    all_ = recipes(toys)
    (tmp_path / "scratch").mkdir()
    known = {**toys.known, **{r.id: r for r in all_.values()}}
    builder = Builder(known, toys.stored.get, tmp_path / "scratch")
    for name, recipe in all_.items():
        wanted = toys.builder(all_.values()).build(recipe)
        folder = tmp_path / name
        folder.mkdir()
        assert builder.write(recipe, folder, 100_000) == checkpoint.digest(wanted), name
        found = mapped(folder)
        assert same(found, {n: wanted[n] for n in sorted(wanted)}), name
        assert not (folder / JOURNAL).exists()
    ancestors = {id_ for r in all_.values() for id_ in closure(r.id, known)} - set(toys.known)
    assert {p.name for p in (tmp_path / "scratch").iterdir()} < ancestors


def test_several_plans_go_into_several_files_in_one_pass(tmp_path: Path) -> None:
    """A generation out of core: each file is that of its recipe alone."""
    toys = Toys(SHAPES)
    all_ = recipes(toys)
    chosen = [all_[n] for n in ("ties", "linear-dare-dfs", "grouped", "flow", "path and noise")]
    builder = toys.builder(all_.values())
    plans, models = builder.planned(chosen)
    folders = [tmp_path / str(number) for number in range(len(chosen))]
    for folder in folders:
        folder.mkdir()
    sinks = [SafetensorsSink(f, p, 50_000) for f, p in zip(folders, plans, strict=True)]
    with sinks[0], sinks[1], sinks[2], sinks[3], sinks[4], ChunkPool(2) as pool:
        execute(plans, models, sinks, pool)
        digests = [sink.digest() for sink in sinks]
    assert digests == [checkpoint.digest(builder.build(recipe)) for recipe in chosen]


def test_a_sink_of_memory_says_the_digest(toys: Toys) -> None:
    """Whatever the sink, the digest is what an event records."""
    recipe = recipes(toys)["ties"]
    (ops,), models = toys.builder([recipe]).planned([recipe])
    sink = MemorySink(ops)
    with ChunkPool(1) as pool:
        execute([ops], models, [sink], pool)
    assert sink.digest() == checkpoint.digest(toys.build(recipe))


def test_a_plan_needs_names_dtypes_and_shapes_only(toys: Toys) -> None:
    """`plan` opens no weights: it is given none, and says every tensor of the result."""
    all_ = recipes(toys)
    known = {**toys.known, **{r.id: r for r in all_.values()}}
    built: dict[str, Mapping[str, TensorSpec]] = {
        id_: tensor_ops.specs(w) for id_, w in toys.stored.items()
    }
    for name, recipe in all_.items():  # parents come before their children
        ops = plan(recipe, known, {id_: built[id_] for id_ in reads(recipe)})
        built[recipe.id] = {op.name: TensorSpec(op.dtype, op.shape) for op in ops}
        made = toys.builder(all_.values()).build(recipe)
        assert built[recipe.id] == tensor_ops.specs(made), name
        assert list(built[recipe.id]) == list(made), name


def test_blocks_that_are_not_on_the_path_are_not_made() -> None:
    """A path leaves out block 1 of the merge: no operation reads a source's block 1."""
    toys = Toys(SHAPES)
    flow = recipes(toys)["flow"]
    (ops,), _ = toys.builder([flow]).planned([flow])
    assert not [r for op in ops for r in op.reads if ".layers.1." in r.tensor]
    assert {op.name for op in ops if ".layers.1." in op.name}  # the path's second step


def test_what_does_not_fit_is_refused_before_weights_are_read() -> None:
    """Layers of a wrong length, from shapes alone."""
    toys = Toys(SHAPES)
    recipe = Pipeline(
        inputs=toys.sources,
        base=toys.base,
        interpolation="linear",
        arithmetic="dare",
        selection="frankenmerge",
        genes=Genes(layers=(0,)),
        seed=1,
    )
    shapes = {toys.base: tensor_ops.specs(toys.origin)}
    with pytest.raises(ConfigError, match="frankenmerge needs 3 layer entries"):
        plan(recipe, {}, shapes)


def test_only_a_strict_execution_refuses_what_is_not_finite() -> None:
    """A run's candidate may overflow, which costs it its fitness; a user's merge may not."""
    toys = Toys(SHAPES)
    toys.stored[toys.sources[1]]["model.norm.weight"][3] = float("nan")  # pyright: ignore
    recipe = Merge(method="linear", inputs=toys.sources, base=toys.base)
    (ops,), models = toys.builder([recipe]).planned([recipe])
    with ChunkPool(1) as pool:
        sink = MemorySink(ops)
        execute([ops], models, [sink], pool)
        assert sink.weights["model.norm.weight"].isnan().sum() == 1
        with pytest.raises(NotFiniteError, match=f"model.norm.weight of {toys.sources[1]}"):
            execute([ops], models, [MemorySink(ops)], pool, strict=True)


# ---- memory --------------------------------------------------------------------------------

#: 96 MB in bfloat16: two tensors of 64 and 32 MB.
BIG = {"model.embed_tokens.weight": (32_000, 1_000), "model.layers.0.mlp.weight": (16_000, 1_000)}


def anonymous() -> int:
    """Bytes of memory of this process that no file backs."""
    text = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if "RssAnon" in line)


def growth(monkeypatch: pytest.MonkeyPatch, build: Callable[[], object]) -> int:
    """Return by how much memory grew at most, looked at whenever a chunk has been merged."""
    process_limits.give_back()  # free memory that is taken again would be no growth
    before, peak = anonymous(), 0
    run = Stretches.run

    def looked(self: Stretches, *given: object) -> int:
        nonlocal peak
        told = run(self, *given)  # pyright: ignore[reportArgumentType]
        peak = max(peak, anonymous() - before)
        return told

    with monkeypatch.context() as patch:
        patch.setattr(Stretches, "run", looked)
        build()
    return peak


def test_memory_is_some_chunks_out_of_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources are mapped, the result is written as it is made: neither is ever in memory."""
    ids: dict[str, Recipe] = {}
    stored: dict[str, Weights] = {}
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        torch.manual_seed(number)
        values = {n: torch.randn(shape).to(torch.bfloat16) for n, shape in BIG.items()}
        checkpoint.write_weights(folder, values, 1 << 40)
        del values
        source = Source(digest=f"{number:064x}")
        ids[source.id], stored[source.id] = source, mapped(folder)
    base, *inputs = ids
    recipe = Merge(method="task_arithmetic", inputs=tuple(inputs), base=base)
    ids[recipe.id] = recipe
    builder, out = Builder(ids, stored.get), tmp_path / "out"
    out.mkdir()
    small = {"w": torch.ones(64, 64, dtype=torch.bfloat16)}  # loads what merges need
    Builder({}, dict.fromkeys((base, *inputs), small).get).build(recipe)
    size = sum(2 * rows * columns for rows, columns in BIG.values())
    most = growth(monkeypatch, lambda: builder.write(recipe, out))
    assert most < 0.75 * size, most  # full queues of the writer: 24 MB
    held: list[Weights] = []
    whole = growth(monkeypatch, lambda: held.append(builder.build(recipe)))
    assert whole > 0.9 * size, whole  # the measure sees a model in memory
    assert checkpoint.digest(held[0]) == checkpoint.digest(mapped(out))


def test_models_name_what_is_missing() -> None:
    """A read of a tensor that a model lacks is a KeyError with its name."""
    with pytest.raises(KeyError, match="x"):
        MergeInputs({"a": {}}).rows(tensor_ops.Read("a", "x"))
