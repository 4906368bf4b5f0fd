"""Report of what was measured: rows of tables of at most 80 columns, and the same as data. No torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from agent_forge.evomerge.mergeability import forecast
from agent_forge.evomerge.mergeability.forecast import WORDS, MergeForecast, MergePoint

if TYPE_CHECKING:
    from agent_forge.evomerge.mergeability.relations import Relations

Table = tuple[str, list[str], list[list[str]]]


def weights(relations: Relations, names: Sequence[str], base: str) -> list[Table]:
    """Return two tables about the weights, (title, columns, rows) each: sources' norms, and pairs."""
    norms = [[name, f"{norm:.4f}"] for name, norm in zip(names, relations.norms, strict=True)]
    pairs = [
        [
            f"{names[pair.first]}, {names[pair.second]}",
            f"{pair.cosine:.3f}",
            f"{100 * pair.same_sign:.1f} %",
            f"{pair.left:.3f}",
            f"{pair.right:.3f}",
        ]
        for pair in relations.pairs
    ]
    chance = [f"{relations.chance_left:.3f}", f"{relations.chance_right:.3f}"]
    pairs.append(["by chance", "0.000", "50.0 %", *chance])
    return [
        (f"changes of {base}", ["source", "norm / base"], norms),
        (
            "changes beside each other; left, right: overlap of leading singular vectors",
            ["pair", "cosine", "same sign", "left", "right"],
            pairs,
        ),
    ]


def losses(points: Sequence[MergePoint], names: Sequence[str], base: str) -> Table:
    """Return (title, columns, rows) of the table of losses along the lines."""
    rows = []
    for start, end in forecast.lines(len(names)):
        line = forecast.line(points, start, end)
        values = [f"{loss:.4f}" for loss in line.losses]
        rows.append([f"{base if start is None else names[start]} → {names[end]}", *values])
        rows[-1].append(f"{line.barrier:.4f}")
    mean = next(p for p in points if p.shares == (1.0 / len(names),) * len(names))
    rows.append(["mean of all", f"{mean.loss:.4f}", *[""] * 5])
    title = "loss on the lines, nats a token; barrier: height above the straight line"
    return title, ["line", "0", "¼", "½", "¾", "1", "barrier"], rows


def sentence(loss_forecast: MergeForecast, names: Sequence[str], base: str) -> str:
    """Return a sentence on what the losses say of a merge, and on what they do not say."""
    best, merge = (
        place(loss_forecast.best_end, names, base),
        place(loss_forecast.best_merge, names, base),
    )
    words = WORDS[loss_forecast.answer].format(best=best)
    lead = loss_forecast.difference
    return (
        f"loss of this text: {words} (best merge: {merge}, {lead.difference:+.4f} nats a token, "
        f"95 % interval {lead.low:+.4f} to {lead.high:+.4f}). It did not foretell the "
        "recorded runs that are scored on problems solved."
    )


def place(shares: Sequence[float], names: Sequence[str], base: str) -> str:
    """Return the words for a point: "code", "¼ code + ¾ math"."""
    written = {0.25: "¼ ", 0.5: "½ ", 0.75: "¾ ", 1.0: ""}
    if len(shares) > 2 and len(set(shares)) == 1 and shares[0]:
        return "the mean of all"
    parts = [
        f"{written.get(share, f'{share:.2f} ')}{name}"
        for share, name in zip(shares, names, strict=True)
        if share
    ]
    if 0.0 < sum(shares) < 1.0:
        rest = 1.0 - sum(shares)
        parts.insert(0, f"{written.get(rest, f'{rest:.2f} ')}{base}")
    return " + ".join(parts) or base


def as_data(
    names: Sequence[str],
    base: str,
    relations: Relations,
    points: Sequence[MergePoint] | None,
    tokens: dict[str, int],
) -> dict[str, object]:
    """Return a dict for JSON: relations of weights; losses and forecast unless `points` is None."""
    data: dict[str, object] = {"base": base, "sources": list(names), "weights": asdict(relations)}
    if points is None:
        return data
    verdict = forecast.forecast(points)
    lines = [forecast.line(points, *ends) for ends in forecast.lines(len(names))]
    return data | {
        "tokens": tokens,
        "points": [{"shares": p.shares, "loss": _finite(p.loss)} for p in points],
        "lines": [
            {
                "from": base if line.start is None else names[line.start],
                "to": names[line.end],
                "losses": [_finite(loss) for loss in line.losses],
                "barrier": _finite(line.barrier),
            }
            for line in lines
        ],
        "forecast": {
            "answer": verdict.answer,
            "best_end": place(verdict.best_end, names, base),
            "best_merge": place(verdict.best_merge, names, base),
            **{key: _finite(value) for key, value in verdict.difference.model_dump().items()},
        },
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
