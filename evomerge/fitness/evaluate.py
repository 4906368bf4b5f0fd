"""One candidate on one draw: its outcomes, item by item."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from evomerge.fitness.accuracy import score_questions
from evomerge.fitness.outcomes import DomainOutcomes, Draws, Outcomes
from evomerge.fitness.packing import Packed
from evomerge.fitness.perplexity import score_windows
from evomerge.fitness.resident import ResidentModel


def evaluate(
    model: ResidentModel,
    weights: Mapping[str, torch.Tensor],
    data: Mapping[str, Packed],
    draws: Draws,
) -> Outcomes:
    """The outcomes of the drawn windows and questions, domain by domain in order of name.

    A log-likelihood that is not finite stays in the outcomes as such; `composite.components` then
    gives None.
    """
    model.load(weights)
    result: Outcomes = {}
    for domain in sorted(draws):
        packed, drawn = data[domain], draws[domain]
        nll, tokens, hits = score_windows(model, [packed.windows[i] for i in drawn.windows])
        questions = [packed.questions[i] for i in drawn.questions]
        result[domain] = DomainOutcomes(
            nll=tuple(nll),
            tokens=tuple(tokens),
            hits=tuple(hits),
            right=tuple(score_questions(model, questions)),
            chance=tuple(1 / len(q.sequences) for q in questions),
        )
    return result
