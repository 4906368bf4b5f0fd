"""Speed of evaluation against its best possible speed, as ratios of one run.

    python -m benchmarks.evaluation.fitness [--large] [--only NAME …]    # --large: 0.5B too, minutes

loop        tokens a second against the best bare transformers loop, with tuned batch size
swap        seconds of a swap of weights against those of an evaluation of 16k tokens
second      a second evaluation in one process against its forward passes alone
harness     against lm-evaluation-harness on the same local task: accuracy and time
eight       eight candidates against eight times one, and all in one batched pass (`torch.func`)
half        bfloat16 against float32: time and perplexity
compiled    full batches compiled against not compiled: time, perplexity, time to compile
memory      bytes that each of 300 evaluations in one process leaves behind
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from agent_forge.evaluation import autotune
from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data import items as data_items
from agent_forge.evaluation.data import outcomes, packing
from agent_forge.evaluation.data.packing import ItemPack
from agent_forge.evaluation.evaluate import Judge, evaluate
from agent_forge.evaluation.lm_eval import spec
from agent_forge.evaluation.measures.perplexity import score_windows
from agent_forge.evomerge.merging.builder import not_finite
from agent_forge.phases.cognate.settings import PRESETS
from benchmarks.common import best, configuration, folders, machine
from testing.models import lm_eval_reference, lm_eval_tasks

M25 = PRESETS["25m"]
TINY = PRESETS["tiny"]

LENGTH = 256


def _model(config: Qwen2Config, seed: int = 0) -> ResidentModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ResidentModel.from_module(Qwen2ForCausalLM(config).eval())


def half_billion() -> Qwen2Config:
    """Return the configuration of a model with the shape of Qwen2.5-0.5B."""
    return Qwen2Config(
        vocab_size=151_936,
        hidden_size=896,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        intermediate_size=4864,
        tie_word_embeddings=True,
    )


def _windows(count: int, vocabulary: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, vocabulary, LENGTH) for _ in range(count)]


def _turns(first: Callable[[], Any], second: Callable[[], Any], turns: int) -> float:
    """Return seconds of the first over seconds of the second: the median of alternating turns."""
    return statistics.median(best(first, 1) / best(second, 1) for _ in range(turns))


def _said(what: str, ratio: float, limit: str, ok: bool) -> None:
    print(f"{what}: {ratio:.3f} ({'ok' if ok else 'MISSED'}, asked for: {limit})", flush=True)


def loop(model: ResidentModel, name: str, windows: int, turns: int) -> None:
    """Compare scoring with `model(input_ids=…, labels=…)` at its fastest batch size."""
    drawn = _windows(windows, model.vocabulary)
    stacked = torch.from_numpy(np.stack(drawn))

    @torch.inference_mode()
    def bare(rows: int) -> None:
        for start in range(0, windows, rows):
            ids = stacked[start : start + rows]
            float(model.module(input_ids=ids, labels=ids, use_cache=False).loss)

    sizes = [rows for rows in (1, 2, 4, 8, 16, 32, 64) if rows <= windows]
    seconds = {rows: best(lambda rows=rows: bare(rows), 2) for rows in sizes}
    rows = min(seconds, key=lambda rows: seconds[rows])
    ratio = _turns(lambda: bare(rows), lambda: score_windows(model, drawn), turns)
    speed = windows * LENGTH / seconds[rows]
    print(f"{name}: bare {speed:,.0f} tokens/s at {rows} windows a pass, ours {model.rows(LENGTH)}")
    _said(f"{name}: our tokens/s over the bare loop's", ratio, "at least 0.97", ratio >= 0.97)


def swap(model: ResidentModel, name: str, windows: int) -> None:
    """Compare a swap of weights with an evaluation of 16k tokens, extrapolated from fewer."""
    drawn = _windows(windows, model.vocabulary)
    own = {n: p.detach().clone() for n, p in model.module.named_parameters()}
    swapped = best(lambda: model.load(own), 5)
    whole = best(lambda: score_windows(model, drawn), 2) * (16_384 / (windows * LENGTH))
    _said(f"{name}: swap over 16k tokens", swapped / whole, "under 0.05", swapped / whole < 0.05)


def second(model: ResidentModel, name: str, windows: int) -> None:
    """Compare a whole evaluation, with check and swap of weights, with its forward passes."""
    packed = {"d": ItemPack(windows=_windows(windows, model.vocabulary))}
    draws = outcomes.whole({"d": packed["d"].pool()})
    own = {n: p.detach().clone() for n, p in model.module.named_parameters()}
    logits, spent = model.logits, [0.0]

    def watched(ids: torch.Tensor) -> torch.Tensor:
        began = time.perf_counter()
        result = logits(ids)
        spent[0] += time.perf_counter() - began
        return result

    def once() -> float:
        spent[0] = 0.0
        began = time.perf_counter()
        assert not not_finite(own)
        model.load(own)
        evaluate(model, packed, draws, Judge(cast(Any, SimpleNamespace(eos_token_id=None))))
        return (time.perf_counter() - began) / spent[0]

    model.logits = watched  # pyright: ignore[reportAttributeAccessIssue]
    once()
    ratio = statistics.median(once() for _ in range(5))
    model.logits = logits
    _said(f"{name}: second evaluation over its forward passes", ratio, "under 1.1", ratio < 1.1)


def _folder(config: Qwen2Config, where: Path, name: str) -> Path:
    """Write a model folder with random weights and the tokenizer of `common.folders`."""
    base = folders(where / "25M", 1)[0]
    if name == "25M":
        return base
    _model(config).module.save_pretrained(where / name)
    AutoTokenizer.from_pretrained(base).save_pretrained(where / name)
    return where / name


def harness(config: Qwen2Config, name: str, where: Path) -> None:
    """Compare accuracy and time on a task of 100 documents with the harness, both warm."""
    base = _folder(config, where, name)
    docs = lm_eval_tasks.sums(100)
    task = lm_eval_tasks.write(where, "sums", lm_eval_tasks.CHOICE, docs)
    theirs = lm_eval_reference.reference(base, task)["sums"]
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = ResidentModel.from_module(Qwen2ForCausalLM.from_pretrained(base))
    rows: list[Any] = spec.rows([f"lm-eval:{task}"], False)
    found = data_items.from_rows([{**row, "slice": "test"} for row in rows])
    packed = packing.pack(found, tokenizer, 256)["test"]
    draws = outcomes.whole({d: p.pool() for d, p in packed.items()})
    judge, seen = Judge(tokenizer), None

    def ours() -> None:
        nonlocal seen
        seen = evaluate(model, packed, draws, judge).outcomes["sums"].right

    seconds = best(ours, 3)
    assert seen
    difference = abs(statistics.mean(seen) - theirs["metrics"]["acc,none"])
    _said(f"{name}: harness: difference of accuracies", difference, "under 1e-4", difference < 1e-4)
    print(
        f"{name}: harness: our time over its: {seconds / theirs['seconds']:.3f} "
        f"({seconds:.2f} s against {theirs['seconds']:.2f} s)",
        flush=True,
    )


def eight(config: Qwen2Config, name: str, windows: int) -> None:
    """Compare eight candidates with one: one after the other, and stacked under `vmap`."""
    from torch.func import functional_call, stack_module_state

    model = _model(config)
    candidates = [
        {n: p.detach().clone() for n, p in _model(config, seed).module.named_parameters()}
        for seed in range(8)
    ]
    drawn = _windows(windows, model.vocabulary)

    def one(own: dict[str, torch.Tensor]) -> None:
        model.load(own)
        score_windows(model, drawn)

    def all_() -> None:
        for own in candidates:
            one(own)

    one(candidates[0])
    pairs = [  # each is timed next to the first, so that a busy moment hits both
        (best(lambda own=own: one(own), 1), best(lambda: one(candidates[0]), 1))
        for _ in range(3)
        for own in candidates
    ]
    ratio = sum(a for a, _ in pairs) / sum(b for _, b in pairs)
    _said(f"{name}: eight over eight times one", ratio, "at most 1.05", ratio <= 1.05)
    modules = [_model(config, seed).module for seed in range(8)]
    stacked, buffers = stack_module_state(modules)
    ids = torch.from_numpy(np.stack(drawn))
    shell = modules[0]
    shell.set_attn_implementation("eager")  # the fused one has no batching rule

    def losses(own: Any, kept: Any, rows: torch.Tensor) -> torch.Tensor:
        given = {"input_ids": rows, "use_cache": False}
        logits = functional_call(shell, (own, kept), kwargs=given).logits[:, :-1]
        targets = rows[:, 1:].flatten()
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets, reduction="none")

    @torch.inference_mode()
    def batched() -> None:
        rows = max(1, model.rows(LENGTH) // 8)  # as many tokens a pass as with one model
        for start in range(0, windows, rows):
            torch.vmap(losses, in_dims=(0, 0, None))(stacked, buffers, ids[start : start + rows])

    try:
        batched()
    except Exception as error:
        print(f"{name}: no batched pass: {type(error).__name__}: {str(error).splitlines()[0][:120]}")
        return
    ratio = _turns(batched, all_, 3)
    print(f"{name}: eight in one batched pass over eight alone: {ratio:.3f}", flush=True)


def half(model: ResidentModel, name: str) -> None:
    """Compare bfloat16 with float32: time of forward passes, perplexity of the same windows."""
    own = {n: p.detach().clone() for n, p in model.module.named_parameters()}
    packed = {"d": ItemPack(windows=_windows(4, model.vocabulary))}
    found = [autotune.halved(model, [own], packed, LENGTH) for _ in range(3)]
    ratio = statistics.median(each.ratio for each in found)
    print(
        f"{name}: bfloat16 is {ratio:.2f} times as fast, perplexity changes by "
        f"{found[0].change:.3%} (tolerance {autotune.TOLERANCE:.1%})",
        flush=True,
    )


def compiled(model: ResidentModel, name: str) -> None:
    """Compare compiled passes of a full batch with uncompiled ones, in both dtypes."""
    own = {n: p.detach().clone() for n, p in model.module.named_parameters()}
    packed = {"d": ItemPack(windows=_windows(4, model.vocabulary))}
    for dtype in (torch.float32, torch.bfloat16):
        model.dtype = dtype
        found = [autotune.compiled(model, [own], packed, LENGTH) for _ in range(3)]
        ratio = statistics.median(each.ratio for each in found)
        print(
            f"{name}: compiled, {model.rows(LENGTH)} windows a pass in {dtype} are {ratio:.2f} times "
            f"as fast, perplexity changes by {found[0].change:.4%}, compiling takes "
            f"{found[0].seconds:.0f} s",
            flush=True,
        )
    model.dtype = None
    model.load(own)


def _bytes() -> int:
    pages = Path("/proc/self/statm").read_text("ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def memory(config: Qwen2Config, name: str, windows: int, count: int = 300) -> None:
    """Print the slope of resident memory over evaluations, without the first fifty."""
    model = _model(config)
    candidates = [
        {n: p.detach().clone() for n, p in _model(config, seed).module.named_parameters()}
        for seed in range(2)
    ]
    packed = {"d": ItemPack(windows=_windows(windows, model.vocabulary))}
    draws = outcomes.whole({"d": packed["d"].pool()})
    judge, seen = Judge(cast(Any, SimpleNamespace(eos_token_id=None))), []
    for number in range(count):
        model.load(candidates[number % 2])
        evaluate(model, packed, draws, judge)
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # freed memory goes back to the system
        seen.append(_bytes())
    places = np.arange(50, count)
    slope, _ = np.polyfit(places, seen[50:], 1)
    spread = (max(seen[50:]) - min(seen[50:])) / 2**20
    print(
        f"{name}: memory: {slope:+,.0f} bytes an evaluation over {count}, {spread:.1f} MiB between "
        f"the least and the most; {seen[-1] / 2**20:,.0f} MiB in all",
        flush=True,
    )


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--only", nargs="*", default=[])
    given = parser.parse_args()
    print(machine(), flush=True)

    def wanted(name: str) -> bool:
        return not given.only or name in given.only

    sizes = [("25M", configuration(M25), 32)]
    if given.large:
        sizes.append(("0.5B", half_billion(), 4))
    for name, config, windows in sizes:
        model = _model(config)
        if wanted("loop"):
            loop(model, name, windows, 5)
        if wanted("swap"):
            swap(model, name, windows)
        if wanted("second"):
            second(model, name, windows)
        if wanted("half"):
            half(model, name)
        if wanted("compiled"):
            compiled(model, name)
        del model
        if wanted("harness"):
            with tempfile.TemporaryDirectory() as folder:
                harness(config, name, Path(folder))
        if wanted("memory"):
            memory(config, name, 1)
    if wanted("compiled"):
        compiled(_model(configuration(TINY)), "1M")
    if wanted("eight"):
        eight(configuration(M25), "25M", 8)
        eight(configuration(TINY), "1M", 8)
    if wanted("memory"):
        memory(configuration(TINY), "1M", 16)


if __name__ == "__main__":
    main()
