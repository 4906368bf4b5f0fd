"""Our merges beside mergekit's, method by method, and the differences that are meant, one by one.

Slow, and only where mergekit is: FORGE_MERGEKIT names its `mergekit-yaml` (`make oracle` installs one into
an environment of its own). It is run as a program; nothing of it is imported.
"""

# ruff: noqa: E501  a config a line

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from agent_forge.evomerge.mergekit import parser
from agent_forge.evomerge.tasks import merge
from agent_forge.weights.folders.checkpoint import open_checkpoint
from testing.models.toys import Toys

TOOL = os.environ.get("FORGE_MERGEKIT", "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path(TOOL).is_file(), reason="FORGE_MERGEKIT names no mergekit-yaml"),
]

THREE = "models: [{{model: {a}}}, {{model: {b}}}, {{model: {c}}}]\nbase_model: {base}\ndtype: float32\n"
TWO = "models: [{{model: {a}}}, {{model: {b}}}]\ndtype: float32\n"

PAIR = "models: [{{model: {a}, parameters: {{weight: 0.3}}}}, {{model: {b}, parameters: {{weight: 0.5}}}}]\ndtype: float32\n"
ROWS, COLUMNS = "nuslerp_flatten: false", "nuslerp_flatten: false, nuslerp_row_wise: true"

#: Configs that both read, and the largest difference allowed, in units of the largest task vector element.
SAME = {
    "linear": (TWO + "merge_method: linear\nparameters: {{weight: [0.2, 0.7]}}\n", 1e-5),
    "slerp": (
        TWO
        + "merge_method: slerp\nbase_model: {a}\nparameters: {{t: [{{filter: mlp, value: [0.1, 0.9]}}, {{value: 0.4}}]}}\n",
        1e-4,
    ),
    "task_arithmetic": (
        THREE + "merge_method: task_arithmetic\nparameters: {{weight: 0.4, lambda: 0.9}}\n",
        1e-5,
    ),
    "task_arithmetic normalised": (
        THREE + "merge_method: task_arithmetic\nparameters: {{weight: 0.4, normalize: true}}\n",
        1e-5,
    ),
    "ties": (THREE + "merge_method: ties\nparameters: {{weight: 0.5, density: 0.5}}\n", 1e-5),
    "ties by depth": (
        THREE
        + "merge_method: ties\nparameters: {{weight: [0.1, 0.8], density: [{{filter: self_attn, value: 0.25}}, {{value: 0.5}}], normalize: false}}\n",
        1e-5,
    ),
    "dare_ties": (THREE + "merge_method: dare_ties\nparameters: {{weight: 0.5, density: 1.0}}\n", 1e-5),
    "dare_linear": (
        THREE + "merge_method: dare_linear\nparameters: {{weight: 0.5, density: 1.0}}\n",
        1e-5,
    ),
    "breadcrumbs": (
        THREE + "merge_method: breadcrumbs\nparameters: {{weight: 0.5, density: 0.5, gamma: 0.125}}\n",
        1e-5,
    ),
    "breadcrumbs_ties": (
        THREE
        + "merge_method: breadcrumbs_ties\nparameters: {{weight: 0.5, density: 0.5, gamma: 0.125}}\n",
        1e-5,
    ),
    "sce": (THREE + "merge_method: sce\nparameters: {{select_topk: 0.5}}\n", 1e-4),
    "breadcrumbs of everything": (
        THREE + "merge_method: breadcrumbs\nparameters: {{weight: 0.5}}\n",
        1e-5,
    ),
    "breadcrumbs of more than there is": (
        THREE + "merge_method: breadcrumbs\nparameters: {{weight: 0.5, density: 0.875, gamma: 0.25}}\n",
        1e-5,
    ),
    "della": (THREE + "merge_method: della\nparameters: {{weight: 0.5}}\n", 1e-5),
    "della_linear": (THREE + "merge_method: della_linear\nparameters: {{weight: 0.5}}\n", 1e-5),
    "model_stock": (THREE + "merge_method: model_stock\n", 1e-4),
    "model_stock by row": (
        THREE + "merge_method: model_stock\nparameters: {{filter_wise: true}}\n",
        1e-4,
    ),
    "karcher": (TWO + "merge_method: karcher\nparameters: {{max_iter: 100, tol: 1.0e-9}}\n", 1e-3),
    "linear with a base": (
        TWO + "merge_method: linear\nbase_model: {base}\nparameters: {{weight: 0.4}}\n",
        1e-5,
    ),
    "karcher with a base": (
        TWO + "merge_method: karcher\nbase_model: {base}\nparameters: {{max_iter: 100, tol: 1.0e-9}}\n",
        1e-3,
    ),
    "nuslerp": (PAIR + "merge_method: nuslerp\n", 1e-4),
    "nuslerp on a base": (PAIR + "merge_method: nuslerp\nbase_model: {base}\n", 1e-5),
    "nuslerp of rows": (
        PAIR + "merge_method: nuslerp\nbase_model: {base}\nparameters: {{" + ROWS + "}}\n",
        1e-5,
    ),
    "nuslerp of columns": (
        PAIR + "merge_method: nuslerp\nbase_model: {base}\nparameters: {{" + COLUMNS + "}}\n",
        1e-5,
    ),
    "multislerp": (PAIR + "merge_method: multislerp\n", 1e-4),
    "multislerp on a base": (
        THREE + "merge_method: multislerp\nparameters: {{weight: 0.7, normalize_weights: false}}\n",
        1e-5,
    ),
    "arcee_fusion": (
        "models: [{{model: {a}}}]\nbase_model: {base}\nmerge_method: arcee_fusion\ndtype: float64\n",
        1e-5,
    ),
    "ram": (THREE + "merge_method: ram\nparameters: {{epsilon: 0.0005}}\n", 1e-5),
    "ramplus_tl": (
        THREE + "merge_method: ramplus_tl\nparameters: {{epsilon: 0.0005, r: 0.4, alpha: 0.9}}\n",
        1e-5,
    ),
    "nearswap": (TWO + "merge_method: nearswap\nbase_model: {a}\nparameters: {{t: 0.001}}\n", 1e-5),
    "passthrough": (
        "slices:\n  - sources: [{{model: {a}, layer_range: [0, 2]}}]\n  - sources: [{{model: {b}, layer_range: [2, 3]}}]\nmerge_method: passthrough\ndtype: float32\n",
        0.0,
    ),
    "slices of slerp": (
        "slices:\n  - sources: [{{model: {a}, layer_range: [0, 3]}}, {{model: {b}, layer_range: [0, 3]}}]\nmerge_method: slerp\nbase_model: {a}\nparameters: {{t: [0, 1]}}\ndtype: float32\n",
        1e-4,
    ),
}


