"""Evaluation of one candidate on one draw: its outcomes, item by item.

Filter of items that cannot be measured on this machine or by these models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_forge.evaluation.backends.backend import Evaluator
from agent_forge.evaluation.data import items as data_items
from agent_forge.evaluation.data.items import Item
from agent_forge.evaluation.data.outcomes import DomainOutcomes, Draws, Outcomes, joined
from agent_forge.evaluation.data.packing import Packed, Posed, fitting
from agent_forge.evaluation.measures.perplexity import score_questions, score_windows
from agent_forge.evaluation.verifiers.program import Verdict
from agent_forge.evaluation.verifiers.verifier import SandboxUnavailableError, Verifier


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


def why_not_run(items: Sequence[Item], verifier: Verifier) -> str:
    """Return why items that run code cannot be measured on this machine; empty if they can."""
    if not any(map(data_items.runs_code, items)):
        return ""
    try:
        verifier.sandbox  # noqa: B018 - opening it is the test
    except SandboxUnavailableError as error:
        return str(error)
    return ""


def measurable(
    items: Sequence[Item], tokenizer: Any, context: int, builtin: bool, not_run: str
) -> tuple[list[Item], tuple[str, ...]]:
    """Return (items to measure, a line for each kind of item that is left out).

    Items that run code are left out if `not_run` gives a reason. Items longer than the context are
    left out if they are `builtin` or of tasks, because those were not made for one model.
    """
    measured_items, lines = list(items), []
    if not_run:
        measured_items = [item for item in items if not data_items.runs_code(item)]
        if count := len(items) - len(measured_items):
            lines.append(f"{count} problems are not run: {not_run}")
    for kind, these in (
        ("built-in items", [item for item in measured_items if builtin]),
        (
            "items of tasks",
            [item for item in measured_items if data_items.of_task(item) and not builtin],
        ),
    ):
        long = {item.id for item in these} - {
            item.id for item in fitting(these, tokenizer, context)
        }
        if long:
            lines.append(f"{len(long)} {kind} are longer than {context} tokens and left out")
            measured_items = [item for item in measured_items if item.id not in long]
    return measured_items, tuple(lines)
