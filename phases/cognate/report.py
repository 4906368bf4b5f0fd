"""Report on trained models: quality by domain, distance from the base, and loss barriers.

Quality is measured in bits per byte: −log₂ p of the held-out text per byte of it, so it does not
depend on the tokenizer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from pydantic import BaseModel, ConfigDict

from evaluation.backends.local_backend import ResidentModel
from evaluation.data.packing import Packed
from evaluation.perplexity import score_windows
from phases.cognate.errors import CognateError

Weights = Mapping[str, torch.Tensor]

#: Places on the line from base (0) to specialist (1) where the loss is measured.
LINE = (0.0, 0.25, 0.5, 0.75, 1.0)

#: A rise of more than this (nats a token) above the straight line between the ends is a barrier.
BARRIER = 0.01


class Report(BaseModel):
    """Measurements of `forge cognate`."""

    model_config = ConfigDict(extra="forbid")

    preset: str
    seed: int
    parameters: int
    #: model → domain → bits per byte on the selection slice; the base among the models.
    bits_per_byte: dict[str, dict[str, float]]
    #: specialist → loss (nats a token, mean over domains) along the line from the base.
    line: dict[str, list[float]]
    #: specialist → highest rise above the straight line between the ends.
    barrier: dict[str, float]
    #: specialist → norm of its task vector relative to the base's norm.
    relative_norm: dict[str, float]
    #: "a,b" → cosine of two task vectors.
    cosine: dict[str, float]
    seconds: float


def rates(
    model: ResidentModel, weights: Weights, data: Mapping[str, Packed]
) -> dict[str, tuple[float, int]]:
    """Return domain → (Σ −log p in nats, predicted tokens). The weights stay loaded."""
    model.load(weights)
    result = {}
    for domain in sorted(data):
        nll, tokens, _ = score_windows(model, data[domain].windows)
        result[domain] = (math.fsum(nll), sum(tokens))
    return result


def bits_per_byte(
    model: ResidentModel, weights: Weights, data: Mapping[str, Packed]
) -> dict[str, float]:
    """Return domain → bits per byte."""
    measured = rates(model, weights, data)
    return {d: nll / math.log(2) / sum(data[d].bytes) for d, (nll, _) in measured.items()}


def mean_loss(model: ResidentModel, weights: Weights, data: Mapping[str, Packed]) -> float:
    """Return the mean over domains of −log p a token, nats."""
    measured = rates(model, weights, data)
    return math.fsum(nll / tokens for nll, tokens in measured.values()) / len(measured)


def along(
    model: ResidentModel, base: Weights, specialist: Weights, data: Mapping[str, Packed]
) -> list[float]:
    """Return the mean loss at each place of `LINE`, from the base to the specialist."""
    return [
        mean_loss(model, {n: torch.lerp(base[n], specialist[n], t) for n in base}, data)
        for t in LINE
    ]


def barrier(losses: Sequence[float]) -> float:
    """Return the highest rise above the straight line between the ends; at most 0 if none."""
    inner = zip(LINE[1:-1], losses[1:-1], strict=True)
    return max(loss - (losses[0] * (1 - t) + losses[-1] * t) for t, loss in inner)


def task_vector(base: Weights, specialist: Weights) -> torch.Tensor:
    """Return all tensors' differences, in order of name, as one float64 vector."""
    return torch.cat([(specialist[n] - base[n]).double().flatten() for n in sorted(base)])


def geometry(
    base: Weights, specialists: Mapping[str, Weights]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the task vectors' norms relative to the base's norm, and their cosines."""
    zero = {n: torch.zeros_like(t) for n, t in base.items()}
    size = float(task_vector(zero, base).norm())
    vectors = {name: task_vector(base, weights) for name, weights in specialists.items()}
    norms = {name: float(v.norm()) / size for name, v in vectors.items()}
    names = list(vectors)
    cosines = {
        f"{a},{b}": float(vectors[a] @ vectors[b] / vectors[a].norm() / vectors[b].norm())
        for i, a in enumerate(names)
        for b in names[i + 1 :]
    }
    return norms, cosines


def check(report: Report) -> None:
    """Raise CognateError unless every specialist is the best of all on its own domain."""
    models = report.bits_per_byte
    for name in report.relative_norm:
        best = min(models, key=lambda other: models[other][name])
        if best != name:
            raise CognateError(
                f"the {name} specialist has {models[name][name]:.4f} bits per byte on {name}, "
                f"{best} has {models[best][name]:.4f}: it is no specialist. Try another --seed, or "
                "a larger preset."
            )


def lines(report: Report) -> list[str]:
    """Return the report as lines of text for users."""
    domains = list(next(iter(report.bits_per_byte.values())))
    out = ["bits per byte (lower is better), selection slice:"]
    out.append(f"{'':12s}" + "".join(f"{d:>10s}" for d in domains))
    for name, row in report.bits_per_byte.items():
        best = {d: min(r[d] for r in report.bits_per_byte.values()) for d in domains}
        cells = (f"{row[d]:9.4f}{'*' if row[d] == best[d] else ' '}" for d in domains)
        out.append(f"{name:12s}" + "".join(cells))
    for name, norm in report.relative_norm.items():
        path = " ".join(f"{x:.4f}" for x in report.line[name])
        state = "no barrier" if report.barrier[name] <= BARRIER else "BARRIER"
        out.append(
            f"{name}: moved {norm:.1%} of the base's norm; loss along the line {path}, {state}"
        )
    cosines = ", ".join(f"{pair} {value:+.2f}" for pair, value in report.cosine.items())
    out.append(f"cosines of the task vectors: {cosines}")
    return out
