"""Tables of the benchmark of skills: what each model solves, in one seed and over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.evomerge.skills_data import TASKS

#: A specialist has gained a skill if it solves this share of the problems more than the base.
GAINED = 0.05
#: A model is said to hold a skill if it keeps this share of the specialist's gain over the base.
HELD = 0.5
#: Smallest factor of a geometric mean: a task of which nothing is solved.
FLOOR = 0.01
#: Student's t of the middle 95 %, for 1 degree of freedom and more.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)

#: Model → task → for each problem of the test slice 1 if the model solves it, else 0.
Solved = Mapping[str, Mapping[str, Sequence[int]]]


def share(values: Sequence[int]) -> float:
    """Return the share of problems solved."""
    return sum(values) / len(values)


def gains(solved: Solved, model: str) -> dict[str, float]:
    """Return task → the share of its specialist's gain over the base that a model keeps.

    It is 1 for the specialist and 0 for the base. Tasks of which the specialist gained nothing, as
    the base could solve them, are left out.
    """
    kept = {}
    for task in TASKS:
        start, end = share(solved["base"][task]), share(solved[task][task])
        if end - start >= GAINED:
            kept[task] = (share(solved[model][task]) - start) / (end - start)
    return kept


def held(solved: Solved, model: str) -> int:
    """Return the number of skills that a model holds."""
    return sum(gain >= HELD for gain in gains(solved, model).values())


def relative(solved: Solved, model: str) -> float:
    """Return the geometric mean, over tasks, of problems solved relative to the specialist."""
    parts = [share(solved[model][t]) / max(share(solved[t][t]), FLOOR) for t in TASKS]
    return math.exp(math.fsum(math.log(max(part, FLOOR)) for part in parts) / len(parts))


def wilson(values: Sequence[int]) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson 1927)."""
    z, count, mean = 1.96, len(values), share(values)
    middle = (mean + z * z / (2 * count)) / (1 + z * z / count)
    spread = mean * (1 - mean) / count + z * z / (4 * count * count)
    half = z * math.sqrt(spread) / (1 + z * z / count)
    return max(0.0, middle - half), min(1.0, middle + half)


def over_seeds(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and half of its 95 % interval (Student's t); infinite for a single seed."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, math.inf
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
    student = STUDENT[min(len(values) - 2, len(STUDENT) - 1)]
    return mean, student * spread / math.sqrt(len(values))


def seed_table(result: Mapping[str, Any]) -> list[str]:
    """Return the table of a seed: problems solved by each model, with the interval of the share."""
    solved: Solved = result["solved"]
    moved = ", ".join(f"{task} {value:.1%}" for task, value in result["moved"].items())
    cosines = ", ".join(f"{pair} {value:+.2f}" for pair, value in result["cosines"].items())
    lines = [
        f"Seed {result['seed']}. Moved, of the base's norm: {moved}. Cosines: {cosines}.",
        *([f"Refused by `forge cognate`: {result['refused']}."] if "refused" in result else []),
        "",
        f"| model | {' | '.join(TASKS)} | geometric mean | skills held |",
        "|---|" + "---:|" * (len(TASKS) + 2),
    ]
    for model in solved:
        cells = [_count(solved[model][task]) for task in TASKS]
        cells += [
            f"{relative(solved, model):.3f}",
            f"{held(solved, model)} of {len(gains(solved, model))}",
        ]
        lines.append(f"| {model} | {' | '.join(cells)} |")
    return lines


def _count(values: Sequence[int]) -> str:
    low, high = wilson(values)
    return f"{sum(values)} of {len(values)} ({low:.0%} to {high:.0%})"


def summary(
    results: Sequence[Mapping[str, Any]], static: Sequence[str], searches: Sequence[str]
) -> list[str]:
    """Return the table over seeds, and each search's lead over the best of the static merges.

    The last line counts the seeds that `forge cognate` refused by their bits per byte.
    """
    refused = sum("refused" in result for result in results)
    models = [m for m in results[0]["solved"] if all(m in r["solved"] for r in results)]
    scores = {m: [relative(r["solved"], m) for r in results] for m in models}
    lines = [
        f"| {len(results)} seeds | {' | '.join(TASKS)} | geometric mean | more than one | all |",
        "|---|" + "---:|" * (len(TASKS) + 3),
    ]
    for model in models:
        cells = [_mean([share(r["solved"][model][t]) for r in results], ".0%") for t in TASKS]
        counts = [(held(r["solved"], model), len(gains(r["solved"], model))) for r in results]
        cells.append(_mean(scores[model], ".3f"))
        cells.append(_of(n > 1 for n, several in counts if several > 1))
        cells.append(_of(n == several for n, several in counts if several > 1))
        lines.append(f"| {model} | {' | '.join(cells)} |")
    best = max((m for m in models if m in static), key=lambda m: math.fsum(scores[m]))
    lines.append("")
    for search in (m for m in models if m in searches):
        leads = [a - b for a, b in zip(scores[search], scores[best], strict=True)]
        lines.append(
            f"Searched with {search}: {_mean(leads, '+.3f')} over {best}, the static merge with the "
            f"highest mean; ahead in {sum(lead > 0 for lead in leads)} of {len(leads)} seeds."
        )
    if refused:
        lines.append(f"Refused by `forge cognate`, and measured all the same: {refused}.")
    return lines


def _of(seeds: Iterable[bool]) -> str:
    """Return in how many of the seeds it is so: those where specialists gained several skills."""
    found = list(seeds)
    return f"{sum(found)} of {len(found)}"


def _mean(values: Sequence[float], form: str) -> str:
    mean, half = over_seeds(values)
    return f"{mean:{form}}" if math.isinf(half) else f"{mean:{form}} ± {half:{form.lstrip('+')}}"
