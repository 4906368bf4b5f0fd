"""Training of a base and three specialists on the built-in text, into Hugging Face folders."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoTokenizer

from evaluation.backends.local_backend import ResidentModel
from evaluation.data import items as data_items
from evaluation.data.builtin import corpus as builtin_corpus
from evaluation.data.builtin import help_prose
from evaluation.data.packing import Packed, pack
from evaluation.data.slices import Document, Slice
from phases.cognate import report as reports
from phases.cognate import training
from phases.cognate.errors import CognateError
from phases.cognate.model import initialisation, new_model, train_tokenizer
from phases.cognate.presets import Preset
from phases.cognate.report import Report
from phases.cognate.training import Progress
from runs.errors import UnavailableError
from weights.checkpoint import SHARD_BYTES, publish, write_weights
from weights.recipes import Train
from weights.training import modules

Corpus = Mapping[str, Mapping[Slice, list[Document]]]

#: Folder of the items to measure on, beside the models.
ITEMS = "items"
#: Documents from which the tokenizer learns, per domain.
TOKENIZER_DOCUMENTS = 300


def create(
    out: Path,
    preset: Preset,
    seed: int,
    tell: Callable[[str], None],
    trace: Callable[[Progress], None],
    domains: Sequence[str] = builtin_corpus.DOMAINS,
) -> Report:
    """Train the base and a specialist for each domain, write all below `out`, return the report.

    Raises CognateError if a specialist is not the best on its own domain: then the models are not
    written. Raises UnavailableError if `out` cannot be written.
    """
    began = time.perf_counter()
    corpus = builtin_corpus.corpus(seed, preset.characters, domains)
    tokenizer = train_tokenizer(
        (d.text for split in corpus.values() for d in split["train"][:TOKENIZER_DOCUMENTS]),
        preset.vocabulary,
    )
    texts = _training_texts(preset, seed, corpus)
    streams = {d: _stream(documents, tokenizer) for d, documents in texts.items()}
    passes = _passes(preset, domains, {d: len(s) for d, s in streams.items()})
    sizes = ", ".join(f"{d} {len(s):,} ({passes[d]:.1f})" for d, s in streams.items())
    tell(f"tokens of training text (times that the model that reads most of it does): {sizes}")
    weights, model = _train_all(preset, seed, domains, streams, trace)
    items = data_items.from_rows(builtin_corpus.items(corpus, seed))
    held_out = pack(items, tokenizer, preset.context)["selection"]
    report = _measure(preset, seed, weights, model, held_out)
    report.seconds = time.perf_counter() - began
    reports.check(report)
    _write(out, preset, seed, weights, model, tokenizer, corpus, report)
    return report


def _training_texts(preset: Preset, seed: int, corpus: Corpus) -> dict[str, list[Document]]:
    """Return domain → training documents: the training slice; of unmeasured prose, all of them."""
    texts = {d: split["train"] for d, split in corpus.items()}
    rest = [d for d in preset.base_mix if d not in texts]
    if "prose" in rest:
        texts["prose"] = list(help_prose.documents(preset.characters))
        rest.remove("prose")
    others = builtin_corpus.corpus(seed, preset.characters, rest)
    return texts | {d: split["train"] for d, split in others.items()}


def _passes(preset: Preset, domains: Sequence[str], sizes: Mapping[str, int]) -> dict[str, float]:
    """Return how often a domain's text is read by the model that reads most of it."""
    base = {d: preset.base_tokens * share for d, share in preset.base_mix.items()}
    mixes = [preset.specialist_mix(domain) for domain in domains]
    most = {d: max(mix.get(d, 0.0) for mix in mixes) * preset.specialist_tokens for d in sizes}
    return {d: (base.get(d, 0.0) + most[d]) / size for d, size in sizes.items()}


def _stream(documents: list[Document], tokenizer: Any) -> np.ndarray:
    """Return the documents' token ids in one row, each document followed by the end token."""
    encoded = tokenizer([d.text for d in documents], add_special_tokens=False, verbose=False)
    ids: list[int] = []
    for row in encoded["input_ids"]:
        ids += [*row, tokenizer.eos_token_id]
    return np.asarray(ids, np.int32)