def both(text: str, toys: Toys, folder: Path) -> tuple[dict, dict, float]:
    """(ours, theirs, the largest element of a task vector)."""
    a, b, c = map(str, toys.sources)
    text = text.format(a=a, b=b, c=c, base=toys.base)
    config = folder / "config.yml"
    config.write_text(text)
    (document,) = parser.parse(text)
    merge.run(merge.prepare(document, folder / "ours", {}))
    done = subprocess.run(
        [TOOL, str(config), str(folder / "theirs"), "--no-copy-tokenizer"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    ours, theirs, base, first = (
        dict(open_checkpoint(p).tensors())
        for p in (folder / "ours", folder / "theirs", toys.base, toys.sources[0])
    )
    return ours, theirs, max(float((first[n] - base[n]).abs().max()) for n in base)


def largest(ours: dict, theirs: dict) -> float:
    assert set(ours) == set(theirs)
    return max(float((ours[n] - theirs[n]).abs().max()) for n in ours)


@pytest.fixture(scope="module")
def kin(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> Toys:
    """The toys, moved twice the first one's way from the base: task vectors at sharp angles."""
    folder = tmp_path_factory.mktemp("kin")
    base, first = (load_file(p / "model.safetensors") for p in (toys.base, toys.sources[0]))
    made = []
    for number, source in enumerate(toys.sources):
        shutil.copytree(source, folder / str(number))
        own = load_file(source / "model.safetensors")
        moved = {n: own[n] + 2 * (first[n] - base[n]) for n in own}
        save_file(moved, folder / str(number) / "model.safetensors", metadata={"format": "pt"})
        made.append(folder / str(number))
    return Toys(toys.base, tuple(made), toys.data)


def biased(folder: Path, dtype: torch.dtype) -> Toys:
    """Toys without a tensor of zeros, of which mergekit's multislerp makes no mean."""
    from testing.models import toy_models

    base, sources = toy_models.family(folder, dtype=dtype)
    for number, model in enumerate((base, *sources)):
        generator = torch.Generator().manual_seed(number)
        weights = load_file(model / "model.safetensors")
        for name in (n for n in weights if n.endswith("bias")):
            move = torch.randn(weights[name].shape, generator=generator)
            weights[name] = (0.05 * move).to(dtype)
        save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    return Toys(base, tuple(sources), folder)


@pytest.fixture(scope="module")
def trained() -> Toys:
    """Specialists that were trained here, by `make demo` or `forge cognate`."""
    folder = Path(os.environ.get("FORGE_COGNATE", "demo/models"))
    if not (folder / "cognate.json").is_file():
        pytest.skip(f"no trained models at {folder}: make demo trains them, FORGE_COGNATE says where")
    return Toys(folder / "base", tuple(folder / n for n in ("code", "math", "data")), folder)


def apart(models: Toys) -> dict[str, torch.Tensor]:
    """Tensor → rows whose task vectors point apart on the average: model_stock is meant to differ there."""
    base, *own = (dict(open_checkpoint(p).tensors()) for p in (models.base, *models.sources))
    found = {}
    for name, origin in base.items():
        moves = torch.stack([weights[name] - origin for weights in own]).double()
        moves = moves.flatten(2) if origin.dim() > 1 else moves.unsqueeze(1)
        unit = torch.nn.functional.normalize(moves, dim=2)
        cosines = torch.einsum("irc,jrc->rij", unit, unit)
        count = len(own)
        found[name] = (cosines.sum(dim=(1, 2)) - count) / (count * (count - 1)) <= 1e-3
    return found


@pytest.mark.parametrize("name", [name for name in SAME if "layer_range" not in SAME[name][0]])
def test_the_same_as_mergekit_on_trained_models(trained: Toys, tmp_path: Path, name: str) -> None:
    """A magnitude at the edge of what is kept may fall on the other side of it there."""
    text, most = SAME[name]
    ours, theirs, unit = both(text, trained, tmp_path)
    assert set(ours) == set(theirs)
    off = {n: (ours[n] - theirs[n]).abs() > max(most, 1e-4) * unit for n in ours}
    if name == "model_stock by row":
        off = {
            n: o & ~rows.view(-1, *[1] * (o.dim() - 1))
            for (n, rows), o in zip(
                sorted(apart(trained).items()), (off[n] for n in sorted(off)), strict=True
            )
        }
    edge = {n: int(o.sum()) for n, o in off.items() if bool(o.any())}
    assert all(count <= 2 * len(trained.sources) for count in edge.values()), edge


@pytest.mark.parametrize("name", SAME)
def test_the_same_as_mergekit(toys: Toys, kin: Toys, tmp_path: Path, name: str) -> None:
    text, most = SAME[name]
    toys = kin if name.startswith("model_stock") else toys
    if name.startswith("multislerp"):
        toys = biased(tmp_path / "biased", torch.float32)
    ours, theirs, unit = both(text, toys, tmp_path)
    assert largest(ours, theirs) <= most * unit


FURTHER = ("nuslerp", "multislerp", "arcee_fusion", "ram")


@pytest.mark.parametrize("name", [name for name in SAME if name.startswith(FURTHER)])
def test_the_same_as_mergekit_of_bfloat16_models(tmp_path: Path, name: str) -> None:
    """Computed in float32 there, too, and rounded once: a unit in the last place may be between."""
    models = biased(tmp_path / "biased", torch.bfloat16)
    ours, theirs, _ = both(SAME[name][0] + "out_dtype: bfloat16\n", models, tmp_path)
    assert {t.dtype for t in [*ours.values(), *theirs.values()]} == {torch.bfloat16}
    for tensor, found in ours.items():
        assert torch.allclose(found.float(), theirs[tensor].float(), rtol=2**-7, atol=1e-6), tensor
    between = sum(int((found != theirs[tensor]).sum()) for tensor, found in ours.items())
    assert between < 0.001 * sum(found.numel() for found in ours.values())


# ---- what is meant to differ ---------------------------------------------------------------


def test_dare_rescales_by_the_density_and_not_to_the_l1_norm(toys: Toys, tmp_path: Path) -> None:
    """Every kept element of ours is the delta over the density exactly; theirs depends on the mask."""
    text = "models: [{{model: {a}}}]\nbase_model: {base}\nmerge_method: dare_linear\ndtype: float32\n"
    text += "parameters: {{weight: 1.0, density: 0.5}}\n"
    ours, theirs, _ = both(text, toys, tmp_path)
    base, source = (dict(open_checkpoint(p).tensors()) for p in (toys.base, toys.sources[0]))
    name = "model.layers.0.mlp.up_proj.weight"
    delta = source[name] - base[name]
    for found, exact in ((ours, True), (theirs, False)):
        moved = found[name] - base[name]
        kept = moved.abs() > 1e-6
        ratio = (moved[kept] / delta[kept]).median()
        assert (abs(float(ratio) - 2.0) < 1e-3) is exact


def test_ties_rounds_the_number_of_kept_elements(toys: Toys, tmp_path: Path) -> None:
    """Density 0.3 of 16 is 4.8: ours keeps 5, theirs 4."""
    text = "models: [{{model: {a}}}]\nbase_model: {base}\nmerge_method: ties\ndtype: float32\n"
    ours, theirs, _ = both(text + "parameters: {{weight: 1, density: 0.3}}\n", toys, tmp_path)
    base = dict(open_checkpoint(toys.base).tensors())["model.norm.weight"]
    assert [int((m["model.norm.weight"] != base).sum()) for m in (ours, theirs)] == [5, 4]


def test_model_stock_never_leaves_the_base_and_the_mean(toys: Toys, tmp_path: Path) -> None:
    """Where task vectors point apart their formula goes the opposite way; ours stays at the base."""
    ours, theirs, _ = both(THREE + "merge_method: model_stock\n", toys, tmp_path)
    models = [dict(open_checkpoint(p).tensors()) for p in (toys.base, *toys.sources)]
    apart = 0
    for name, base in models[0].items():
        mean = torch.stack([(m[name] - base).double() for m in models[1:]]).mean(dim=0)
        way = [float((m[name] - base).double().flatten() @ mean.flatten()) for m in (ours, theirs)]
        assert way[0] >= -1e-9
        apart += way[1] < -1e-6
    assert apart


def test_a_negative_weight_gives_a_mean_of_its_voters(toys: Toys, tmp_path: Path) -> None:
    """Theirs divides by a sum of signed weights, which may come near zero; ours stays bounded."""
    text = """
models:
  - {{model: {a}, parameters: {{weight: 1.0}}}}
  - {{model: {b}, parameters: {{weight: -0.99}}}}
base_model: {base}
merge_method: ties
parameters: {{density: 1.0}}
dtype: float32
"""
    ours, theirs, unit = both(text, toys, tmp_path)
    base = dict(open_checkpoint(toys.base).tensors())
    assert max(float((ours[n] - base[n]).abs().max()) for n in base) <= 1.5 * unit
    assert max(float((theirs[n] - base[n]).abs().max()) for n in base) > 3 * unit


def test_the_head_has_its_own_value_where_it_is_named(tmp_path: Path) -> None:
    """A gradient's first value is what an unnamed head gets, there and here."""
    from testing.models import toy_models

    _, sources = toy_models.family(tmp_path / "family", 2, tie_word_embeddings=False)
    toys = Toys(sources[0], (sources[0], sources[1], sources[1]), tmp_path)
    text = TWO + "merge_method: linear\nparameters: {{weight: [0.2, 0.8]}}\n"
    ours, theirs, unit = both(text, toys, tmp_path)
    assert largest(ours, theirs) <= 1e-5 * unit + 1e-6
    assert torch.isfinite(ours["lm_head.weight"]).all()
