"""RegMean and RegMean++ of whole models: beside the papers' loops, bits, crashes, bad input."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from agent_forge.evomerge.mergekit import parser, regression
from agent_forge.evomerge.mergekit.plan import Layout, lay_out
from agent_forge.evomerge.mergekit.regression import Regression, RegressionText
from agent_forge.evomerge.merging.kernels.chunks import ChunkPool
from agent_forge.evomerge.merging.methods import regmean
from agent_forge.evomerge.tasks import merge as tasks_merge
from agent_forge.runs.errors import ConfigError, DataError, NotFiniteError
from agent_forge.weights.folders.checkpoint import digest, open_checkpoint
from testing.models import families, toy_models
from testing.models.toys import Toys
from testing.shares import one_quick

#: Architectures: windows and full attention, convolutions, norms behind blocks, partial rotation.
KINDS = ("llama", "gemma3_text", "lfm2", "olmo2", "phi3", "gpt_neox", "qwen3", "granite", "smollm3")


def config(method: str, folders: Sequence[Path | str], **parameters: Any) -> str:
    """Return a config; `data` may be a list with an entry for each model."""
    data = parameters.pop("data", None)
    each = data if isinstance(data, tuple) else [data] * len(folders)
    models = [
        {"model": str(folder), "parameters": {} if of is None else {"data": of}}
        for folder, of in zip(folders, each, strict=True)
    ]
    return json.dumps({"merge_method": method, "models": models, "parameters": parameters})


def layout(text: str) -> Layout:
    """Return the layout of a config."""
    (document,) = parser.parse(text, "config.yml")
    return lay_out(document, tasks_merge.open_models(document, {}))


def prepared(text: str, out: Path) -> tasks_merge.PreparedMerge:
    """Return a checked merge."""
    (document,) = parser.parse(text, "config.yml")
    return tasks_merge.prepare(document, out, {})


def drawn(seed: int, lengths: Sequence[int] = (12, 12, 7), tokens: int = 96) -> list[np.ndarray]:
    """Return windows of random token ids."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, tokens, length) for length in lengths]


def regression_on(method: str, windows: Sequence[list[np.ndarray]], alpha: float) -> Regression:
    """Return a regression on these windows."""
    texts = [RegressionText(str(i), (), tuple(own), str(i)) for i, own in enumerate(windows)]
    return Regression(method, regmean.Params(alpha=alpha), tuple(texts))


# ---- beside the papers' loops --------------------------------------------------------------


def grams_of(model: Any, windows: Sequence[np.ndarray], block: int) -> dict[str, torch.Tensor]:
    """Return XᵀX / tokens of the linear layers of a block, by whole passes of the whole model."""
    sums: dict[str, torch.Tensor] = {}
    hooks = []

    def adding(name: str) -> Callable[..., None]:
        def add(_: Any, given: tuple[torch.Tensor, ...]) -> None:
            x = given[0].reshape(-1, given[0].shape[-1]).double()
            sums[name] = sums.get(name, 0) + x.T @ x

        return add

    for name, layer in model.named_modules():
        if isinstance(layer, torch.nn.Linear) and f"layers.{block}." in name:
            hooks.append(layer.register_forward_pre_hook(adding(f"{name}.weight")))
    with torch.no_grad():
        for window in windows:
            model(input_ids=torch.from_numpy(window)[None], use_cache=False)
    for hook in hooks:
        hook.remove()
    return {name: total / sum(map(len, windows)) for name, total in sums.items()}


def by_the_papers(
    method: str, folders: Sequence[Path], windows: Sequence[list[np.ndarray]], alpha: float
) -> dict[str, torch.Tensor]:
    """Return all weights, merged as the papers' algorithms say: whole models, and torch's inverse."""
    load = AutoModelForCausalLM.from_pretrained
    models: list[Any] = [load(folder, dtype=torch.float32) for folder in folders]
    states = [dict(model.named_parameters()) for model in models]
    merged = {n: torch.stack([s[n].detach() for s in states]).mean(0) for n in states[0]}
    for block in range(len(models[0].base_model.layers)):
        grams = []
        for model, state, own in zip(models, states, windows, strict=True):
            if method == "regmean++":
                before = [n for n in state if not _at_or_after(n, block)]
                _set(model, {n: merged[n] for n in before})
            grams.append(grams_of(model, own, block))
        for name in grams[0]:
            scaled = [alpha * g[name] + (1 - alpha) * g[name].diag().diag() for g in grams]
            pulled = [s @ state[name].double().T for s, state in zip(scaled, states, strict=True)]
            inverse = torch.inverse(torch.stack(scaled).sum(0))
            merged[name] = (inverse @ torch.stack(pulled).sum(0)).T.float().detach()
    return merged