def _train_all(
    preset: Preset,
    seed: int,
    domains: Sequence[str],
    streams: dict[str, np.ndarray],
    trace: Callable[[Progress], None],
) -> tuple[dict[str, dict], Any]:
    """Train the base, then each specialist from it; return name → weights, and the module."""
    init = initialisation(preset, seed)

    def phase(
        name: str, start: str, shares: Mapping[str, float], tokens: int, peak: float
    ) -> Train:
        return training.recipe(
            preset,
            streams,
            shares,
            phase=name,
            start=start,
            tokens=tokens,
            peak=peak,
            seed=seed,
        )

    first = phase("base", init.id, preset.base_mix, preset.base_tokens, preset.base_rate)
    base = training.train(first, new_model(preset, seed), streams, trace)
    result = {"base": dict(base.weights)}
    for domain in domains:
        mix, rate = preset.specialist_mix(domain), preset.specialist_rate
        own = phase(domain, first.id, mix, preset.specialist_tokens, rate)
        result[domain] = dict(training.train(own, base, streams, trace).weights)
    return result, modules.build(base)


def _measure(
    preset: Preset,
    seed: int,
    weights: dict[str, dict],
    model: Any,
    held_out: dict[str, Packed],
) -> Report:
    resident = ResidentModel.from_module(model)
    base = weights["base"]
    specialists = {name: w for name, w in weights.items() if name != "base"}
    norms, cosines = reports.geometry(base, specialists)
    line = {n: reports.along(resident, base, w, held_out) for n, w in specialists.items()}
    return Report(
        preset=preset.name,
        seed=seed,
        parameters=preset.parameters,
        bits_per_byte={n: reports.bits_per_byte(resident, w, held_out) for n, w in weights.items()},
        line=line,
        barrier={name: reports.barrier(losses) for name, losses in line.items()},
        relative_norm=norms,
        cosine=cosines,
        seconds=0.0,
    )


def _write(
    out: Path,
    preset: Preset,
    seed: int,
    weights: dict[str, dict],
    model: Any,
    tokenizer: Any,
    corpus: Corpus,
    report: Report,
) -> None:
    """Write every folder whole or not at all; write the report last."""
    for name, tensors in weights.items():

        def fill(folder: Path, name: str = name, tensors: dict = tensors) -> None:
            model.config.save_pretrained(folder)
            model.generation_config.save_pretrained(folder)
            write_weights(folder, tensors, SHARD_BYTES)
            tokenizer.save_pretrained(folder)
            (folder / "README.md").write_text(_card(name, preset, seed, report), "utf-8")

        publish(out / name, fill)
    _check_tokens(out / "base", tokenizer, corpus)
    publish(out / ITEMS, lambda folder: builtin_corpus.write(folder, corpus, seed))
    text = json.dumps(report.model_dump(), indent=2) + "\n"
    (out / "cognate.json").write_text(text, "utf-8")


def _check_tokens(folder: Path, tokenizer: Any, corpus: Corpus) -> None:
    """Raise CognateError if a reader of the folder gets other tokens than the model learned."""
    read = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    for split in corpus.values():
        text = split["test"][0].text
        if read.encode(text) != tokenizer.encode(text, add_special_tokens=False):
            raise CognateError(f"the tokenizer read from {folder} is not the one trained with")


def _card(name: str, preset: Preset, seed: int, report: Report) -> str:
    """Return the model card; a specialist's card names its base."""
    front = ["---", "library_name: transformers", "license: apache-2.0", "tags:", "- cognate"]
    if name != "base":
        front += ["base_model: ../base", "base_model_relation: finetune"]
    measured = ", ".join(f"{d} {v:.4f}" for d, v in report.bits_per_byte[name].items())
    mix = preset.base_mix if name == "base" else preset.specialist_mix(name)
    shares = ", ".join(f"{d} {share:.0%}" for d, share in mix.items())
    tokens = preset.base_tokens if name == "base" else preset.specialist_tokens
    origin = "from scratch" if name == "base" else "from `base`"
    return "\n".join(
        [
            *front,
            "---",
            "",
            f"# {name} ({preset.name}, seed {seed})",
            "",
            f"{preset.parameters:,} parameters, trained {origin} on {tokens:,} tokens ({shares}).",
            f"Bits per byte on held-out text: {measured}.",
            "",
        ]
    )


def check_folder(out: Path) -> None:
    """Check `out` before minutes of training.

    Raises CognateError if `out` holds other files already, UnavailableError if it cannot be
    written.
    """
    if (
        out.exists()
        and (not out.is_dir() or any(out.iterdir()))
        and not (out / "cognate.json").exists()
    ):
        raise CognateError(f"{out} exists and is not empty: choose another folder for --out.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        trial = out / ".writable"
        trial.touch()
        trial.unlink()
    except OSError as error:
        raise UnavailableError(
            f"{out} cannot be written: {error.strerror}. Choose another."
        ) from error
