"""Shared helpers of benchmarks: untrained models of 25 million parameters, short items, timing."""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from agent_forge.evaluation.data.builtin import corpus as builtin_corpus
from agent_forge.phases.cognate import work as preset_model
from agent_forge.phases.cognate.settings import PRESETS, Preset
from agent_forge.phases.cognate.work import train_tokenizer
from agent_forge.runs import keys

M25 = PRESETS["25m"]


def options(description: str | None) -> argparse.ArgumentParser:
    """Return a parser whose --help prints a module's docstring as it is written."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def machine() -> str:
    """Return the machine, threads and torch version in a line."""
    return f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}"


def configuration(preset: Preset) -> Qwen2Config:
    """Return a preset of the architecture qwen2 as a transformers configuration."""
    found = preset_model.configuration(preset)
    assert isinstance(found, Qwen2Config)
    return found


def weights(count: int, seed: int = 0) -> list[dict[str, torch.Tensor]]:
    """Return `count` sets of float32 weights of the 25m preset: a base, and siblings 3 % away."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        base = {n: p.detach() for n, p in Qwen2ForCausalLM(configuration(M25)).named_parameters()}
    result = [base]
    for i in range(1, count):
        sibling = {}
        for name, tensor in base.items():
            rng = keys.generator("benchmark", seed, i, name)
            move = torch.from_numpy(rng.standard_normal(tensor.shape, dtype="float32"))
            sibling[name] = tensor + move * (0.03 * tensor.norm() / move.norm())
        result.append(sibling)
    return result


def folders(where: Path, count: int = 4) -> list[Path]:
    """Write `weights` as model folders with a tokenizer; return the folders, the base first."""
    corpus = builtin_corpus.corpus(0, 2_000_000)
    texts = (d.text for split in corpus.values() for d in split["train"][:200])
    tokenizer = train_tokenizer(texts, M25.vocabulary)
    result = []
    for i, tensors in enumerate(weights(count)):
        model: Any = Qwen2ForCausalLM(configuration(M25))
        model.load_state_dict(tensors, strict=False)
        folder = where / ("base" if i == 0 else f"source{i}")
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        result.append(folder)
    return result


def shortened(items: Path, out: Path, kept: Mapping[str, int]) -> Path:
    """Write the texts of items to a new folder, cut to `kept` characters per domain and slice."""
    out.mkdir()
    for file in sorted(items.glob("*.jsonl")):
        left, lines = dict(kept), []
        for line in file.read_text("utf-8").splitlines():
            row = json.loads(line)
            if "text" in row and left[row["slice"]] > 0:
                row["text"] = row["text"][: left[row["slice"]]]
                left[row["slice"]] -= len(row["text"])
                lines.append(json.dumps(row))
        (out / file.name).write_text("\n".join(lines) + "\n", "utf-8")
    return out


def best(function: Callable[[], object], repetitions: int = 5) -> float:
    """Return the seconds of the fastest of some calls."""
    times = []
    for _ in range(repetitions):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return min(times)
