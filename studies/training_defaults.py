"""Trainings of runs: what no setting changes, and the optimisers with all parameters. Pure."""

from __future__ import annotations

from typing import Any

from runs.errors import DataError
from weights.recipes import Algorithm

#: Largest norm of the gradient; share of the peak learning rate that is left at the end.
CLIP, FLOOR = 1.0, 0.1
#: Times that a text may be read over without a note: about as good as new text (arXiv 2305.16264, §6).
READINGS = 4
#: Setting → optimiser. A recipe has every parameter, so that its id says all.
OPTIMISERS = {
    "adamw": Algorithm(
        name="adamw@1",
        params={"beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.1},
    ),
    "muon": Algorithm(
        name="mugrokfast@1",
        params={
            "grokfast_lambda": 0.0,
            "grokfast_alpha": 0.98,
            "tau": None,
            "momentum": 0.95,
            "nesterov": True,
            "newton_schulz_steps": 5,
            "adjust_rate": "match_rms_adamw",
            "weight_decay": 0.1,
            "betas": [0.9, 0.95],
        },
    ),
}


def divided(windows: int, requested_parts: int, parts: int) -> list[str]:
    """Return a note if a step's windows are computed in more parts than the settings ask for."""
    if parts <= requested_parts:
        return []
    whole = "at once" if requested_parts == 1 else f"in {requested_parts} parts"
    return [
        f"a step's {windows} windows do not fit in memory {whole}: they are computed in {parts} parts."
    ]


def check_lengths(started: Any) -> None:
    """Raise DataError if the text of a domain is too short for one window."""
    needed = started.context + 2
    for domain, tokens in started.tokens.items():
        if tokens < needed:
            raise DataError(
                f"the text of domain {domain} has {tokens} tokens: a window of {started.context} needs "
                f"at least {needed}. Give more text, or set a smaller context."
            )