def _at_or_after(name: str, block: int) -> bool:
    words = name.split(".")
    return "layers" in words and int(words[words.index("layers") + 1]) >= block


def _set(model: Any, tensors: Mapping[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in tensors:
                parameter.copy_(tensors[name])


@pytest.mark.parametrize("method", ["regmean", "regmean++"])
@pytest.mark.parametrize("kind", one_quick(*KINDS))
def test_it_is_the_papers_loop(kind: str, method: str, tmp_path: Path) -> None:
    """Blocks one by one give what passes through whole models give, for grouped queries too."""
    folders = [families.save(tmp_path / f"m{i}", kind, seed=i) for i in range(2)]
    windows = [drawn(i, (30, 30, 30, 30, 17)) for i in range(2)]
    expected = by_the_papers(method, folders, windows, 0.8)
    plan = layout(config(method, folders))
    with ChunkPool(1) as pool:
        made = regression.solve(plan, regression_on(method, windows, 0.8), tmp_path / "s", pool)
    assert len(made) >= 8
    for name, tensor in made.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=1e-5, msg=name)


def test_one_block_is_the_same_by_both(tmp_path: Path) -> None:
    """No earlier block is merged; the embedding is one that both models have."""
    folders = [families.save(tmp_path / f"m{i}", "llama", num_hidden_layers=1) for i in range(2)]
    weights = families.tensors(folders[1])
    for name, tensor in weights.items():
        if "layers.0." in name and tensor.dim() == 2:
            weights[name] = tensor + torch.roll(tensor, 1)
    families.store(folders[1], weights)
    windows = [drawn(1), drawn(2)]
    made = []
    for method in regmean.PREFIXES:
        with ChunkPool(1) as pool:
            plan = layout(config(method, folders))
            made.append(
                regression.solve(plan, regression_on(method, windows, 0.9), tmp_path / method, pool)
            )
    own, merged = made
    assert own
    assert all(torch.equal(own[name], merged[name]) for name in own)


# ---- whole merges --------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["regmean", "regmean++"])
def test_the_same_bits_for_any_threads_and_files(method: str, toys: Toys, tmp_path: Path) -> None:
    """Linear layers move away from the mean, all else is the mean; the record names the texts."""
    text = config(method, toys.sources, data=str(toys.data), tokens=2_000)
    digests = {
        tasks_merge.run(prepared(text, tmp_path / f"{n}"), threads=n, shard_bytes=size)
        for n, size in ((1, 1 << 30), (3, 10_000))
    }
    made = dict(open_checkpoint(tmp_path / "1").tensors())
    assert digests == {digest(made)}
    mean = config("linear", toys.sources, weight=1.0)
    tasks_merge.run(prepared(mean, tmp_path / "mean"))
    plain = open_checkpoint(tmp_path / "mean").tensors()
    moved = {name for name in made if not torch.equal(made[name], plain[name])}
    assert moved == {n for n in made if "proj.weight" in n}
    told = json.loads((tmp_path / "1" / "evomerge_merge.json").read_text())["regression"]
    assert told["method"] == method
    assert [len(one["digest"]) for one in told["texts"]] == [64] * 3
    assert [p.name for p in (tmp_path / "1").iterdir() if p.name.startswith(".")] == []


def test_a_merge_that_was_interrupted_goes_on(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks that were written are not merged again, and the result has the same bits."""
    text = config("regmean++", toys.sources, data=str(toys.data), tokens=1_000)
    whole = tasks_merge.run(prepared(text, tmp_path / "whole"))
    solve, solved = regmean.solve, []

    def dies(*given: Any) -> torch.Tensor:
        if len(solved) == 9:  # seven layers a block
            raise KeyboardInterrupt
        solved.append(1)
        return solve(*given)

    monkeypatch.setattr(regmean, "solve", dies)
    with pytest.raises(KeyboardInterrupt):
        tasks_merge.run(prepared(text, tmp_path / "out"), threads=1)
    monkeypatch.setattr(regmean, "solve", lambda *given: solved.append(1) or solve(*given))
    assert tasks_merge.run(prepared(text, tmp_path / "out"), threads=1) == whole
    assert len(solved) == 9 + 14
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "whole"]


def test_other_texts_or_parameters_begin_again(toys: Toys, tmp_path: Path) -> None:
    """Blocks that an interrupted merge has left belong to another merge."""
    digests = set()
    for parameters in ({"tokens": 500}, {"tokens": 900}, {"tokens": 500, "alpha": 0.2}):
        text = config("regmean", toys.sources, data=str(toys.data), **parameters)
        digests.add(tasks_merge.run(prepared(text, tmp_path / "out")))
    assert len(digests) == 3


def test_each_model_may_have_data_of_its_own(toys: Toys, tmp_path: Path) -> None:
    """The order of the models is that of their texts, and a model's text counts."""
    texts = []
    for number, words in enumerate(("1 + 1 = 2\n", "name: value\n", "a b c d e f\n")):
        rows = [{"id": f"{number}-{i}", "slice": "search", "text": words * 9} for i in range(4)]
        file = tmp_path / f"text{number}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        texts.append(str(file))
    first = prepared(config("regmean", toys.sources, data=tuple(texts)), tmp_path / "a")
    assert first.regressed is not None
    assert [text.data for text in first.regressed.texts] == [(one,) for one in texts]
    other = config("regmean", toys.sources, data=(texts[1], texts[0], texts[2]))
    assert tasks_merge.run(first) != tasks_merge.run(prepared(other, tmp_path / "b"))


def test_half_precision_is_rounded_once(tmp_path: Path) -> None:
    """A bfloat16 family stays bfloat16; float32 sums are rounded at the end."""
    _, sources = toy_models.family(tmp_path / "half", 2, torch.bfloat16)
    data = toy_models.data(tmp_path / "data")
    text = config("regmean++", sources, data=str(data), tokens=500)
    tasks_merge.run(prepared(text, tmp_path / "out"))
    assert {t.dtype for t in open_checkpoint(tmp_path / "out").tensors().values()} == {torch.bfloat16}


# ---- bad input -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"alpha": 2}, "parameter alpha"),
        ({"tokens": 0.5}, "parameter tokens"),
        ({"weight": -1}, "weights from 0 on"),
        ({"data": 7}, "data names files"),
        ({"data": "nowhere.jsonl"}, "nowhere.jsonl"),
    ],
)
def test_wrong_parameters_are_named(
    changes: dict[str, Any], message: str, toys: Toys, tmp_path: Path
) -> None:
    """Before anything is written."""
    given = {"data": str(toys.data), **changes}
    with pytest.raises((ConfigError, DataError), match=message):
        prepared(config("regmean", toys.sources, **given), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_text_without_the_slice_that_is_read_is_refused(toys: Toys, tmp_path: Path) -> None:
    """Questions have no text that a model was trained on."""
    file = tmp_path / "questions.jsonl"
    rows = [
        {"id": str(i), "slice": "search", "prompt": "1 + 1 =", "choices": [" 2", " 3"], "answer": 0}
        for i in range(3)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match=r"text"):
        prepared(config("regmean", toys.sources, data=str(file)), tmp_path / "out")


def test_slices_and_vocabularies_are_refused(toys: Toys, tmp_path: Path) -> None:
    """Blocks run in their order, on one tokenizer's ids."""
    parts = [{"model": str(s), "layer_range": [0, 2]} for s in toys.sources]
    sliced = json.dumps({"merge_method": "regmean", "slices": [{"sources": parts}]})
    with pytest.raises(ConfigError, match="whole models"):
        prepared(sliced, tmp_path / "out")
    union = {**json.loads(config("regmean", toys.sources)), "tokenizer_source": "union"}
    with pytest.raises(ConfigError, match="one tokenizer"):
        prepared(json.dumps(union), tmp_path / "out")


def test_a_model_without_linear_layers_is_refused(toys: Toys, tmp_path: Path) -> None:
    """GPT-2's matrices are those of a convolution."""
    _, sources = toy_models.family(tmp_path / "gpt2", 2, of=toy_models.gpt2)
    with pytest.raises(ConfigError, match="no linear layers"):
        prepared(config("regmean", sources, data=str(toys.data)), tmp_path / "out")


def test_weights_that_are_not_finite_are_named(toys: Toys, tmp_path: Path) -> None:
    """The model and the block, and nothing is left behind."""
    _, sources = toy_models.family(tmp_path / "models", 2)
    weights = families.tensors(sources[1])
    name = next(n for n in weights if "layers.1.mlp.gate" in n)
    weights[name][0, 0] = float("nan")
    families.store(sources[1], weights)
    merge = prepared(config("regmean", sources, data=str(toys.data), tokens=200), tmp_path / "out")
    with pytest.raises(NotFiniteError, match=r"source1, block 1"):
        tasks_merge.run(merge)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["models"]


@pytest.mark.parametrize("kind", families.PACKED[:1])
def test_packed_experts_are_refused(kind: str, tmp_path: Path) -> None:
    """A mixture's experts are no linear layers once they are packed."""
    folders = [families.save(tmp_path / f"m{i}", kind, seed=i) for i in range(2)]
    with pytest.raises(ConfigError, match="packs the experts"):
        regression.blocks(layout(config("regmean", folders)))
