"""Evaluation of one candidate on one draw: its outcomes, item by item."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evaluation.backends.backend import Evaluator
from evaluation.data.outcomes import DomainOutcomes, Draws, Outcomes, joined
from evaluation.data.packing import Packed, Posed
from evaluation.measures.multiple_choice import score_questions
from evaluation.measures.perplexity import score_windows
from evaluation.verifiers.base import Verdict
from evaluation.verifiers.verifier import Verifier


@dataclass
class Judge:
    """Judge of replies to problems: the tokenizer that decodes replies, and the verifiers."""

    tokenizer: Any
    verifier: Verifier = field(default_factory=Verifier)

    def judge(self, model: Evaluator, problems: Sequence[Posed]) -> list[tuple[str, Verdict]]:
        """Return (reply, verdict) for every problem. Raises SandboxUnavailableError."""
        replies = model.replies(problems, self.tokenizer)
        result = []
        for posed, reply in zip(problems, replies, strict=True):
            item = posed.problem.model_dump(include={"id", "domain", "prompt"})
            result.append((reply, self.verifier.verify(posed.problem.check, reply, item)))
        return result


@dataclass(frozen=True)
class Watch:
    """Early stopping of a search evaluation: its blocks of windows, and the rule that ends it."""

    blocks: Sequence[Draws]
    #: Outcomes so far and their draws → why the evaluation can end now, or None.
    reason: Callable[[Outcomes, Draws], str | None]


@dataclass(frozen=True)
class Seen:
    """Result of an evaluation."""

    outcomes: Outcomes
    #: The windows that were scored before early stopping, and the reason; None if all were scored.
    scored: Draws | None = None
    stopped: str | None = None


def evaluate(
    model: Evaluator,
    data: Mapping[str, Packed],
    draws: Draws,
    judge: Judge,
    watch: Watch | None = None,
) -> Seen:
    """Return the outcomes of the drawn windows, questions and problems, by domain in order of name.

    A log-likelihood that is not finite stays in the outcomes as such; `composite.components` then
    gives None. Windows come first; with a `watch`, the evaluation may end after a block of them.
    """
    read: Windows = {}
    for number, block in enumerate(watch.blocks if watch else [draws], start=1):
        _read(model, data, block, read)
        if watch and number < len(watch.blocks):
            scored = joined(watch.blocks[:number])
            sofar = {d: _windows(data[d], draw.windows, read[d]) for d, draw in scored.items()}
            if why := watch.reason(sofar, scored):
                return Seen(sofar, scored, why)
    result: Outcomes = {}
    for domain in sorted(draws):
        packed, drawn = data[domain], draws[domain]
        questions = [packed.questions[i] for i in drawn.questions]
        problems = [packed.problems[i] for i in drawn.problems]
        judged = [verdict for _, verdict in judge.judge(model, problems)]
        failed = [
            (p.problem.id, v.why) for p, v in zip(problems, judged, strict=True) if not v.scored
        ]
        fields = {
            "right": tuple(score_questions(model, questions)),
            "chance": tuple(1 / len(q.sizes) for q in questions),
            "solved": tuple(verdict.score for verdict in judged),
            "unscored": dict(failed),
        }
        result[domain] = _windows(packed, drawn.windows, read[domain]).model_copy(update=fields)
    return Seen(result)


#: Domain → window → (Σ −log p, predicted tokens, hits).
Windows = dict[str, dict[int, tuple[float, int, int]]]


def _read(model: Evaluator, data: Mapping[str, Packed], draws: Draws, read: Windows) -> None:
    """Score the drawn windows, in the order of the draw, and add their scores to `read`."""
    for domain in sorted(draws):
        places = draws[domain].windows
        scores = score_windows(model, [data[domain].windows[i] for i in places])
        read.setdefault(domain, {}).update(zip(places, zip(*scores, strict=True), strict=True))


def _windows(
    packed: Packed, places: Sequence[int], read: Mapping[int, tuple[float, int, int]]
) -> DomainOutcomes:
    """Return the outcomes of these windows, without questions and problems."""
    return DomainOutcomes(
        nll=tuple(read[i][0] for i in places),
        tokens=tuple(read[i][1] for i in places),
        hits=tuple(read[i][2] for i in places),
        bytes=tuple(packed.bytes[i] for i in places) if packed.bytes else (),
    )
